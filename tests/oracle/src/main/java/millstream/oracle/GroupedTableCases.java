package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.numberTable;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.wordTable;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;

/** KTable.groupBy with count, reduce and aggregate: every update takes the old row out and puts the new one in. */
final class GroupedTableCases {
    private GroupedTableCases() {}

    static List<Case> cases() {
        return List.of(
            rows(dsl("table_group_by_count", b -> byValue(b).count().toStream().to("out", asNumbers()))),
            rows(dsl("table_group_by_count_with_store", b -> byValue(b).count(numberStore("counts")).toStream()
                .to("out"))),
            rows(dsl("table_group_by_count_named", b -> byValue(b).count(Named.as("counter"), numberStore("counts"))
                .toStream().to("out"))),
            rows(dsl("table_group_by_count_named_without_store", b -> byValue(b).count(Named.as("counter")).toStream()
                .to("out", asNumbers()))),
            rows(dsl("table_group_by_count_uncached", b -> byValue(b).count(numberStore("counts").withCachingDisabled())
                .toStream().to("out"))),
            rows(dsl("table_group_by_named_group", b -> wordTable(b, "in")
                .groupBy((k, v) -> KeyValue.pair(v, k), Grouped.with("by-value", STRING, STRING)).count().toStream()
                .to("out", asNumbers()))),
            rows(dsl("table_group_by_of_stored_table", b -> wordTable(b, "in", "rows")
                .groupBy((k, v) -> KeyValue.pair(v, k), byWord()).count(numberStore("counts")).toStream().to("out"))),
            rows(dsl("table_group_by_of_uncached_table", b -> b.table("in", wordStore("rows").withCachingDisabled())
                .groupBy((k, v) -> KeyValue.pair(v, k), byWord()).count(numberStore("counts")).toStream().to("out"))),
            rows(dsl("table_group_by_reduce", b -> byValue(b)
                .reduce((agg, v) -> agg + "+" + v, (agg, v) -> agg + "-" + v)
                .toStream().to("out", asWords())))
                .output("out", STRING, STRING),
            rows(dsl("table_group_by_reduce_with_store", b -> byValue(b)
                .reduce((agg, v) -> agg + "+" + v, (agg, v) -> agg + "-" + v, Named.as("trace"), wordStore("traces"))
                .toStream().to("out")))
                .output("out", STRING, STRING),
            rows(dsl("table_group_by_reduce_subtracting_to_null", b -> byValue(b)
                .reduce((agg, v) -> agg + "+" + v, (agg, v) -> null, wordStore("traces")).toStream().to("out")))
                .output("out", STRING, STRING),
            rows(dsl("table_group_by_aggregate", b -> byValue(b)
                .aggregate(() -> "", (k, v, agg) -> agg + "+" + k + v, (k, v, agg) -> agg + "-" + k + v,
                    wordStore("traces"))
                .toStream().to("out")))
                .output("out", STRING, STRING),
            rows(dsl("table_group_by_aggregate_named", b -> byValue(b)
                .aggregate(() -> "", (k, v, agg) -> agg + "+" + v, (k, v, agg) -> agg + "-" + v, Named.as("trace"),
                    Materialized.with(STRING, STRING))
                .toStream().to("out", asWords())))
                .output("out", STRING, STRING),
            rows(dsl("table_group_by_aggregate_subtracting_to_null", b -> byValue(b)
                .aggregate(() -> "", (k, v, agg) -> agg + "+" + v, (k, v, agg) -> null, wordStore("traces"))
                .toStream().to("out")))
                .output("out", STRING, STRING),
            rows(dsl("table_group_by_aggregate_subtracting_to_null_uncached", b -> byValue(b)
                .aggregate(() -> "", (k, v, agg) -> agg + "+" + v, (k, v, agg) -> null,
                    wordStore("traces").withCachingDisabled())
                .toStream().to("out")))
                .output("out", STRING, STRING),
            rows(dsl("table_group_by_aggregate_adding_to_null", b -> byValue(b)
                .aggregate(() -> "", (k, v, agg) -> "b".equals(v) ? null : agg + "+" + v, (k, v, agg) -> agg + "-" + v,
                    wordStore("traces"))
                .toStream().to("out")))
                .output("out", STRING, STRING),
            rows(dsl("table_group_by_aggregate_uncached", b -> byValue(b)
                .aggregate(() -> "", (k, v, agg) -> agg + "+" + v, (k, v, agg) -> agg + "-" + v,
                    wordStore("traces").withCachingDisabled())
                .toStream().to("out")))
                .output("out", STRING, STRING),
            rows(dsl("table_group_by_single_group", b -> wordTable(b, "in")
                .groupBy((k, v) -> KeyValue.pair("all", v), byWord())
                .aggregate(() -> "", (k, v, agg) -> agg + "+" + v, (k, v, agg) -> agg + "-" + v, wordStore("traces"))
                .toStream().to("out")))
                .output("out", STRING, STRING),
            rows(dsl("table_group_by_null_group", b -> wordTable(b, "in")
                .groupBy((k, v) -> KeyValue.pair("y".equals(v) ? null : v, k), byWord())
                .count(numberStore("counts")).toStream().to("out"))),
            rows(dsl("table_group_by_null_value", b -> wordTable(b, "in")
                .groupBy((k, v) -> KeyValue.pair(v, "y".equals(v) ? null : k), byWord())
                .count(numberStore("counts")).toStream().to("out"))),
            dsl("table_group_by_returning_null_takes_no_part", b -> wordTable(b, "in")
                .groupBy((k, v) -> "y".equals(v) ? null : KeyValue.pair(v, k), byWord())
                    .count(numberStore("counts")).toStream().to("out"))
                .input("in", STRING, STRING).output("out", STRING, INT64)
                .pipe("in", "a", "x", 1).pipe("in", "a", "y", 2),
            rows(dsl("table_group_by_of_filtered_table", b -> wordTable(b, "in").filter((k, v) -> !"y".equals(v))
                .groupBy((k, v) -> KeyValue.pair(v, k), byWord()).count(numberStore("counts")).toStream().to("out"))),
            rows(dsl("table_group_by_of_stored_filter", b -> wordTable(b, "in")
                .filter((k, v) -> !"y".equals(v), wordStore("kept"))
                .groupBy((k, v) -> KeyValue.pair(v, k), byWord()).count(numberStore("counts")).toStream().to("out"))),
            rows(dsl("table_group_by_of_mapped_table", b -> wordTable(b, "in").mapValues(v -> v + v)
                .groupBy((k, v) -> KeyValue.pair(v, k), byWord()).count(numberStore("counts")).toStream().to("out"))),
            rows(dsl("table_group_by_of_stored_map", b -> wordTable(b, "in")
                .mapValues((k, v) -> v + v, wordStore("mapped"))
                .groupBy((k, v) -> KeyValue.pair(v, k), byWord()).count(numberStore("counts")).toStream().to("out"))),
            rows(dsl("table_group_by_twice", b -> {
                KTable<String, String> table = wordTable(b, "in");
                table.groupBy((k, v) -> KeyValue.pair(v, k), byWord()).count(numberStore("counts")).toStream()
                    .to("out");
                table.groupBy((k, v) -> KeyValue.pair(v + v, k), byWord())
                    .reduce((agg, v) -> agg + "+" + v, (agg, v) -> agg + "-" + v, wordStore("traces"))
                    .toStream().to("traces-out");
            }))
                .output("traces-out", STRING, STRING),
            rows(dsl("table_two_aggregates_of_one_group", b -> {
                KGroupedTable<String, String> grouped = byValue(b);
                grouped.count(numberStore("counts")).toStream().to("out");
                grouped.reduce((agg, v) -> agg + "+" + v, (agg, v) -> agg + "-" + v, wordStore("traces")).toStream()
                    .to("traces-out");
            }))
                .output("traces-out", STRING, STRING),
            rows(dsl("table_two_aggregates_of_one_named_group", b -> {
                KGroupedTable<String, String> grouped = wordTable(b, "in")
                    .groupBy((k, v) -> KeyValue.pair(v, k), Grouped.with("by-value", STRING, STRING));
                grouped.count().toStream().to("out", asNumbers());
                grouped.reduce((agg, v) -> agg + "+" + v, (agg, v) -> agg + "-" + v).toStream()
                    .to("traces-out", asWords());
            }))
                .output("traces-out", STRING, STRING),
            rows(dsl("table_group_by_of_counts", b -> byValue(b).count(numberStore("counts"))
                .groupBy((k, v) -> KeyValue.pair("times-" + v, k), byWord()).count(numberStore("counts-of-counts"))
                .toStream().to("out"))),
            rows(dsl("table_group_by_then_filter", b -> byValue(b).count(numberStore("counts")).filter((k, v) -> v > 1)
                .toStream().to("out"))),
            rows(dsl("table_group_by_after_to_stream_and_back", b -> byValue(b).count(numberStore("counts"))
                .toStream().toTable(numberStore("copy")).mapValues(v -> -v).toStream().to("out", asNumbers()))),
            numbers(dsl("table_group_by_sum", b -> numberTable(b, "in")
                .groupBy((k, v) -> KeyValue.pair(v < 10 ? "small" : "large", v), byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, v, agg) -> agg - v, numberStore("totals")).toStream()
                .to("out"))),
            numbers(dsl("table_group_by_of_uncached_count", b -> Dsl.numbers(b, "in").groupByKey(byNumber())
                .count(numberStore("counts").withCachingDisabled())
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, v, agg) -> agg - v, numberStore("totals")).toStream()
                .to("out"))),
            numbers(dsl("table_group_by_counting_uncached_counts", b -> Dsl.numbers(b, "in").groupByKey(byNumber())
                .count(numberStore("counts").withCachingDisabled())
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber()).count(numberStore("keys"))
                .toStream().to("out"))),
            numbers(dsl("table_group_by_of_uncached_aggregate", b -> Dsl.numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> 1000L, (k, v, agg) -> agg + v, numberStore("sums").withCachingDisabled())
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, v, agg) -> agg - v, numberStore("totals")).toStream()
                .to("out"))),
            numbers(dsl("table_group_by_of_cached_aggregate", b -> Dsl.numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> 1000L, (k, v, agg) -> agg + v, numberStore("sums"))
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, v, agg) -> agg - v, numberStore("totals")).toStream()
                .to("out"))),
            numbers(dsl("table_group_by_of_uncached_reduce", b -> Dsl.numbers(b, "in").groupByKey(byNumber())
                .reduce(Long::sum, numberStore("sums").withCachingDisabled())
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, v, agg) -> agg - v, numberStore("totals")).toStream()
                .to("out"))),
            numbers(dsl("table_group_by_three_levels", b -> numberTable(b, "in", "rows")
                .groupBy((k, v) -> KeyValue.pair("mod" + v % 3, v), byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, v, agg) -> agg - v, numberStore("mods"))
                .groupBy((k, v) -> KeyValue.pair("mod" + v % 2, v), byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, v, agg) -> agg - v, numberStore("parities"))
                .toStream().to("out"))));
    }

    private static KGroupedTable<String, String> byValue(StreamsBuilder b) {
        return wordTable(b, "in").groupBy((k, v) -> KeyValue.pair(v, k), byWord());
    }

    /** Rows that stay in their group, move, come back late, and go. */
    private static Case rows(Case test) {
        return test.input("in", STRING, STRING).output("out", STRING, INT64)
            .pipe("in", "a", "x", 10).pipe("in", "b", "x", 20).pipe("in", "a", "y", 5).pipe("in", "a", "y", 30)
            .pipe("in", null, "x", 31).pipe("in", "c", null, 32).pipe("in", "b", null, 25).pipe("in", "b", "y", 1)
            .pipe("in", "a", null, 2).pipe("in", "b", null, 40);
    }

    private static Case numbers(Case test) {
        return test.input("in", STRING, INT64).output("out", STRING, INT64)
            .pipe("in", "a", 5L, 10).pipe("in", "b", 7L, 20).pipe("in", "a", 6L, 15).pipe("in", "a", 12L, 5)
            .pipe("in", "c", null, 30).pipe("in", "b", 20L, 31).pipe("in", "a", null, 7).pipe("in", "b", 3L, 8);
    }
}
