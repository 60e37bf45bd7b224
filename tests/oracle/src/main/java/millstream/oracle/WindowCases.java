package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.at;
import static millstream.oracle.WindowDsl.grouped;
import static millstream.oracle.WindowDsl.hopping;
import static millstream.oracle.WindowDsl.inWindows;
import static millstream.oracle.WindowDsl.numbersOf;
import static millstream.oracle.WindowDsl.tumbling;
import static millstream.oracle.WindowDsl.windows;

import java.time.Instant;
import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.kstream.Window;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.Windows;
import org.apache.kafka.streams.state.KeyValueStore;

/** Tumbling, hopping and unlimited windows with count, reduce and aggregate. */
final class WindowCases {
    private static final long KEEP = 100_000;

    private WindowCases() {}

    static List<Case> cases() {
        return List.of(
            // The end of a window, and the end of its grace.
            at(tens("window_end_is_exclusive", tumbling(10, 0)), "a", 0, 9, 10, 19, 20, 30),
            at(tens("window_closes_at_its_end_without_grace", tumbling(10, 0)), "a", 5, 9, 8, 10, 9, 19, 9, 20, 19),
            at(tens("window_closes_when_grace_is_over", tumbling(10, 5)), "a", 5, 14, 9, 0, 15, 9, 0, 24, 15, 25, 19),
            at(tens("window_grace_of_one", tumbling(10, 1)), "a", 9, 10, 9, 11, 9, 20, 10, 21, 19),
            at(tens("window_grace_longer_than_the_window", tumbling(10, 25)), "a", 3, 34, 4, 35, 5, 10, 44, 12, 45, 19),
            at(tens("window_updates_out_of_order", tumbling(10, 100)), "a", 25, 3, 14, 29, 7, 3, 0, 12),
            at(tens("window_equal_timestamps", tumbling(10, 0)), "a", 7, 7, 7, 10, 10, 7),
            at(tens("window_jump_of_time", tumbling(10, 5)), "a", 3, 1_000_000, 999_999, 3, 1_000_004, 1_000_015),
            tens("window_time_of_one_key_closes_another", tumbling(10, 0))
                .pipe("in", "a", 1L, 5).pipe("in", "b", 2L, 12).pipe("in", "a", 3L, 6).pipe("in", "c", 4L, 11)
                .pipe("in", "a", 5L, 13),
            tens("window_counts_null_values_and_skips_null_keys", tumbling(10, 0))
                .pipe("in", "a", null, 5).pipe("in", null, 1L, 6).pipe("in", null, 1L, 50).pipe("in", "a", 2L, 7)
                .pipe("in", "b", null, 10).pipe("in", "a", null, 8),
            tens("window_headers", tumbling(10, 5))
                .pipe("in", "a", 1L, 5, "h", "1").pipe("in", "a", 2L, 4, "h", "2", "i", null).pipe("in", "a", 3L, 20)
                .pipe("in", "a", 4L, 3, "h", "late"),

            // Hopping windows.
            at(hops("window_hopping", hopping(10, 5, 0)), "a", 12, 3, 0, 4, 5, 14, 15, 25),
            at(hops("window_hopping_near_zero", hopping(10, 3, 100)), "a", 0, 1, 2, 3, 8, 9, 10, 11, 12, 13),
            at(hops("window_hopping_by_one", hopping(10, 1, 0)), "a", 0, 5, 11, 3),
            at(hops("window_hopping_uneven", hopping(10, 7, 3)), "a", 6, 7, 9, 10, 13, 14, 16, 17, 6, 20, 13),
            at(hops("window_hopping_partly_late", hopping(10, 5, 2)), "a", 7, 12, 7, 16, 7, 17, 7, 9, 22, 12, 14),
            at(hops("window_hopping_by_its_size", hopping(10, 10, 0)), "a", 9, 10, 9, 20),
            at(hops("window_hopping_with_grace_at_each_end", hopping(10, 5, 5)), "a", 4, 14, 4, 15, 4, 5, 19, 5, 20, 5),

            // Unlimited windows.
            at(forever("window_unlimited", UnlimitedWindows.of()), "a", 5, 0, 1_000_000_000_000L, 5),
            at(forever("window_unlimited_from_a_start", UnlimitedWindows.of().startOn(Instant.ofEpochMilli(10))),
                "a", 9, 10, 5, 11, 9),
            RandomInput.of(101, 60, 5, 40).pipe(forever("window_unlimited_random",
                UnlimitedWindows.of().startOn(Instant.ofEpochMilli(30)))),

            // Reduce and aggregate.
            updates(numbersIn("window_reduce", 10, b -> grouped(b).windowedBy(tumbling(10, 5))
                .reduce((agg, v) -> agg * 10 + v, windows("digits", INT64)).toStream().to("out"))),
            updates(numbersIn("window_reduce_uncached", 10, b -> grouped(b).windowedBy(tumbling(10, 5))
                .reduce((agg, v) -> agg * 10 + v, windows("digits", INT64).withCachingDisabled())
                .toStream().to("out"))),
            random("window_reduce_of_null_values", b -> grouped(b).windowedBy(tumbling(10, 5))
                .reduce((agg, v) -> v == null ? null : agg + v, windows("sums", INT64)).toStream().to("out"))
                .pipe("in", "a", null, 1).pipe("in", "a", 2L, 2).pipe("in", "a", 3L, 3).pipe("in", "a", null, 4)
                .pipe("in", "a", 5L, 5),
            updates(wordsIn("window_aggregate", 10, b -> grouped(b).windowedBy(tumbling(10, 5))
                .aggregate(() -> "", (k, v, agg) -> agg + k + v + ";", windows("log", STRING)).toStream().to("out"))),
            updates(wordsIn("window_aggregate_uncached", 10, b -> grouped(b).windowedBy(hopping(10, 5, 5))
                .aggregate(() -> "", (k, v, agg) -> agg + k + v + ";", windows("log", STRING).withCachingDisabled())
                .toStream().to("out"))),
            updates(numbersIn("window_aggregate_returning_null", 10, b -> grouped(b).windowedBy(tumbling(10, 5))
                .aggregate(() -> 0L, (k, v, agg) -> v % 3 == 0 ? null : agg + v, windows("sums", INT64))
                .toStream().to("out"))),
            updates(numbersIn("window_aggregate_returning_null_uncached", 10, b -> grouped(b)
                .windowedBy(tumbling(10, 5))
                .aggregate(() -> 0L, (k, v, agg) -> v % 3 == 0 ? null : agg + v,
                    windows("sums", INT64).withCachingDisabled())
                .toStream().to("out"))),
            updates(numbersIn("window_aggregate_from_null_initializer", 10, b -> grouped(b).windowedBy(tumbling(10, 5))
                .aggregate(() -> null, (k, v, agg) -> agg == null ? v : agg - v, windows("sums", INT64))
                .toStream().to("out"))),
            at(numbersIn("window_aggregate_raising_fails", 10, b -> grouped(b).windowedBy(tumbling(10, 5))
                .aggregate(() -> 0L, (k, v, agg) -> 10 / (v - 3), windows("sums", INT64)).toStream().to("out"))
                .input("in", STRING, INT64), "a", 1, 2, 3),
            updates(numbersIn("window_sum", 10, b -> grouped(b).windowedBy(tumbling(10, 5))
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, windows("sums", INT64)).toStream().to("out"))),
            updates(numbersIn("window_min", 10, b -> grouped(b).windowedBy(hopping(10, 5, 5))
                .aggregate(() -> null, (k, v, agg) -> agg == null ? v : Long.valueOf(Math.min(agg, v)),
                    windows("least", INT64))
                .toStream().to("out"))),
            updates(numbersIn("window_max", 10, b -> grouped(b).windowedBy(hopping(10, 5, 5))
                .aggregate(() -> null, (k, v, agg) -> agg == null ? v : Long.valueOf(Math.max(agg, v)),
                    windows("greatest", INT64))
                .toStream().to("out"))),

            // Names, stores, topologies.
            updates(numbersIn("window_count_unnamed_store", 10, b -> grouped(b).windowedBy(tumbling(10, 5)).count()
                .toStream().to("out", numbersOf(inWindows(10))))),
            updates(numbersIn("window_count_named", 10, b -> grouped(b).windowedBy(tumbling(10, 5))
                .count(Named.as("counter")).toStream(Named.as("changes")).to("out", numbersOf(inWindows(10))))),
            updates(numbersIn("window_reduce_unnamed_store", 10, b -> grouped(b).windowedBy(tumbling(10, 5))
                .reduce(Long::sum).toStream().to("out", numbersOf(inWindows(10))))),
            updates(numbersIn("window_aggregate_named", 10, b -> grouped(b).windowedBy(tumbling(10, 5))
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, Named.as("total"), windows("sums", INT64))
                .toStream().to("out"))),
            updates(numbersIn("window_count_unlogged", 10, b -> grouped(b).windowedBy(tumbling(10, 5))
                .count(windows("counts", INT64).withLoggingDisabled()).toStream().to("out"))),
            updates(dsl("window_count_nobody_reads", b -> grouped(b).windowedBy(tumbling(10, 5))
                .count(windows("counts", INT64)))),
            numbersIn("window_count_of_rekeyed_stream", 10, b -> words(b, "words").groupBy((k, v) -> v, byWord())
                    .windowedBy(tumbling(10, 0)).count().toStream().to("out", numbersOf(inWindows(10))))
                .input("words", STRING, STRING)
                .pipe("words", "k", "x", 1).pipe("words", "l", "x", 9).pipe("words", "k", "y", 3)
                .pipe("words", "k", null, 4).pipe("words", null, "x", 10).pipe("words", "k", "y", 9),
            numbersIn("window_count_of_named_group", 10, b -> words(b, "words")
                    .groupBy((k, v) -> v, Grouped.with("by-word", STRING, STRING))
                    .windowedBy(tumbling(10, 0)).count(Named.as("counter"), windows("counts", INT64))
                    .toStream().to("out"))
                .input("words", STRING, STRING).pipe("words", "k", "x", 1).pipe("words", "l", "x", 9),
            updates(numbersIn("window_two_aggregates_of_one_group", 10, b -> {
                TimeWindowedKStream<String, Long> windowed = grouped(b).windowedBy(tumbling(10, 5));
                windowed.count(windows("counts", INT64)).toStream().to("out");
                windowed.reduce(Long::sum, windows("sums", INT64)).toStream().to("sums-out");
            }))
                .output("sums-out", inWindows(10), INT64),
            updates(numbersIn("window_two_sizes_of_one_group", 10, b -> {
                var group = grouped(b);
                group.windowedBy(tumbling(10, 0)).count(windows("short", INT64)).toStream().to("out");
                group.windowedBy(tumbling(30, 0)).count(windows("long", INT64)).toStream().to("long-out");
            }))
                .output("long-out", inWindows(30), INT64),
            updates(numbersIn("window_beside_a_plain_count", 10, b -> {
                var group = grouped(b);
                group.count(numberStore("all")).toStream().to("all-out");
                group.windowedBy(tumbling(10, 5)).count(windows("counts", INT64)).toStream().to("out");
            }))
                .output("all-out", STRING, INT64),
            updates(dsl("window_to_stream_with_new_key", b -> counted(b)
                    .toStream((k, v) -> k.key() + '@' + k.window().start()).to("out", asNumbers())))
                .output("out", STRING, INT64),
            updates(numbersIn("window_filter", 10, b -> counted(b).filter((k, v) -> v % 2 == 0)
                .toStream().to("out", numbersOf(inWindows(10))))),
            updates(wordsIn("window_map_values_with_key", 10, b -> counted(b)
                .mapValues((k, v) -> k.key() + k.window().start() + '=' + v)
                .toStream().to("out", Produced.with(inWindows(10), STRING)))),
            updates(numbersIn("window_map_values_with_store", 10, b -> counted(b)
                .mapValues(v -> v * 10, Materialized.<Windowed<String>, Long, KeyValueStore<Bytes, byte[]>>as("tens")
                    .withKeySerde(inWindows(10)).withValueSerde(INT64))
                .toStream().to("out"))),
            updates(dsl("window_table_group_by_key", b -> counted(b)
                    .groupBy((k, v) -> KeyValue.pair(k.key(), v), byNumber())
                    .reduce(Long::sum, (agg, v) -> agg - v, numberStore("totals")).toStream().to("out")))
                .output("out", STRING, INT64),
            updates(dsl("window_table_group_by_window", b -> counted(b)
                    .groupBy((k, v) -> KeyValue.pair("from " + k.window().start(), v), byNumber())
                    .count(numberStore("keys")).toStream().to("out")))
                .output("out", STRING, INT64),
            RandomInput.of(102, 60, 4, 20).pipe(numbersIn("window_of_window_results_random", 30, b -> counted(b)
                    .toStream((k, v) -> k.key()).groupByKey(byNumber()).windowedBy(tumbling(30, 10))
                    .reduce(Math::max, windows("greatest", INT64)).toStream().to("out"))
                .input("in", STRING, INT64)),
            updates(numbersIn("window_collapses_updates_of_one_record", 10, b -> numbers(b, "in")
                .flatMapValues(v -> List.of(v, v, v)).groupByKey(byNumber()).windowedBy(hopping(10, 5, 5))
                .reduce(Long::sum, windows("sums", INT64)).toStream().to("out"))),
            updates(numbersIn("window_uncached_shows_every_update", 10, b -> numbers(b, "in")
                .flatMapValues(v -> List.of(v, v, v)).groupByKey(byNumber()).windowedBy(hopping(10, 5, 5))
                .reduce(Long::sum, windows("sums", INT64).withCachingDisabled()).toStream().to("out"))),

            // Retention: rows whose window starts at or before the store's time less the retention are gone.
            at(tens("window_retention_hides_rows_at_the_bound", tumbling(10, 0)), "a", 5, 15, 25),
            at(kept("window_retention_shows_rows_above_the_bound", 11), "a", 5, 15, 25),
            at(kept("window_retention_hides_older_rows", 20), "a", 5, 15, 25, 35),
            at(kept("window_retention_keeps_everything", KEEP), "a", 5, 15, 25, 35, 95),
            at(numbersIn("window_retention_uncached", 10, b -> grouped(b).windowedBy(hopping(10, 5, 0))
                .count(windows("counts", INT64, 15).withCachingDisabled()).toStream().to("out"))
                .input("in", STRING, INT64), "a", 5, 15, 25, 26),
            refused("window_retention_below_size_is_refused", b -> grouped(b).windowedBy(tumbling(10, 0))
                .count(windows("counts", INT64, 9))),
            refused("window_retention_below_size_and_grace_is_refused", b -> grouped(b).windowedBy(tumbling(10, 5))
                .count(windows("counts", INT64, 14))),
            refused("window_negative_grace_is_refused", b -> grouped(b).windowedBy(tumbling(10, -1)).count()),
            refused("window_size_of_zero_is_refused", b -> grouped(b).windowedBy(tumbling(0, 0)).count()),
            refused("window_advance_above_size_is_refused", b -> grouped(b).windowedBy(hopping(10, 11, 0)).count()),
            refused("window_advance_of_zero_is_refused", b -> grouped(b).windowedBy(hopping(10, 0, 0)).count()),

            // Long inputs.
            RandomInput.of(1, 80, 4, 20).pipe(tens("window_tumbling_random", tumbling(10, 0))),
            RandomInput.of(2, 80, 4, 20).pipe(tens("window_tumbling_random_with_grace", tumbling(10, 7))),
            RandomInput.of(3, 100, 3, 40).pipe(tens("window_tumbling_random_much_disorder", tumbling(10, 15))),
            RandomInput.of(4, 60, 25, 60).pipe(tens("window_tumbling_random_sparse", tumbling(10, 30))),
            RandomInput.of(5, 80, 4, 20).pipe(hops("window_hopping_random", hopping(10, 5, 0))),
            RandomInput.of(6, 80, 4, 20).pipe(hops("window_hopping_random_with_grace", hopping(10, 3, 6))),
            RandomInput.of(7, 60, 3, 15).pipe(hops("window_hopping_random_by_two", hopping(10, 2, 4))),
            RandomInput.of(8, 80, 4, 20).pipe(random("window_count_uncached_random", b -> grouped(b)
                .windowedBy(hopping(10, 4, 5)).count(windows("counts", INT64).withCachingDisabled())
                .toStream().to("out"))),
            RandomInput.of(9, 80, 4, 20).withNullValues(0).pipe(random("window_reduce_random", b -> grouped(b)
                .windowedBy(tumbling(10, 5)).reduce((agg, v) -> agg * 3 % 1009 + v, windows("mixed", INT64))
                .toStream().to("out"))),
            RandomInput.of(10, 80, 4, 20).withNullValues(0).pipe(random("window_reduce_uncached_random", b -> grouped(b)
                .windowedBy(hopping(10, 5, 5))
                .reduce((agg, v) -> agg * 3 % 1009 + v, windows("mixed", INT64).withCachingDisabled())
                .toStream().to("out"))),
            RandomInput.of(11, 100, 4, 30).pipe(random("window_aggregate_with_tombstones_random", b -> grouped(b)
                .windowedBy(tumbling(10, 10))
                .aggregate(() -> 100L, (k, v, agg) -> v == null || v == 7 ? null : agg + v, windows("sums", INT64))
                .toStream().to("out"))),
            RandomInput.of(12, 100, 4, 30).pipe(random("window_aggregate_with_tombstones_uncached_random", b ->
                grouped(b).windowedBy(hopping(10, 5, 10))
                .aggregate(() -> 100L, (k, v, agg) -> v == null || v == 7 ? null : agg + v,
                    windows("sums", INT64).withCachingDisabled())
                .toStream().to("out"))),
            RandomInput.of(13, 80, 4, 20).pipe(random("window_kept_long_random", b -> grouped(b)
                .windowedBy(tumbling(10, 5)).count(windows("counts", INT64, KEEP)).toStream().to("out"))),
            RandomInput.of(14, 80, 4, 25).withoutNulls().pipe(random("window_sum_random", b -> grouped(b)
                .windowedBy(hopping(10, 5, 10)).aggregate(() -> 0L, (k, v, agg) -> agg + v, windows("sums", INT64))
                .toStream().to("out"))),
            RandomInput.of(15, 80, 4, 25).withoutNulls().pipe(random("window_max_uncached_random", b -> grouped(b)
                .windowedBy(tumbling(10, 10))
                .aggregate(() -> null, (k, v, agg) -> agg == null ? v : Long.valueOf(Math.max(agg, v)),
                    windows("greatest", INT64).withCachingDisabled())
                .toStream().to("out"))),
            RandomInput.of(16, 80, 4, 20).pipe(random("window_filter_random", b -> grouped(b)
                .windowedBy(tumbling(10, 5)).count(windows("counts", INT64)).filter((k, v) -> v > 2)
                .toStream().to("out", numbersOf(inWindows(10))))),
            RandomInput.of(18, 80, 20_000, 120_000).pipe(dsl("window_minutes_random", b -> grouped(b)
                    .windowedBy(hopping(60_000, 20_000, 30_000)).count(windows("counts", INT64)).toStream().to("out"))
                .input("in", STRING, INT64).output("out", inWindows(60_000), INT64)),
            RandomInput.of(19, 80, 20_000, 120_000).pipe(dsl("window_minutes_uncached_random", b -> grouped(b)
                    .windowedBy(tumbling(60_000, 45_000))
                    .count(windows("counts", INT64, 200_000).withCachingDisabled()).toStream().to("out"))
                .input("in", STRING, INT64).output("out", inWindows(60_000), INT64)),
            RandomInput.of(17, 120, 4, 20).pipe(dsl("window_table_group_by_random", b -> grouped(b)
                    .windowedBy(hopping(10, 5, 5)).count(windows("counts", INT64))
                    .groupBy((k, v) -> KeyValue.pair(k.key(), v), byNumber())
                    .reduce(Long::sum, (agg, v) -> agg - v, numberStore("totals")).toStream().to("out"))
                .input("in", STRING, INT64).output("out", STRING, INT64)));
    }

    private static KTable<Windowed<String>, Long> counted(StreamsBuilder b) {
        return grouped(b).windowedBy(tumbling(10, 5)).count(windows("counts", INT64));
    }

    /** A count in tumbling windows of ten milliseconds. */
    private static Case tens(String name, TimeWindows windows) {
        return random(name, b -> grouped(b).windowedBy(windows).count(windows("counts", INT64)).toStream().to("out"));
    }

    /** The same in hopping windows of ten milliseconds, for long enough to see all of them. */
    private static Case hops(String name, TimeWindows windows) {
        return random(name, b -> grouped(b).windowedBy(windows).count(windows("counts", INT64, KEEP))
            .toStream().to("out"));
    }

    private static Case kept(String name, long retention) {
        return random(name, b -> grouped(b).windowedBy(tumbling(10, 0)).count(windows("counts", INT64, retention))
            .toStream().to("out"));
    }

    private static <W extends Window> Case forever(String name, Windows<W> windows) {
        return dsl(name, b -> grouped(b).windowedBy(windows).count(windows("counts", INT64))
                .toStream().to("out", numbersOf(inWindows(Long.MAX_VALUE))))
            .input("in", STRING, INT64).output("out", inWindows(Long.MAX_VALUE), INT64);
    }

    private static Case random(String name, Consumer<StreamsBuilder> body) {
        return numbersIn(name, 10, body).input("in", STRING, INT64);
    }

    private static Case numbersIn(String name, long size, Consumer<StreamsBuilder> body) {
        return dsl(name, body).output("out", inWindows(size), INT64);
    }

    private static Case wordsIn(String name, long size, Consumer<StreamsBuilder> body) {
        return dsl(name, body).output("out", inWindows(size), STRING);
    }

    private static Case refused(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64);
    }

    /** Several windows of two keys, out of order, equal times, a null key, a late record. */
    private static Case updates(Case test) {
        return test.input("in", STRING, INT64)
            .pipe("in", "a", 1L, 5).pipe("in", "b", 2L, 7).pipe("in", "a", 4L, 12).pipe("in", "a", 5L, 3)
            .pipe("in", null, 8L, 90).pipe("in", "b", 7L, 7).pipe("in", "a", 6L, 14).pipe("in", "a", 3L, 14)
            .pipe("in", "a", 2L, 23).pipe("in", "b", 1L, 8).pipe("in", "b", 9L, 19).pipe("in", "a", 8L, 10);
    }
}
