package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.List;
import java.util.regex.Pattern;
import org.apache.kafka.streams.AutoOffsetReset;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** stream, table, globalTable, addGlobalStore: topics in all the ways in which they enter a topology. */
final class SourceCases {
    private SourceCases() {}

    static List<Case> cases() {
        return List.of(
            dsl("source_named", b -> b.stream("in", Consumed.with(STRING, STRING).withName("origin")).to("out"))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 1),
            dsl("source_of_several_topics", b -> b.stream(List.of("two", "one"), Consumed.with(STRING, STRING))
                .to("out"))
                .input("one", STRING, STRING).input("two", STRING, STRING).output("out", STRING, STRING)
                .pipe("one", "a", "x", 5).pipe("two", "a", "y", 3).pipe("one", null, null, 4),
            dsl("source_pattern", b -> b.stream(Pattern.compile("in-[0-9]+"), Consumed.with(STRING, STRING)).to("out"))
                .input("in-1", STRING, STRING).input("in-22", STRING, STRING).output("out", STRING, STRING)
                .pipe("in-1", "a", "x", 5).pipe("in-22", "a", "y", 3),
            dsl("source_pattern_beside_a_topic", b -> {
                b.stream(Pattern.compile("in-[0-9]+"), Consumed.with(STRING, STRING)).mapValues(v -> "p " + v)
                    .to("out", asWords());
                words(b, "other").to("out");
            })
                .input("in-1", STRING, STRING).input("other", STRING, STRING).output("out", STRING, STRING)
                .pipe("in-1", "a", "x", 5).pipe("other", "a", "y", 3),
            dsl("source_pattern_twice", b -> {
                b.stream(Pattern.compile("in-[0-9]+"), Consumed.with(STRING, STRING)).mapValues(v -> "1 " + v)
                    .to("out", asWords());
                b.stream(Pattern.compile("in-[0-9]+"), Consumed.with(STRING, STRING)).mapValues(v -> "2 " + v)
                    .to("out", asWords());
            })
                .input("in-1", STRING, STRING).output("out", STRING, STRING)
                .pipe("in-1", "a", "x", 5),
            dsl("source_read_twice", b -> {
                words(b, "in").mapValues(v -> "1 " + v).to("out", asWords());
                words(b, "in").mapValues(v -> "2 " + v).to("out", asWords());
            })
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 5).pipe("in", "a", "y", 6),
            dsl("source_named_twice", b -> {
                b.stream("in", Consumed.with(STRING, STRING).withName("first")).mapValues(v -> "1 " + v)
                    .to("out", asWords());
                b.stream("in", Consumed.with(STRING, STRING).withName("second")).mapValues(v -> "2 " + v)
                    .to("out", asWords());
            })
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 5),
            dsl("source_of_overlapping_lists", b -> {
                b.stream(List.of("one", "two"), Consumed.with(STRING, STRING)).mapValues(v -> "1 " + v)
                    .to("out", asWords());
                words(b, "two").mapValues(v -> "2 " + v).to("out", asWords());
            })
                .input("one", STRING, STRING).input("two", STRING, STRING).output("out", STRING, STRING)
                .pipe("one", "a", "x", 5).pipe("two", "a", "y", 5),
            dsl("source_as_stream_and_table", b -> {
                words(b, "in").to("events");
                Dsl.wordTable(b, "in", "store").toStream().to("updates");
            })
                .input("in", STRING, STRING).output("events", STRING, STRING).output("updates", STRING, STRING)
                .pipe("in", "a", "x", 5).pipe("in", null, "y", 6).pipe("in", "a", null, 7),
            dsl("source_as_two_tables", b -> {
                Dsl.wordTable(b, "in", "store1").toStream().to("out1");
                Dsl.wordTable(b, "in", "store2").toStream().to("out2");
            })
                .input("in", STRING, STRING).output("out1", STRING, STRING).output("out2", STRING, STRING)
                .pipe("in", "a", "x", 5),
            dsl("source_with_offset_reset", b -> b.stream("in",
                    Consumed.with(STRING, STRING).withOffsetResetPolicy(AutoOffsetReset.latest())).to("out"))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 5),
            dsl("source_with_two_offset_resets", b -> {
                b.stream("in", Consumed.with(STRING, STRING).withOffsetResetPolicy(AutoOffsetReset.latest())).to("out");
                b.stream("in", Consumed.with(STRING, STRING).withOffsetResetPolicy(AutoOffsetReset.earliest()))
                    .to("out");
            })
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 5),
            dsl("source_timestamps_from_values", b -> b.stream("in",
                    Consumed.with(STRING, INT64)
                        .withTimestampExtractor((record, partitionTime) -> (Long) record.value()))
                    .to("out"))
                .input("in", STRING, INT64).output("out", STRING, INT64)
                .pipe("in", "a", 50L, 5).pipe("in", "a", 7L, 6),
            dsl("source_timestamps_negative_are_dropped", b -> b.stream("in",
                    Consumed.with(STRING, INT64)
                        .withTimestampExtractor((record, partitionTime) -> (Long) record.value()))
                    .to("out"))
                .input("in", STRING, INT64).output("out", STRING, INT64)
                .pipe("in", "a", 50L, 5).pipe("in", "a", -1L, 6).pipe("in", "a", 0L, 7),
            dsl("source_timestamps_from_partition_time", b -> b.stream("in",
                    Consumed.with(STRING, INT64)
                        .withTimestampExtractor((record, partitionTime) -> partitionTime + (Long) record.value()))
                    .to("out"))
                .input("in", STRING, INT64).output("out", STRING, INT64)
                .pipe("in", "a", 5L, 5).pipe("in", "a", 10L, 6).pipe("in", "a", -3L, 7).pipe("in", "a", 1L, 7),
            dsl("global_table", b -> b.globalTable("global", Consumed.with(STRING, STRING), wordStore("everywhere")))
                .input("global", STRING, STRING)
                .pipe("global", "b", "x", 5).pipe("global", "a", "y", 3).pipe("global", null, "z", 4)
                .pipe("global", "b", "older", 1).pipe("global", "c", "w", 9).pipe("global", "c", null, 10),
            dsl("global_table_unnamed_store", b -> {
                b.globalTable("global", Consumed.with(STRING, STRING));
                words(b, "in").to("out");
            })
                .input("global", STRING, STRING).input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("global", "b", "x", 5).pipe("in", "a", "y", 3),
            dsl("global_table_named", b -> {
                b.globalTable("global", Consumed.with(STRING, INT64).withName("reference"), numberStore("everywhere"));
                words(b, "in").to("out");
            })
                .input("global", STRING, INT64).input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("global", "b", 7L, 5).pipe("in", "a", "y", 3),
            dsl("global_table_read_by_processor", b -> {
                b.globalTable("global", Consumed.with(STRING, STRING), wordStore("everywhere"));
                words(b, "in").process(GlobalReader::new).to("out", asWords());
            })
                .input("global", STRING, STRING).input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "early", 3).pipe("global", "a", "x", 5).pipe("in", "a", "y", 3)
                .pipe("global", "a", null, 6).pipe("in", "a", "z", 4),
            dsl("global_table_fed_by_the_topology", b -> {
                b.globalTable("global", Consumed.with(STRING, STRING), wordStore("everywhere"));
                words(b, "in").process(GlobalReader::new).to("global", asWords());
            })
                .input("in", STRING, STRING).output("global", STRING, STRING)
                .pipe("in", "a", "x", 3).pipe("in", "a", "y", 4).pipe("in", null, "z", 5),
            dsl("global_store", b -> {
                b.addGlobalStore(
                    Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("lengths"), STRING, INT64),
                    "global", Consumed.with(STRING, STRING), Lengths::new);
                words(b, "in").process(LengthReader::new, Named.as("reader")).to("out", asNumbers());
            })
                .input("global", STRING, STRING).input("in", STRING, STRING).output("out", STRING, INT64)
                .pipe("global", "a", "four", 5).pipe("in", "a", "y", 3).pipe("in", "b", "y", 3)
                .pipe("global", "b", "xx", 2).pipe("in", "b", "y", 3).pipe("global", "a", null, 6)
                .pipe("in", "a", "z", 4),
            dsl("global_store_named", b -> {
                b.addGlobalStore(
                    Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("lengths"), STRING, INT64),
                    "global", Consumed.with(STRING, STRING).withName("lengths-source"), Lengths::new);
                words(b, "in").groupByKey(byWord()).count().toStream().to("out", asNumbers());
            })
                .input("global", STRING, STRING).input("in", STRING, STRING).output("out", STRING, INT64)
                .pipe("global", "a", "four", 5).pipe("in", "a", "y", 3));
    }

    /** Appends what the global table holds for the record's key. */
    private static final class GlobalReader extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            KeyValueStore<String, org.apache.kafka.streams.state.ValueAndTimestamp<String>> store =
                context().getStateStore("everywhere");
            var held = record.key() == null ? null : store.get(record.key());
            String seen = held == null ? "nothing" : held.value() + "@" + held.timestamp();
            context().forward(record.withValue(record.value() + " " + seen));
        }
    }

    /** Keeps the length of each value. */
    private static final class Lengths implements Processor<String, String, Void, Void> {
        private KeyValueStore<String, Long> store;

        @Override
        public void init(org.apache.kafka.streams.processor.api.ProcessorContext<Void, Void> context) {
            store = context.getStateStore("lengths");
        }

        @Override
        public void process(Record<String, String> record) {
            store.put(record.key(), record.value() == null ? null : (long) record.value().length());
        }
    }

    private static final class LengthReader extends ContextualProcessor<String, String, String, Long> {
        @Override
        public void process(Record<String, String> record) {
            KeyValueStore<String, Long> store = context().getStateStore("lengths");
            context().forward(record.withValue(store.get(record.key())));
        }
    }
}
