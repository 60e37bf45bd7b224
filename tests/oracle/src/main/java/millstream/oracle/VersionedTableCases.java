package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.at;
import static millstream.oracle.WindowDsl.versions;

import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;

/** Tables whose stores keep the history of each key. */
final class VersionedTableCases {
    private VersionedTableCases() {}

    static List<Case> cases() {
        return List.of(
            // The table itself: out-of-order updates and tombstones find their place.
            script(numbersOut("versioned_table", b -> table(b, 100).toStream().to("out"))),
            script(dsl("versioned_table_nobody_reads", b -> table(b, 100)).input("in", STRING, INT64)),
            at(numbersOut("versioned_table_history_at_the_bound", b -> table(b, 10).toStream().to("out")),
                "a", 20, 30, 20, 21, 31, 20, 21, 15),
            at(numbersOut("versioned_table_history_is_per_store", b -> table(b, 10).toStream().to("out"))
                .pipe("in", "b", 9L, 50), "a", 39, 40, 41, 45),
            at(numbersOut("versioned_table_without_history", b -> table(b, 0).toStream().to("out")),
                "a", 20, 20, 19, 21, 20, 21),
            numbersOut("versioned_table_equal_timestamps", b -> table(b, 100).toStream().to("out"))
                .pipe("in", "a", 1L, 10).pipe("in", "a", 2L, 10).pipe("in", "a", 3L, 5).pipe("in", "a", 4L, 5)
                .pipe("in", "a", null, 10).pipe("in", "a", 6L, 10).pipe("in", "a", null, 5),
            numbersOut("versioned_table_tombstones", b -> table(b, 100).toStream().to("out"))
                .pipe("in", "a", null, 10).pipe("in", "a", 2L, 5).pipe("in", "a", 3L, 20).pipe("in", "a", null, 15)
                .pipe("in", "a", null, 30).pipe("in", "a", 6L, 25).pipe("in", "a", 7L, 40).pipe("in", "a", null, 35)
                .pipe("in", "b", 8L, 10).pipe("in", "b", null, 12).pipe("in", "b", null, 11),
            numbersOut("versioned_table_near_zero", b -> table(b, 100).toStream().to("out"))
                .pipe("in", "a", 1L, 1).pipe("in", "a", 2L, 0).pipe("in", "a", null, 0).pipe("in", "a", 4L, 2),
            numbersOut("versioned_table_latest_outlives_history", b -> table(b, 10).toStream().to("out"))
                .pipe("in", "a", 1L, 20).pipe("in", "a", 2L, 22).pipe("in", "b", 3L, 1000).pipe("in", "a", 4L, 21)
                .pipe("in", "b", null, 1001).pipe("in", "a", 5L, 992),
            script(numbersOut("versioned_stream_to_table", b -> numbers(b, "in")
                .toTable(versions("store", INT64, 100)).toStream().to("out"))),

            // Operators behind it.
            script(numbersOut("versioned_table_filter", b -> table(b, 100).filter((k, v) -> v > 2).toStream()
                .to("out", asNumbers()))),
            script(numbersOut("versioned_table_filter_with_store", b -> table(b, 100)
                .filter((k, v) -> v > 2, numberStore("big")).toStream().to("out"))),
            script(numbersOut("versioned_table_filter_with_versioned_store", b -> table(b, 100)
                .filter((k, v) -> v > 2, versions("big", INT64, 100)).toStream().to("out"))),
            script(numbersOut("versioned_table_map_values", b -> table(b, 100).mapValues(v -> v * 10).toStream()
                .to("out", asNumbers()))),
            script(numbersOut("versioned_table_map_values_with_store", b -> table(b, 100)
                .mapValues(v -> v * 10, numberStore("tens")).toStream().to("out"))),
            script(numbersOut("versioned_table_map_values_with_versioned_store", b -> table(b, 100)
                .mapValues(v -> v * 10, versions("tens", INT64, 100)).toStream().to("out"))),
            script(dsl("versioned_table_chain", b -> table(b, 100).filter((k, v) -> v > 2)
                    .mapValues((k, v) -> k + v).filterNot((k, v) -> v.equals("a7")).toStream().to("out", asWords()))
                .input("in", STRING, INT64).output("out", STRING, STRING)),
            script(numbersOut("versioned_table_group_by_count", b -> table(b, 100)
                .groupBy((k, v) -> KeyValue.pair(v % 2 == 0 ? "even" : "odd", v), byNumber())
                .count(numberStore("counts")).toStream().to("out"))),
            script(numbersOut("versioned_table_group_by_sum", b -> table(b, 100)
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                .reduce(Long::sum, (agg, v) -> agg - v, numberStore("totals")).toStream().to("out"))),
            script(numbersOut("versioned_table_filter_then_group_by", b -> table(b, 100).filter((k, v) -> v > 2)
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, v, agg) -> agg - v, numberStore("totals"))
                .toStream().to("out"))),
            script(numbersOut("versioned_table_map_values_then_group_by", b -> table(b, 100).mapValues(v -> v * 10)
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                .reduce(Long::sum, (agg, v) -> agg - v, numberStore("totals")).toStream().to("out"))),
            script(numbersOut("versioned_table_group_by_into_versions", b -> table(b, 100)
                .groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                .reduce(Long::sum, (agg, v) -> agg - v, versions("totals", INT64, 100)).toStream().to("out"))),
            script(numbersOut("versioned_table_to_stream_then_count", b -> table(b, 100).toStream()
                .groupByKey(byNumber()).count(numberStore("counts")).toStream().to("out"))),

            // Aggregates that keep their history.
            script(numbersOut("versioned_count", b -> numbers(b, "in").groupByKey(byNumber())
                .count(versions("counts", INT64, 100)).toStream().to("out"))),
            script(numbersOut("versioned_reduce", b -> numbers(b, "in").groupByKey(byNumber())
                .reduce((agg, v) -> agg * 10 + v, versions("digits", INT64, 100)).toStream().to("out"))),
            script(numbersOut("versioned_aggregate_returning_null", b -> numbers(b, "in").groupByKey(byNumber())
                .aggregate(() -> 0L, (k, v, agg) -> v == 2 ? null : agg + v, versions("sums", INT64, 100)).toStream()
                .to("out"))),
            at(numbersOut("versioned_count_history_at_the_bound", b -> numbers(b, "in").groupByKey(byNumber())
                .count(versions("counts", INT64, 10)).toStream().to("out")).pipe("in", "b", 1L, 40),
                "a", 30, 29, 30, 41, 31),
            script(numbersOut("versioned_count_filter", b -> numbers(b, "in").groupByKey(byNumber())
                .count(versions("counts", INT64, 100)).filter((k, v) -> v % 2 == 0).toStream()
                .to("out", asNumbers()))),
            script(numbersOut("versioned_count_group_by", b -> numbers(b, "in").groupByKey(byNumber())
                .count(versions("counts", INT64, 100)).groupBy((k, v) -> KeyValue.pair("all", v), byNumber())
                .reduce(Long::sum, (agg, v) -> agg - v, numberStore("totals")).toStream().to("out"))),

            // Long inputs.
            history(701).pipe(numbersOut("versioned_table_random", b -> table(b, 15).toStream().to("out"))),
            RandomInput.of(708, 100, 20_000, 120_000).withNullValues(15).pipe(numbersOut(
                "versioned_table_minutes_random", b -> table(b, 100_000).toStream().to("out"))),
            history(702).pipe(numbersOut("versioned_table_filter_random", b -> table(b, 30).filter((k, v) -> v > 4)
                .toStream().to("out", asNumbers()))),
            history(703).pipe(numbersOut("versioned_table_map_values_with_versioned_store_random", b -> table(b, 30)
                .mapValues(v -> v * 10, versions("tens", INT64, 20)).toStream().to("out"))),
            history(704).pipe(numbersOut("versioned_table_group_by_random", b -> table(b, 15)
                .groupBy((k, v) -> KeyValue.pair(v % 2 == 0 ? "even" : "odd", v), byNumber())
                .reduce(Long::sum, (agg, v) -> agg - v, numberStore("totals")).toStream().to("out"))),
            history(705).pipe(numbersOut("versioned_table_filter_then_group_by_random", b -> table(b, 15)
                .filter((k, v) -> v > 3).groupBy((k, v) -> KeyValue.pair(v % 2 == 0 ? "even" : "odd", v), byNumber())
                .count(numberStore("counts")).toStream().to("out"))),
            history(706).pipe(numbersOut("versioned_count_random", b -> numbers(b, "in").groupByKey(byNumber())
                .count(versions("counts", INT64, 15)).toStream().to("out"))),
            history(707).pipe(numbersOut("versioned_aggregate_with_tombstones_random", b -> numbers(b, "in")
                .groupByKey(byNumber())
                .aggregate(() -> 100L, (k, v, agg) -> v == 7 ? null : agg + v, versions("sums", INT64, 15)).toStream()
                .to("out"))));
    }

    private static KTable<String, Long> table(StreamsBuilder b, long history) {
        return b.table("in", Consumed.with(STRING, INT64), versions("store", INT64, history));
    }

    private static RandomInput history(long seed) {
        return RandomInput.of(seed, 80, 4, 25).withNullValues(15);
    }

    private static Case numbersOut(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64).output("out", STRING, INT64);
    }

    /** Inserts, updates and deletes, in order and out of order, repeats, an absent key deleted, a null key. */
    private static Case script(Case test) {
        return test
            .pipe("in", "b", 1L, 10).pipe("in", "a", 5L, 20).pipe("in", "b", 4L, 5).pipe("in", "b", 2L, 15)
            .pipe("in", "a", 7L, 15).pipe("in", "a", 7L, 21).pipe("in", null, 3L, 22).pipe("in", "c", null, 23)
            .pipe("in", "a", null, 24).pipe("in", "a", 6L, 23).pipe("in", "a", null, 25).pipe("in", "a", 3L, 2)
            .pipe("in", "b", 1L, 30).pipe("in", "b", null, 12).pipe("in", "a", 8L, 40).pipe("in", "b", 6L, 30);
    }
}
