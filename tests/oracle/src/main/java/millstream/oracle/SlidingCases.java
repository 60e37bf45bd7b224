package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.at;
import static millstream.oracle.WindowDsl.grouped;
import static millstream.oracle.WindowDsl.inWindows;
import static millstream.oracle.WindowDsl.numbersOf;
import static millstream.oracle.WindowDsl.sliding;
import static millstream.oracle.WindowDsl.windows;

import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Named;

/** Sliding windows: a window for each set of records that are close together. Both ends are inclusive. */
final class SlidingCases {
    private static final long KEEP = 100_000;

    private SlidingCases() {}

    static List<Case> cases() {
        return List.of(
            // Which windows come to be.
            at(collecting("sliding_left_and_right_windows", 100), "a", 20, 25, 23, 40),
            at(collecting("sliding_difference_is_inclusive", 100), "a", 20, 30, 50, 61),
            at(collecting("sliding_difference_and_one_more", 100), "a", 20, 31, 42),
            at(collecting("sliding_equal_timestamps", 100), "a", 20, 20, 25, 25, 20),
            at(collecting("sliding_out_of_order", 100), "a", 40, 20, 30, 25, 35, 15, 45, 31),
            at(collecting("sliding_backwards", 100), "a", 60, 55, 50, 45, 40, 35),
            at(collecting("sliding_gap_is_filled", 100), "a", 20, 35, 27, 28, 42),
            at(collecting("sliding_near_zero", 100), "a", 3, 0, 5, 10, 11, 9, 21),
            at(collecting("sliding_near_zero_in_order", 100), "a", 0, 1, 9, 10, 11, 12),
            at(collecting("sliding_near_zero_backwards", 100), "a", 12, 11, 10, 9, 1, 0),
            at(collecting("sliding_first_record_at_the_difference", 100), "a", 10, 0, 20),
            at(counting("sliding_difference_of_one", 1, 100), "a", 5, 6, 8, 7, 9),
            collecting("sliding_keys_have_windows_of_their_own", 100)
                .pipe("in", "a", 1L, 20).pipe("in", "b", 2L, 22).pipe("in", "a", 3L, 25).pipe("in", "b", 4L, 21)
                .pipe("in", "a", 5L, 22),
            collecting("sliding_skips_null_keys_and_values", 0)
                .pipe("in", "a", 1L, 20).pipe("in", "a", null, 22).pipe("in", null, 3L, 90).pipe("in", "a", null, 95)
                .pipe("in", "a", 5L, 21),
            collecting("sliding_headers", 0)
                .pipe("in", "a", 1L, 20, "h", "1").pipe("in", "a", 2L, 25, "h", "2").pipe("in", "a", 3L, 23, "h", "3"),

            // Late records: one window may be closed while the other is open.
            at(counting("sliding_late_at_the_bound", 10, 0), "a", 20, 30, 20, 31, 20, 21),
            at(counting("sliding_late_at_the_bound_of_grace", 10, 5), "a", 20, 30, 25, 24, 35, 20, 36, 20, 21),
            at(counting("sliding_left_window_closed_right_one_open", 10, 2), "a", 20, 33, 24, 30, 31, 22),
            at(counting("sliding_late_near_zero", 10, 0), "a", 4, 10, 3, 11, 3, 12, 0, 1, 2),
            at(counting("sliding_jump_of_time", 10, 5), "a", 20, 1_000_000, 22, 999_995, 999_985, 999_984),

            // Reduce, aggregate, stores and names.
            updates(numbersIn("sliding_reduce", b -> grouped(b).windowedBy(sliding(10, 5))
                .reduce((agg, v) -> agg + v, windows("sums", INT64, KEEP)).toStream().to("out"))),
            updates(numbersIn("sliding_reduce_uncached", b -> grouped(b).windowedBy(sliding(10, 5))
                .reduce((agg, v) -> agg + v, windows("sums", INT64, KEEP).withCachingDisabled())
                .toStream().to("out"))),
            updates(numbersIn("sliding_aggregate_named", b -> grouped(b).windowedBy(sliding(10, 5))
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, Named.as("total"), windows("sums", INT64, KEEP))
                .toStream().to("out"))),
            updates(numbersIn("sliding_count_unnamed_store", b -> grouped(b).windowedBy(sliding(10, 5)).count()
                .toStream().to("out", numbersOf(inWindows(10))))),
            updates(numbersIn("sliding_max", b -> grouped(b).windowedBy(sliding(10, 5))
                .aggregate(() -> null, (k, v, agg) -> agg == null ? v : Long.valueOf(Math.max(agg, v)),
                    windows("greatest", INT64, KEEP))
                .toStream().to("out"))),
            dsl("sliding_count_of_rekeyed_stream", b -> words(b, "words").groupBy((k, v) -> v, byWord())
                    .windowedBy(sliding(10, 0)).count().toStream().to("out", numbersOf(inWindows(10))))
                .input("words", STRING, STRING).output("out", inWindows(10), INT64)
                .pipe("words", "k", "x", 11).pipe("words", "l", "x", 19).pipe("words", "k", "y", 13)
                .pipe("words", "k", null, 14).pipe("words", null, "x", 20).pipe("words", "k", "y", 19),
            refused("sliding_retention_too_short_is_refused", b -> grouped(b).windowedBy(sliding(10, 5))
                .count(windows("counts", INT64, 24))),
            refused("sliding_negative_difference_is_refused", b -> grouped(b).windowedBy(sliding(-1, 5)).count()),
            refused("sliding_negative_grace_is_refused", b -> grouped(b).windowedBy(sliding(10, -1)).count()),

            // Long inputs.
            RandomInput.of(201, 60, 5, 20).pipe(collecting("sliding_collect_random", 20)),
            RandomInput.of(202, 60, 5, 20).pipe(collecting("sliding_collect_uncached_random", 20, false)),
            RandomInput.of(203, 60, 5, 20).pipe(counting("sliding_count_random", 10, 0)),
            RandomInput.of(204, 60, 3, 25).pipe(counting("sliding_count_random_with_grace", 10, 8)),
            RandomInput.of(205, 50, 15, 40).pipe(counting("sliding_count_random_sparse", 10, 15)),
            RandomInput.of(206, 80, 1, 6).pipe(counting("sliding_count_random_dense", 4, 3)),
            RandomInput.of(207, 60, 4, 20).pipe(numbersIn("sliding_reduce_uncached_random", b -> grouped(b)
                .windowedBy(sliding(10, 10)).reduce((agg, v) -> agg * 3 % 1009 + v,
                    windows("mixed", INT64, KEEP).withCachingDisabled())
                .toStream().to("out"))),
            RandomInput.of(209, 60, 20_000, 90_000).pipe(dsl("sliding_minutes_random", b -> grouped(b)
                    .windowedBy(sliding(60_000, 30_000)).count(windows("counts", INT64, 10_000_000))
                    .toStream().to("out"))
                .input("in", STRING, INT64).output("out", inWindows(60_000), INT64)),
            RandomInput.of(210, 80, 5, 25).pipe(numbersIn("sliding_default_retention_uncached_random", b -> grouped(b)
                .windowedBy(sliding(10, 5)).count(windows("counts", INT64).withCachingDisabled())
                .toStream().to("out"))),
            RandomInput.of(208, 60, 4, 20).withoutNulls().pipe(numbersIn("sliding_sum_random", b -> grouped(b)
                .windowedBy(sliding(10, 5)).aggregate(() -> 0L, (k, v, agg) -> agg + v, windows("sums", INT64, KEEP))
                .toStream().to("out"))));
    }

    /** The records of each window of ten milliseconds, in the order in which they were aggregated. */
    private static Case collecting(String name, long grace) {
        return collecting(name, grace, true);
    }

    private static Case collecting(String name, long grace, boolean cached) {
        return dsl(name, b -> grouped(b).windowedBy(sliding(10, grace))
                .aggregate(() -> "", (k, v, agg) -> agg + v + ';', cached ? windows("log", STRING, KEEP)
                    : windows("log", STRING, KEEP).withCachingDisabled())
                .toStream().to("out"))
            .input("in", STRING, INT64).output("out", inWindows(10), STRING);
    }

    private static Case counting(String name, long difference, long grace) {
        return dsl(name, b -> grouped(b).windowedBy(sliding(difference, grace)).count(windows("counts", INT64, KEEP))
                .toStream().to("out"))
            .input("in", STRING, INT64).output("out", inWindows(difference), INT64);
    }

    private static Case numbersIn(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64).output("out", inWindows(10), INT64);
    }

    private static Case refused(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64);
    }

    private static Case updates(Case test) {
        return test
            .pipe("in", "a", 1L, 15).pipe("in", "b", 2L, 17).pipe("in", "a", 4L, 22).pipe("in", "a", 5L, 13)
            .pipe("in", "b", 7L, 17).pipe("in", "a", 6L, 24).pipe("in", "a", 3L, 24).pipe("in", "a", 2L, 33)
            .pipe("in", "b", 1L, 18).pipe("in", "b", 9L, 29).pipe("in", "a", 8L, 20);
    }
}
