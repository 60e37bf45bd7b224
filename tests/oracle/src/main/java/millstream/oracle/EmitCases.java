package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.at;
import static millstream.oracle.WindowDsl.gap;
import static millstream.oracle.WindowDsl.grouped;
import static millstream.oracle.WindowDsl.hopping;
import static millstream.oracle.WindowDsl.inSessions;
import static millstream.oracle.WindowDsl.inWindows;
import static millstream.oracle.WindowDsl.numbersOf;
import static millstream.oracle.WindowDsl.sessions;
import static millstream.oracle.WindowDsl.sliding;
import static millstream.oracle.WindowDsl.tumbling;
import static millstream.oracle.WindowDsl.windows;

import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;

/**
 * Windows that are emitted once, when they close. All stores keep their windows for long: with the default
 * retention Kafka forgets some of them before it emits them.
 */
final class EmitCases {
    private static final long KEEP = 100_000;
    private static final EmitStrategy ON_CLOSE = EmitStrategy.onWindowClose();

    private EmitCases() {}

    static List<Case> cases() {
        return List.of(
            // Time windows close when stream time less grace is their end.
            at(tens("emit_tumbling_at_its_end", tumbling(10, 0)), "a", 5, 9, 10, 19, 20),
            at(tens("emit_tumbling_when_grace_is_over", tumbling(10, 5)), "a", 5, 10, 14, 9, 15, 9, 24, 25),
            at(tens("emit_tumbling_several_at_once", tumbling(10, 20)), "a", 5, 15, 25, 3, 60, 39, 100),
            at(tens("emit_tumbling_near_zero", tumbling(10, 0)), "a", 0, 0, 9, 10),
            at(tens("emit_tumbling_jump_of_time", tumbling(10, 5)), "a", 5, 15, 26, 90_000, 90_014, 90_015),
            at(tens("emit_hopping", hopping(10, 5, 0)), "a", 3, 7, 9, 10, 14, 15, 25, 40),
            at(tens("emit_hopping_partly_late", hopping(10, 5, 2)), "a", 7, 12, 7, 16, 7, 17, 7, 22, 40),
            tens("emit_keys_in_order_of_windows", tumbling(10, 5))
                .pipe("in", "b", 1L, 12).pipe("in", "a", 2L, 12).pipe("in", "c", 3L, 3).pipe("in", "a", 4L, 4)
                .pipe("in", "b", 5L, 2).pipe("in", "c", 6L, 15).pipe("in", "d", 7L, 60),
            tens("emit_time_of_one_key_closes_another", tumbling(10, 0))
                .pipe("in", "a", 1L, 5).pipe("in", "b", 2L, 8).pipe("in", "c", 3L, 10).pipe("in", "b", 4L, 25)
                .pipe("in", null, 5L, 99).pipe("in", "c", null, 30),
            tens("emit_headers_of_the_closing_record", tumbling(10, 0))
                .pipe("in", "a", 1L, 5, "h", "1").pipe("in", "b", 2L, 8, "h", "2").pipe("in", "c", 3L, 10, "h", "3"),
            tens("emit_nothing_by_wall_clock", tumbling(10, 0))
                .pipe("in", "a", 1L, 5).wallClock(100_000).pipe("in", "a", 2L, 6).wallClock(10).pipe("in", "a", 3L, 12),
            at(inTens("emit_reduce", b -> grouped(b).windowedBy(tumbling(10, 5)).emitStrategy(ON_CLOSE)
                .reduce((agg, v) -> agg * 10 + v, windows("digits", INT64, KEEP)).toStream().to("out")),
                "a", 1, 11, 5, 14, 15, 8, 30),
            at(inTens("emit_aggregate_returning_null", b -> grouped(b)
                .windowedBy(tumbling(10, 0)).emitStrategy(ON_CLOSE)
                .aggregate(() -> 0L, (k, v, agg) -> v % 3 == 0 ? null : agg + v, windows("sums", INT64, KEEP))
                .toStream().to("out")),
                "a", 1, 2, 3, 11, 21, 22, 31, 33, 40),
            at(inTens("emit_count_uncached", b -> grouped(b).windowedBy(tumbling(10, 5)).emitStrategy(ON_CLOSE)
                .count(windows("counts", INT64, KEEP).withCachingDisabled()).toStream().to("out")),
                "a", 1, 11, 5, 14, 15, 8, 30),
            at(inTens("emit_on_update_is_the_default", b -> grouped(b).windowedBy(tumbling(10, 5))
                .emitStrategy(EmitStrategy.onWindowUpdate())
                .count(windows("counts", INT64, KEEP)).toStream().to("out")),
                "a", 1, 11, 5, 14, 15, 8, 30),
            at(inTens("emit_count_named", b -> grouped(b).windowedBy(tumbling(10, 5)).emitStrategy(ON_CLOSE)
                .count(Named.as("counter"), windows("counts", INT64, KEEP)).toStream().to("out")), "a", 1, 11, 15),
            at(inTens("emit_count_unnamed_store", b -> grouped(b).windowedBy(tumbling(10, 5)).emitStrategy(ON_CLOSE)
                .count().toStream().to("out", numbersOf(inWindows(10)))), "a", 1, 2, 11, 14),
            at(inTens("emit_then_filter", b -> grouped(b).windowedBy(tumbling(10, 0)).emitStrategy(ON_CLOSE)
                .count(windows("counts", INT64, KEEP)).filter((k, v) -> v > 1)
                .toStream().to("out", numbersOf(inWindows(10)))), "a", 1, 2, 11, 21, 22, 31),
            at(inTens("emit_then_map_values", b -> grouped(b).windowedBy(tumbling(10, 0)).emitStrategy(ON_CLOSE)
                .count(windows("counts", INT64, KEEP)).mapValues(v -> v * 10)
                .toStream().to("out", numbersOf(inWindows(10)))), "a", 1, 2, 11, 21, 22, 31),
            dsl("emit_of_rekeyed_stream", b -> words(b, "words").groupBy((k, v) -> v, byWord())
                    .windowedBy(tumbling(10, 0)).emitStrategy(ON_CLOSE).count(windows("counts", INT64, KEEP))
                    .toStream().to("out"))
                .input("words", STRING, STRING).output("out", inWindows(10), INT64)
                .pipe("words", "k", "x", 1).pipe("words", "l", "x", 9).pipe("words", "k", "y", 3)
                .pipe("words", "k", null, 44).pipe("words", null, "x", 10).pipe("words", "k", "y", 29),
            dsl("emit_of_unlimited_windows_is_refused", b -> grouped(b).windowedBy(UnlimitedWindows.of())
                .emitStrategy(ON_CLOSE).count()).input("in", STRING, INT64),

            // Sliding windows close one millisecond later: their end is inclusive.
            at(slides("emit_sliding_after_its_end", sliding(10, 0)), "a", 20, 21, 30, 31, 32, 43),
            at(slides("emit_sliding_when_grace_is_over", sliding(10, 5)), "a", 20, 25, 26, 20, 35, 36, 60),
            at(slides("emit_sliding_near_zero", sliding(10, 0)), "a", 0, 4, 10, 11, 12, 15, 22, 40),
            at(slides("emit_sliding_out_of_order", sliding(10, 20)), "a", 40, 20, 30, 25, 35, 60, 61, 100),

            // Sessions close when stream time less grace and gap is past their end.
            at(gaps("emit_session_after_its_gap", gap(5, 0)), "a", 10, 12, 17, 22, 23, 28, 29, 35),
            at(gaps("emit_session_when_grace_is_over", gap(5, 3)), "a", 10, 18, 19, 13, 27, 28, 60),
            at(gaps("emit_session_merged_before_it_closes", gap(5, 20)), "a", 10, 20, 15, 45, 46, 80),
            gaps("emit_session_of_several_keys", gap(5, 0))
                .pipe("in", "b", 1L, 10).pipe("in", "a", 2L, 10).pipe("in", "a", 3L, 8).pipe("in", "c", 4L, 12)
                .pipe("in", "b", 5L, 14).pipe("in", "d", 6L, 40).pipe("in", null, 7L, 99).pipe("in", "d", 8L, 50),
            gaps("emit_session_closed_by_another_key", gap(5, 0))
                .pipe("in", "a", 1L, 10).pipe("in", "b", 2L, 15).pipe("in", "b", 3L, 16).pipe("in", "c", 4L, 21)
                .pipe("in", "c", 5L, 22),
            at(inGaps("emit_session_reduce", b -> grouped(b).windowedBy(gap(5, 0)).emitStrategy(ON_CLOSE)
                .reduce((agg, v) -> agg + v, sessions("sums", INT64, KEEP)).toStream().to("out")),
                "a", 10, 12, 20, 26, 40),
            at(inGaps("emit_session_unnamed_store", b -> grouped(b).windowedBy(gap(5, 0)).emitStrategy(ON_CLOSE)
                .count().toStream().to("out", numbersOf(inSessions()))), "a", 10, 12, 14),

            // Long inputs.
            RandomInput.of(401, 80, 4, 20).pipe(tens("emit_tumbling_random", tumbling(10, 0))),
            RandomInput.of(402, 80, 4, 20).pipe(tens("emit_tumbling_random_with_grace", tumbling(10, 7))),
            RandomInput.of(403, 80, 4, 20).pipe(tens("emit_hopping_random", hopping(10, 5, 5))),
            RandomInput.of(404, 60, 20, 60).pipe(tens("emit_hopping_random_sparse", hopping(10, 3, 15))),
            RandomInput.of(405, 60, 4, 20).pipe(slides("emit_sliding_random", sliding(10, 0))),
            RandomInput.of(406, 60, 4, 20).pipe(slides("emit_sliding_random_with_grace", sliding(10, 8))),
            RandomInput.of(407, 80, 5, 25).pipe(gaps("emit_session_random", gap(5, 0))),
            RandomInput.of(408, 80, 5, 25).pipe(gaps("emit_session_random_with_grace", gap(5, 10))),
            RandomInput.of(410, 80, 20_000, 120_000).pipe(dsl("emit_minutes_random", b -> grouped(b)
                    .windowedBy(hopping(60_000, 30_000, 30_000)).emitStrategy(ON_CLOSE)
                    .count(windows("counts", INT64, 10_000_000)).toStream().to("out"))
                .input("in", STRING, INT64).output("out", inWindows(60_000), INT64)),
            RandomInput.of(411, 80, 20_000, 120_000).pipe(inGaps("emit_session_minutes_random", b -> grouped(b)
                .windowedBy(gap(30_000, 60_000)).emitStrategy(ON_CLOSE).count(sessions("counts", INT64, 10_000_000))
                .toStream().to("out"))),
            RandomInput.of(409, 100, 4, 30).pipe(inTens("emit_aggregate_with_tombstones_random", b -> grouped(b)
                .windowedBy(tumbling(10, 10)).emitStrategy(ON_CLOSE)
                .aggregate(() -> 100L, (k, v, agg) -> v == null || v == 7 ? null : agg + v,
                    windows("sums", INT64, KEEP).withCachingDisabled())
                .toStream().to("out"))));
    }

    private static Case tens(String name, TimeWindows windows) {
        return inTens(name, b -> grouped(b).windowedBy(windows).emitStrategy(ON_CLOSE)
            .count(windows("counts", INT64, KEEP)).toStream().to("out"));
    }

    private static Case slides(String name, SlidingWindows windows) {
        return inTens(name, b -> grouped(b).windowedBy(windows).emitStrategy(ON_CLOSE)
            .count(windows("counts", INT64, KEEP)).toStream().to("out"));
    }

    private static Case gaps(String name, SessionWindows windows) {
        return inGaps(name, b -> grouped(b).windowedBy(windows).emitStrategy(ON_CLOSE)
            .count(sessions("counts", INT64, KEEP)).toStream().to("out"));
    }

    private static Case inTens(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64).output("out", inWindows(10), INT64);
    }

    private static Case inGaps(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64).output("out", inSessions(), INT64);
    }
}
