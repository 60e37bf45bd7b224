package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT32;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.Arrays;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;

/** groupByKey and groupBy with count, reduce and aggregate. */
final class GroupingCases {
    private GroupingCases() {}

    static List<Case> cases() {
        return List.of(
            counting(dsl("count", b -> words(b, "in").groupByKey(byWord()).count(numberStore("counts"))
                .toStream().to("out", asNumbers()))),
            counting(dsl("count_unnamed_store", b -> words(b, "in").groupByKey(byWord()).count()
                .toStream().to("out", asNumbers()))),
            counting(dsl("count_named", b -> words(b, "in").groupByKey(byWord()).count(Named.as("counter"))
                .toStream().to("out", asNumbers()))),
            counting(dsl("count_named_with_store", b -> words(b, "in").groupByKey(byWord())
                .count(Named.as("counter"), numberStore("counts")).toStream(Named.as("changes"))
                .to("out", asNumbers()))),
            counting(dsl("count_uncached", b -> words(b, "in").groupByKey(byWord())
                .count(numberStore("counts").withCachingDisabled()).toStream().to("out", asNumbers()))),
            counting(dsl("count_unlogged", b -> words(b, "in").groupByKey(byWord())
                .count(numberStore("counts").withLoggingDisabled()).toStream().to("out", asNumbers()))),
            counting(dsl("count_of_named_group_without_rekeying", b -> words(b, "in")
                .groupByKey(Grouped.with("unused", STRING, STRING)).count().toStream().to("out", asNumbers()))),
            piped(dsl("count_nobody_reads", b -> words(b, "in").groupByKey(byWord()).count(numberStore("counts")))),
            counting(dsl("group_by_count", b -> words(b, "in").groupBy((k, v) -> v, byWord()).count()
                .toStream().to("out", asNumbers()))),
            counting(dsl("group_by_count_with_store", b -> words(b, "in").groupBy((k, v) -> v, byWord())
                .count(numberStore("counts"))
                .toStream().to("out", asNumbers()))),
            counting(dsl("group_by_named_group", b -> words(b, "in")
                .groupBy((k, v) -> v, Grouped.with("by-value", STRING, STRING))
                .count().toStream().to("out", asNumbers()))),
            counting(dsl("group_by_everything_named", b ->
                b.stream("in", Consumed.with(STRING, STRING).withName("source"))
                .groupBy((k, v) -> v, Grouped.with("by-value", STRING, STRING))
                .count(Named.as("counter"), numberStore("counts"))
                .toStream(Named.as("changes")).to("out", asNumbers().withName("sink")))),
            counting(dsl("group_by_null_group", b -> words(b, "in")
                .groupBy((k, v) -> "x".equals(v) ? null : v, byWord())
                .count(numberStore("counts")).toStream().to("out", asNumbers()))),
            counting(dsl("group_by_int_key", b -> words(b, "in").filter((k, v) -> v != null)
                    .groupBy((k, v) -> v.length() - 1, Grouped.with(INT32, STRING))
                    .count(Materialized.as("counts")).toStream().to("out", Produced.with(INT32, INT64))))
                .output("out", INT32, INT64),
            counting(dsl("word_count", b -> words(b, "in").filter((k, v) -> v != null)
                .flatMapValues(v -> Arrays.asList(v.toLowerCase().split("\\W+")))
                .groupBy((k, v) -> v, byWord()).count(numberStore("counts")).toStream().to("out", asNumbers())))
                .pipe("in", null, "The quick brown fox jumps over the lazy dog, the end", 30)
                .pipe("in", null, "Lazy, lazy fox", 20),
            joining(dsl("reduce", b -> words(b, "in").groupByKey(byWord()).reduce((agg, v) -> agg + v)
                .toStream().to("out", asWords()))),
            joining(dsl("reduce_with_store", b -> words(b, "in").groupByKey(byWord())
                .reduce((agg, v) -> agg + v, wordStore("joined"))
                .toStream().to("out"))),
            joining(dsl("reduce_named", b -> words(b, "in").groupByKey(byWord())
                .reduce((agg, v) -> agg + v, Named.as("concatenate"), wordStore("joined")).toStream().to("out"))),
            joining(dsl("reduce_returning_null", b -> words(b, "in").groupByKey(byWord())
                .reduce((agg, v) -> agg.equals(v) ? null : v, wordStore("joined")).toStream().to("out")))
                .pipe("in", "a", "same", 30).pipe("in", "a", "same", 29).pipe("in", "a", "x", 3),
            joining(dsl("group_by_reduce", b -> words(b, "in").groupBy((k, v) -> v, byWord())
                .reduce((agg, v) -> agg + v).toStream().to("out", asWords()))),
            summing(dsl("aggregate", b -> numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> "", (k, v, agg) -> agg + k + v + ";", wordStore("log")).toStream().to("out")))
                .output("out", STRING, STRING),
            summing(dsl("aggregate_unnamed_store", b -> numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> "", (k, v, agg) -> agg + k + v + ";", Materialized.with(STRING, STRING)).toStream()
                .to("out", asWords())))
                .output("out", STRING, STRING),
            summing(dsl("aggregate_named", b -> numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, Named.as("total"), numberStore("totals")).toStream()
                .to("out"))),
            summing(dsl("aggregate_returning_null", b -> numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> 0L, (k, v, agg) ->
                    v < 0 ? null : agg + v, numberStore("totals")).toStream().to("out")))
                .pipe("in", "a", -1L, 3).pipe("in", "a", -1L, 31).pipe("in", "a", 7L, 3).pipe("in", "a", -1L, 2)
                .pipe("in", "new", -1L, 40),
            summing(dsl("aggregate_returning_null_uncached", b -> numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> v < 0 ? null : agg + v, numberStore("totals").withCachingDisabled())
                .toStream().to("out")))
                .pipe("in", "a", -1L, 3).pipe("in", "a", -1L, 31).pipe("in", "a", 7L, 3).pipe("in", "a", -1L, 2)
                .pipe("in", "new", -1L, 40),
            summing(dsl("aggregate_from_null_initializer", b -> numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> null, (k, v, agg) -> agg == null ? v : agg - v, numberStore("totals")).toStream()
                .to("out"))),
            summing(dsl("aggregate_raising_fails", b -> numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> 10 / v, numberStore("totals")).toStream().to("out")))
                .pipe("in", "a", 0L, 30),
            summing(dsl("sum_of_values", b -> numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, numberStore("totals")).toStream().to("out"))),
            counting(dsl("sum_of_lengths", b -> words(b, "in").groupByKey(byWord())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v.length(), numberStore("totals")).toStream().to("out"))),
            summing(dsl("min_of_values", b -> numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> null, (k, v, agg) -> agg == null ? v : Long.valueOf(Math.min(agg, v)),
                    numberStore("least"))
                .toStream().to("out"))),
            summing(dsl("max_of_values", b -> numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> null, (k, v, agg) -> agg == null ? v : Long.valueOf(Math.max(agg, v)),
                    numberStore("greatest"))
                .toStream().to("out"))),
            counting(dsl("count_collapses_updates_of_one_record", b -> words(b, "in")
                .flatMapValues(v -> v == null ? List.of() : List.of(v, v, v))
                .groupByKey(byWord()).count(numberStore("counts")).toStream().to("out", asNumbers()))),
            counting(dsl("count_uncached_shows_every_update", b -> words(b, "in")
                .flatMapValues(v -> v == null ? List.of() : List.of(v, v, v))
                .groupByKey(byWord()).count(numberStore("counts").withCachingDisabled()).toStream()
                .to("out", asNumbers()))),
            counting(dsl("count_caches_flush_after_direct_output", b -> {
                KStream<String, String> twice = words(b, "in")
                    .flatMapValues(v -> v == null ? List.of() : List.of(v, v + v));
                twice.groupByKey(byWord()).count(numberStore("counts")).toStream().mapValues(v -> "count " + v)
                    .to("out", asWords());
                twice.to("out", asWords());
            }))
                .output("out", STRING, STRING),
            counting(dsl("count_two_caches_flush_in_order", b -> {
                KStream<String, String> in = words(b, "in").filter((k, v) -> v != null);
                in.groupByKey(byWord()).reduce((agg, v) -> agg + v, wordStore("zz-first")).toStream()
                    .mapValues(v -> "first " + v).to("out", asWords());
                in.groupByKey(byWord()).count(numberStore("aa-second")).toStream().mapValues(v -> "second " + v)
                    .to("out", asWords());
            }))
                .output("out", STRING, STRING),
            counting(dsl("aggregate_of_table_updates_cached_twice", b -> words(b, "in")
                .flatMapValues(v -> v == null ? List.of() : List.of(v, v + v))
                .groupByKey(byWord()).count(numberStore("counts"))
                .toStream().groupByKey(byNumber()).reduce((agg, v) -> agg + 100 * v, numberStore("sums"))
                .toStream().to("out"))),
            splitting(dsl("aggregate_collapses_to_nothing_or_tombstone", b -> split(b)
                .groupByKey(byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> v < 0 ? null : agg + v, numberStore("totals"))
                .toStream().to("out"))),
            splitting(dsl("aggregate_uncached_shows_every_null", b -> split(b)
                .groupByKey(byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> v < 0 ? null : agg + v, numberStore("totals").withCachingDisabled())
                .toStream().to("out"))),
            splitting(dsl("aggregate_collapsed_updates_in_a_table_group", b -> split(b)
                .groupByKey(byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> v < 0 ? null : agg + v, numberStore("totals"))
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                .reduce((agg, v) -> agg + v, (agg, v) -> agg - v, numberStore("grand-total"))
                .toStream().to("out"))),
            counting(dsl("select_key_then_group_by_key", b -> words(b, "in").selectKey((k, v) -> v)
                .groupByKey(byWord()).count().toStream().to("out", asNumbers()))),
            counting(dsl("select_key_then_named_group_by_key", b -> words(b, "in")
                .selectKey((k, v) -> v, Named.as("rekey"))
                .groupByKey(Grouped.with("regrouped", STRING, STRING)).count(numberStore("counts")).toStream()
                .to("out", asNumbers()))),
            counting(dsl("rekeying_is_remembered_through_value_operators", b -> words(b, "in")
                .filter((k, v) -> v != null)
                .map((k, v) -> KeyValue.pair(v, k))
                .mapValues(v -> v + "!").filter((k, v) -> true).peek((k, v) -> {})
                .groupByKey(byWord()).count().toStream().to("out", asNumbers()))),
            counting(dsl("value_operators_need_no_repartition", b -> words(b, "in")
                .mapValues(v -> v == null ? "none" : v).filter((k, v) -> true).flatMapValues(v -> List.of(v))
                .peek((k, v) -> {})
                .groupByKey(byWord()).count().toStream().to("out", asNumbers()))),
            counting(dsl("two_groupings_of_one_rekeyed_stream", b -> {
                KStream<String, String> rekeyed = words(b, "in").selectKey((k, v) -> v);
                rekeyed.groupByKey(byWord()).count().toStream().to("out", asNumbers());
                rekeyed.groupByKey(byWord()).reduce((agg, v) -> agg + v).toStream().to("words", asWords());
            }))
                .output("words", STRING, STRING),
            counting(dsl("two_named_groupings_of_one_rekeyed_stream", b -> {
                KStream<String, String> rekeyed = words(b, "in").selectKey((k, v) -> v);
                rekeyed.groupByKey(Grouped.with("first", STRING, STRING)).count().toStream().to("out", asNumbers());
                rekeyed.groupByKey(Grouped.with("second", STRING, STRING)).reduce((agg, v) -> agg + v).toStream()
                    .to("words", asWords());
            }))
                .output("words", STRING, STRING),
            counting(dsl("two_aggregates_of_one_group", b -> {
                KGroupedStream<String, String> grouped = words(b, "in")
                    .groupBy((k, v) -> v, Grouped.with("shared", STRING, STRING));
                grouped.count().toStream().to("out", asNumbers());
                grouped.reduce((agg, v) -> agg + v).toStream().to("words", asWords());
            }))
                .output("words", STRING, STRING),
            counting(dsl("two_aggregates_of_one_unnamed_group", b -> {
                KGroupedStream<String, String> grouped = words(b, "in").groupBy((k, v) -> v, byWord());
                grouped.count(numberStore("counts")).toStream().to("out", asNumbers());
                grouped.reduce((agg, v) -> agg + v, wordStore("joined")).toStream().to("words", asWords());
            }))
                .output("words", STRING, STRING),
            counting(dsl("two_aggregates_of_one_key_group", b -> {
                KGroupedStream<String, String> grouped = words(b, "in").groupByKey(byWord());
                grouped.count().toStream().to("out", asNumbers());
                grouped.reduce((agg, v) -> agg + v).toStream().to("words", asWords());
            }))
                .output("words", STRING, STRING),
            counting(dsl("merge_of_rekeyed_and_plain_is_repartitioned", b -> {
                KStream<String, String> in = words(b, "in");
                in.merge(in.selectKey((k, v) -> v)).groupByKey(byWord()).count(numberStore("counts")).toStream()
                    .to("out", asNumbers());
            })),
            counting(dsl("count_of_counts", b -> words(b, "in").groupByKey(byWord()).count(numberStore("counts"))
                .toStream().map((k, v) -> KeyValue.pair("times-" + v, k))
                .groupByKey(byWord()).count(numberStore("counts-of-counts")).toStream().to("out", asNumbers()))),
            counting(dsl("counts_merged_with_events", b -> {
                KStream<String, String> in = words(b, "in");
                KTable<String, Long> counts = in.groupByKey(byWord()).count(numberStore("counts"));
                counts.toStream().mapValues(v -> "count " + v).merge(in).to("out", asWords());
            }))
                .output("out", STRING, STRING),
            dsl("group_by_raising_fails", b -> words(b, "in").groupBy((k, v) -> v.substring(1), byWord())
                    .count().toStream().to("out", asNumbers()))
                .input("in", STRING, STRING).output("out", STRING, INT64)
                .pipe("in", "a", "xy", 10).pipe("in", "c", null, 12));
    }

    private static Case counting(Case test) {
        return piped(test.output("out", STRING, INT64));
    }

    private static Case joining(Case test) {
        return piped(test.output("out", STRING, STRING));
    }

    /** Repeated keys, out-of-order and equal timestamps, a null key, a null value. */
    private static Case piped(Case test) {
        return test.input("in", STRING, STRING)
            .pipe("in", "b", "x", 10).pipe("in", "a", "y", 20).pipe("in", "b", "y", 5).pipe("in", null, "x", 11)
            .pipe("in", "c", null, 12).pipe("in", "b", "x", 10).pipe("in", "a", "x", 25);
    }

    /** A word per number, as numbers. */
    private static KStream<String, Long> split(StreamsBuilder b) {
        return Dsl.words(b, "in").flatMapValues(v -> Arrays.stream(v.split(" ")).map(Long::valueOf).toList());
    }

    /** Several updates of one key at once: insert and delete, update and delete, delete and insert. */
    private static Case splitting(Case test) {
        return test.input("in", STRING, STRING).output("out", STRING, INT64)
            .pipe("in", "a", "1 -1", 10).pipe("in", "a", "5", 20).pipe("in", "b", "1 2 3", 30)
            .pipe("in", "a", "2 -1", 15)
            .pipe("in", "a", "6", 14).pipe("in", "a", "-1 7", 13).pipe("in", "a", "1 -1 -1", 12)
            .pipe("in", "a", "-1 -1 2 3", 11)
            .pipe("in", "b", "-1 4 -1", 40).pipe("in", "b", "-1 -1", 41);
    }

    private static Case summing(Case test) {
        return test.input("in", STRING, INT64).output("out", STRING, INT64)
            .pipe("in", "b", 5L, 10).pipe("in", "a", 2L, 20).pipe("in", "b", 3L, 5).pipe("in", null, 9L, 11)
            .pipe("in", "c", null, 12).pipe("in", "b", 4L, 10).pipe("in", "a", 1L, 25);
    }
}
