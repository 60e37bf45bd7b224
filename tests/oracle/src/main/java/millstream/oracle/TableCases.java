package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.numberTable;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.wordTable;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** table and toTable with filter, mapValues, transformValues and toStream, with and without stores. */
final class TableCases {
    private TableCases() {}

    static List<Case> cases() {
        return List.of(
            script(dsl("table", b -> numberTable(b, "in").toStream().to("out"))),
            script(dsl("table_with_store", b -> numberTable(b, "in", "store").toStream().to("out"))),
            script(dsl("table_named", b ->
                b.table("in", Consumed.with(STRING, INT64).withName("origin"), numberStore("store"))
                .toStream(Named.as("changes")).to("out"))),
            script(dsl("table_uncached", b ->
                b.table("in", Consumed.with(STRING, INT64), numberStore("store").withCachingDisabled())
                .toStream().to("out"))),
            silentScript(dsl("table_nobody_reads", b -> numberTable(b, "in", "store"))),
            silentScript(dsl("table_nobody_reads_without_store", b -> numberTable(b, "in"))),

            script(dsl("table_filter", b -> numberTable(b, "in").filter((k, v) -> v > 2).toStream().to("out"))),
            script(dsl("table_filter_of_stored_table", b -> numberTable(b, "in", "store")
                .filter((k, v) -> v > 2).toStream().to("out"))),
            script(dsl("table_filter_with_store", b -> numberTable(b, "in").filter((k, v) -> v > 2, numberStore("big"))
                .toStream().to("out"))),
            script(dsl("table_filter_with_store_of_stored_table", b -> numberTable(b, "in", "store")
                .filter((k, v) -> v > 2, numberStore("big")).toStream().to("out"))),
            script(dsl("table_filter_named", b -> numberTable(b, "in", "store")
                .filter((k, v) -> v > 2, Named.as("big"), numberStore("big-ones")).toStream().to("out"))),
            script(dsl("table_filter_named_without_store", b -> numberTable(b, "in")
                .filter((k, v) -> v > 2, Named.as("big"))
                .toStream().to("out"))),
            script(dsl("table_filter_not", b -> numberTable(b, "in", "store")
                .filterNot((k, v) -> v > 2).toStream().to("out"))),
            script(dsl("table_filter_not_with_store", b -> numberTable(b, "in")
                .filterNot((k, v) -> v > 2, Named.as("small"), numberStore("small-ones")).toStream().to("out"))),
            script(dsl("table_filter_of_filter", b -> numberTable(b, "in")
                .filter((k, v) -> v > 2).filter((k, v) -> v < 6)
                .toStream().to("out"))),
            script(dsl("table_filter_of_filter_of_stored_table", b -> numberTable(b, "in", "store")
                .filter((k, v) -> v > 2).filter((k, v) -> v < 6)
                .toStream().to("out"))),
            script(dsl("table_filter_of_stored_filter", b -> numberTable(b, "in")
                .filter((k, v) -> v > 2, numberStore("big"))
                .filter((k, v) -> v < 6).toStream().to("out"))),
            script(dsl("table_filter_before_a_store_is_needed", b -> {
                KTable<String, Long> table = numberTable(b, "in");
                table.filter((k, v) -> v > 2).toStream().to("out");
                table.groupBy((k, v) -> KeyValue.pair("all", v), byNumber()).count(numberStore("counts")).toStream()
                    .to("counts-out");
            }))
                .output("counts-out", STRING, INT64),
            script(dsl("table_filter_after_a_store_is_needed", b -> {
                KTable<String, Long> table = numberTable(b, "in");
                table.groupBy((k, v) -> KeyValue.pair("all", v), byNumber()).count(numberStore("counts")).toStream()
                    .to("counts-out");
                table.filter((k, v) -> v > 2).toStream().to("out");
            }))
                .output("counts-out", STRING, INT64),
            script(dsl("table_filter_feeding_a_group", b -> numberTable(b, "in").filter((k, v) -> v > 2)
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber()).count(numberStore("counts")).toStream()
                .to("out"))),
            script(dsl("table_filter_of_count", b -> numbers(b, "in").groupByKey(byNumber())
                .count(numberStore("counts"))
                .filter((k, v) -> v % 2 == 0).toStream().to("out", asNumbers()))),

            script(dsl("table_map_values", b -> numberTable(b, "in").mapValues(v -> v * 10).toStream()
                .to("out", asNumbers()))),
            script(dsl("table_map_values_of_stored_table", b -> numberTable(b, "in", "store").mapValues(v -> v * 10)
                .toStream().to("out", asNumbers()))),
            script(dsl("table_map_values_with_store", b -> numberTable(b, "in")
                .mapValues(v -> v * 10, numberStore("tens"))
                .toStream().to("out"))),
            script(dsl("table_map_values_named", b -> numberTable(b, "in").mapValues(v -> v * 10, Named.as("ten-times"))
                .toStream().to("out", asNumbers()))),
            script(dsl("table_map_values_named_with_store", b -> numberTable(b, "in")
                .mapValues(v -> v * 10, Named.as("ten-times"), numberStore("tens")).toStream().to("out"))),
            script(dsl("table_map_values_with_key", b -> numberTable(b, "in").mapValues((k, v) -> k + v)
                .toStream().to("out", asWords())))
                .output("out", STRING, STRING),
            script(dsl("table_map_values_with_key_and_store", b -> numberTable(b, "in", "store")
                .mapValues((k, v) -> k + v, wordStore("texts"))
                .toStream().to("out")))
                .output("out", STRING, STRING),
            script(dsl("table_map_values_to_null", b -> numberTable(b, "in", "store")
                .mapValues(v -> v > 2 ? v : null, numberStore("big"))
                .toStream().to("out"))),
            script(dsl("table_chain", b -> numberTable(b, "in").filter((k, v) -> v > 2).mapValues(v -> v + 100)
                .filterNot((k, v) -> v == 104).toStream().to("out", asNumbers()))),
            script(dsl("table_chain_of_stored_table", b -> numberTable(b, "in", "store")
                .filter((k, v) -> v > 2).mapValues(v -> v + 100)
                .filterNot((k, v) -> v == 104).toStream().to("out", asNumbers()))),
            script(dsl("table_chain_with_store_in_the_middle", b -> numberTable(b, "in").filter((k, v) -> v > 2)
                .mapValues(v -> v + 100, numberStore("hundreds"))
                .filterNot((k, v) -> v == 104).toStream().to("out"))),
            script(dsl("table_with_two_children", b -> {
                KTable<String, Long> table = numberTable(b, "in", "store");
                table.filter((k, v) -> v > 2).toStream().mapValues(v -> "filtered " + v).to("out", asWords());
                table.mapValues(v -> v * 10).toStream().mapValues(v -> "mapped " + v).to("out", asWords());
                table.toStream().mapValues(v -> "plain " + v).to("out", asWords());
            }))
                .output("out", STRING, STRING),
            script(dsl("table_queryable_store_names", b -> {
                KTable<String, Long> plain = numberTable(b, "in");
                KTable<String, Long> filtered = plain.filter((k, v) -> true, numberStore("kept"));
                KTable<String, Long> mapped = filtered.mapValues(v -> v);
                String names = plain.queryableStoreName() + " " + filtered.queryableStoreName() + " "
                    + mapped.queryableStoreName();
                mapped.toStream().mapValues(v -> names).to("out", asWords());
            }))
                .output("out", STRING, STRING),

            script(dsl("table_to_stream_with_mapper", b -> numberTable(b, "in").toStream((k, v) -> k + v)
                .to("out", asNumbers()))),
            script(dsl("table_to_stream_with_mapper_named", b -> numberTable(b, "in")
                .toStream((k, v) -> k + v, Named.as("rekeyed"))
                .to("out", asNumbers()))),
            script(dsl("table_to_stream_with_mapper_then_count", b -> numberTable(b, "in").toStream((k, v) -> k + k)
                .groupByKey(byNumber()).count(numberStore("counts")).toStream().to("out", asNumbers()))),

            script(dsl("to_table", b -> numbers(b, "in").toTable().toStream().to("out", asNumbers()))),
            script(dsl("to_table_with_store", b -> numbers(b, "in").toTable(numberStore("store")).toStream()
                .to("out"))),
            script(dsl("to_table_named", b -> numbers(b, "in").toTable(Named.as("tabled"), numberStore("store"))
                .toStream().to("out"))),
            script(dsl("to_table_named_without_store", b -> numbers(b, "in").toTable(Named.as("tabled")).toStream()
                .to("out", asNumbers()))),
            script(dsl("to_table_then_filter", b -> numbers(b, "in").toTable(numberStore("store"))
                .filter((k, v) -> v > 2).toStream().to("out"))),
            script(dsl("to_table_unstored_then_filter", b -> numbers(b, "in").toTable()
                .filter((k, v) -> v > 2).toStream().to("out", asNumbers()))),
            wordScript(dsl("to_table_after_rekeying", b -> words(b, "in").selectKey((k, v) -> v)
                .toTable(wordStore("store")).toStream().to("out")))
                .output("out", STRING, STRING),
            wordScript(dsl("to_table_after_rekeying_named", b -> words(b, "in").selectKey((k, v) -> v)
                .toTable(Named.as("tabled"), wordStore("store")).toStream().to("out")))
                .output("out", STRING, STRING),
            wordScript(dsl("to_table_after_rekeying_unstored", b -> words(b, "in").selectKey((k, v) -> v).toTable()
                .toStream().to("out", asWords())))
                .output("out", STRING, STRING),
            script(dsl("to_table_of_merge_then_group", b -> numbers(b, "in").merge(numbers(b, "more"))
                .toTable(numberStore("store"))
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, v, agg) -> agg - v, numberStore("totals"))
                .toStream().to("out")))
                .input("more", STRING, INT64)
                .pipe("more", "a", 100L, 50).pipe("more", "z", 7L, 40).pipe("in", "z", 8L, 1),
            wordScript(dsl("to_table_then_count_of_table", b -> words(b, "in").toTable(wordStore("store"))
                .groupBy((k, v) -> KeyValue.pair(v, k), byWord()).count(numberStore("counts")).toStream().to("out"))),

            script(dsl("table_transform_values", b -> numberTable(b, "in").transformValues(Describe::new).toStream()
                .to("out", asWords())))
                .output("out", STRING, STRING),
            script(dsl("table_transform_values_of_stored_table", b -> numberTable(b, "in", "store")
                .transformValues(Describe::new)
                .toStream().to("out", asWords())))
                .output("out", STRING, STRING),
            script(dsl("table_transform_values_with_result_store", b -> numberTable(b, "in")
                .transformValues(Describe::new, wordStore("described"), Named.as("describe")).toStream().to("out")))
                .output("out", STRING, STRING),
            script(dsl("table_transform_values_named", b -> numberTable(b, "in")
                .transformValues(Describe::new, Named.as("describe")).toStream().to("out", asWords())))
                .output("out", STRING, STRING),
            script(dsl("table_transform_values_with_state", b -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("seen"), STRING, INT64));
                numberTable(b, "in").transformValues(Counted::new, "seen").toStream().to("out", asNumbers());
            })),
            script(dsl("table_transform_values_feeding_a_group", b -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("seen"), STRING, INT64));
                numberTable(b, "in", "store").transformValues(Counted::new, "seen")
                    .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                    .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, v, agg) -> agg - v, numberStore("totals"))
                    .toStream().to("out");
            })),
            script(dsl("table_transform_values_stored_feeding_a_group", b -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("seen"), STRING, INT64));
                numberTable(b, "in", "store").transformValues(Counted::new, numberStore("counted"), "seen")
                    .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                    .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, v, agg) -> agg - v, numberStore("totals"))
                    .toStream().to("out");
            })));
    }

    private static Case script(Case test) {
        return silentScript(test.output("out", STRING, INT64));
    }

    /** Inserts, updates and deletes, repeats, an absent key deleted, times that go back, a null key. */
    private static Case silentScript(Case test) {
        return test.input("in", STRING, INT64)
            .pipe("in", "b", 1L, 10).pipe("in", "a", 5L, 20).pipe("in", "b", 4L, 5).pipe("in", "b", 2L, 15)
            .pipe("in", "a", 7L, 15).pipe("in", "a", 7L, 21).pipe("in", null, 3L, 22).pipe("in", "c", null, 23)
            .pipe("in", "a", null, 24).pipe("in", "a", null, 25).pipe("in", "a", 3L, 2).pipe("in", "b", 1L, 30);
    }

    private static Case wordScript(Case test) {
        return test.input("in", STRING, STRING).output("out", STRING, INT64)
            .pipe("in", "a", "x", 10).pipe("in", "b", "x", 20).pipe("in", "a", "y", 5).pipe("in", "a", null, 30)
            .pipe("in", null, "z", 31).pipe("in", "b", "x", 32);
    }

    /** Spells out key and value; sees null values, too. */
    private static final class Describe implements ValueTransformerWithKey<String, Long, String> {
        private ProcessorContext context;

        @Override
        public void init(ProcessorContext context) {
            this.context = context;
        }

        @Override
        public String transform(String key, Long value) {
            String shown = value == null ? "none" : value.toString();
            return key + "=" + shown + " from " + context.topic() + " at " + context.offset();
        }

        @Override
        public void close() {}
    }

    /** How often it was called for the key. */
    private static final class Counted implements ValueTransformerWithKey<String, Long, Long> {
        private KeyValueStore<String, Long> seen;

        @Override
        public void init(ProcessorContext context) {
            seen = context.getStateStore("seen");
        }

        @Override
        public Long transform(String key, Long value) {
            Long before = seen.get(key);
            long now = before == null ? 1 : before + 1;
            seen.put(key, now);
            return now;
        }

        @Override
        public void close() {}
    }
}
