package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.numberTable;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Dsl.wordTable;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.at;
import static millstream.oracle.WindowDsl.gap;
import static millstream.oracle.WindowDsl.grouped;
import static millstream.oracle.WindowDsl.hopping;
import static millstream.oracle.WindowDsl.inSessions;
import static millstream.oracle.WindowDsl.inWindows;
import static millstream.oracle.WindowDsl.ms;
import static millstream.oracle.WindowDsl.numbersOf;
import static millstream.oracle.WindowDsl.sessions;
import static millstream.oracle.WindowDsl.sliding;
import static millstream.oracle.WindowDsl.tumbling;
import static millstream.oracle.WindowDsl.versions;
import static millstream.oracle.WindowDsl.windows;
import static org.apache.kafka.streams.kstream.Suppressed.BufferConfig.maxBytes;
import static org.apache.kafka.streams.kstream.Suppressed.BufferConfig.maxRecords;
import static org.apache.kafka.streams.kstream.Suppressed.BufferConfig.unbounded;
import static org.apache.kafka.streams.kstream.Suppressed.untilTimeLimit;
import static org.apache.kafka.streams.kstream.Suppressed.untilWindowCloses;

import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;

/** suppress: updates of a table wait until their window closes, or for a time, or until the buffer is full. */
final class SuppressCases {
    private static final long KEEP = 100_000;

    private SuppressCases() {}

    static List<Case> cases() {
        return List.of(
            // Until windows close.
            at(closing("suppress_until_tumbling_closes", tumbling(10, 0)), "a", 5, 9, 10, 19, 20, 9),
            at(closing("suppress_until_grace_is_over", tumbling(10, 5)), "a", 5, 10, 14, 9, 15, 9, 24, 25),
            at(closing("suppress_until_hopping_closes", hopping(10, 5, 2)), "a", 3, 7, 11, 12, 9, 16, 17, 30),
            at(closing("suppress_until_windows_close_after_a_jump", tumbling(10, 5)),
                "a", 5, 15, 25, 90_000, 90_014, 90_015),
            closing("suppress_keys_in_order_of_windows", tumbling(10, 5))
                .pipe("in", "b", 1L, 12).pipe("in", "a", 2L, 12).pipe("in", "c", 3L, 3).pipe("in", "a", 4L, 4)
                .pipe("in", "b", 5L, 2).pipe("in", "c", 6L, 15).pipe("in", "d", 7L, 60),
            closing("suppress_headers_of_the_last_update", tumbling(10, 5))
                .pipe("in", "a", 1L, 5, "h", "1").pipe("in", "a", 2L, 4, "h", "2").pipe("in", "b", 3L, 15, "h", "3"),
            closing("suppress_emits_nothing_by_wall_clock", tumbling(10, 0))
                .pipe("in", "a", 1L, 5).wallClock(100_000).pipe("in", "a", 2L, 6).wallClock(10)
                .pipe("in", null, 3L, 30).pipe("in", "b", 3L, 12),
            at(slides("suppress_until_sliding_closes", sliding(10, 0)), "a", 20, 21, 30, 31, 32, 43),
            at(slides("suppress_until_sliding_grace_is_over", sliding(10, 5)), "a", 20, 24, 25, 20, 30, 36, 60),
            at(gaps("suppress_until_session_closes", gap(5, 0)), "a", 10, 12, 17, 22, 23, 28, 34, 40),
            at(gaps("suppress_until_session_grace_is_over", gap(5, 3)), "a", 10, 17, 18, 26, 27, 35, 60),
            at(gaps("suppress_session_merged_before_it_closes", gap(5, 20)), "a", 10, 20, 15, 45, 46, 80),
            at(inTens("suppress_drops_tombstones_of_windows", b -> grouped(b).windowedBy(tumbling(10, 0))
                .aggregate(() -> 0L, (k, v, agg) -> v % 3 == 0 ? null : agg + v, windows("sums", INT64))
                .suppress(untilWindowCloses(unbounded())).toStream().to("out")),
                "a", 1, 2, 3, 11, 12, 21, 22, 31, 33, 40),
            at(inTens("suppress_of_uncached_windows", b -> grouped(b).windowedBy(tumbling(10, 5))
                .count(windows("counts", INT64).withCachingDisabled()).suppress(untilWindowCloses(unbounded()))
                .toStream().to("out")), "a", 1, 11, 5, 14, 15, 8, 30),
            at(inTens("suppress_behind_filter_and_map_values", b -> counted(b, tumbling(10, 5))
                .filter((k, v) -> v != 2)
                .mapValues(v -> v * 10, Materialized.<Windowed<String>, Long, KeyValueStore<Bytes, byte[]>>as("tens")
                    .withKeySerde(inWindows(10)).withValueSerde(INT64))
                .suppress(untilWindowCloses(unbounded())).toStream().to("out")),
                "a", 1, 2, 11, 12, 13, 21, 35, 36, 37, 60),
            at(inTens("suppress_then_filter", b -> closed(b, tumbling(10, 5)).filter((k, v) -> v > 1)
                .toStream().to("out", numbersOf(inWindows(10)))), "a", 1, 2, 11, 25, 26, 27, 60),
            at(inTens("suppress_then_map_values", b -> closed(b, tumbling(10, 5)).mapValues(v -> v * 10)
                .toStream().to("out", numbersOf(inWindows(10)))), "a", 1, 2, 11, 25, 26, 27, 60),
            at(inTens("suppress_then_map_values_with_store", b -> closed(b, tumbling(10, 5))
                .mapValues(v -> v * 10, Materialized.<Windowed<String>, Long, KeyValueStore<Bytes, byte[]>>as("tens")
                    .withKeySerde(inWindows(10)).withValueSerde(INT64))
                .toStream().to("out")), "a", 1, 2, 11, 25, 26, 27, 60),
            at(dsl("suppress_then_stream_with_new_key", b -> closed(b, tumbling(10, 5))
                    .toStream((k, v) -> k.key() + '@' + k.window().start()).to("out", asNumbers()))
                .input("in", STRING, INT64).output("out", STRING, INT64), "a", 1, 2, 11, 25, 26, 27, 60),
            at(inTens("suppress_named", b -> counted(b, tumbling(10, 5))
                .suppress(untilWindowCloses(unbounded()).withName("final")).toStream().to("out")), "a", 1, 11, 15),
            at(inTens("suppress_two_of_one_table", b -> {
                KTable<Windowed<String>, Long> counts = counted(b, tumbling(10, 5));
                counts.suppress(untilWindowCloses(unbounded())).toStream().to("out");
                counts.suppress(untilTimeLimit(ms(3), unbounded())).toStream().to("soon");
            }).output("soon", inWindows(10), INT64), "a", 1, 2, 4, 8, 11, 15, 20, 30),
            at(inTens("suppress_windows_for_a_time", b -> counted(b, tumbling(10, 20))
                .suppress(untilTimeLimit(ms(4), unbounded())).toStream().to("out")),
                "a", 1, 3, 4, 5, 8, 9, 12, 2, 16, 20),
            refused("suppress_until_window_closes_without_windows_is_refused", b -> {
                @SuppressWarnings({"unchecked", "rawtypes"})
                KTable<Windowed<String>, Long> table = (KTable) numberTable(b, "in");
                table.suppress(untilWindowCloses(unbounded())).toStream().to("out");
            }),
            refused("suppress_of_a_versioned_table_is_refused", b -> b
                .table("in", Consumed.with(STRING, INT64), versions("store", INT64, 100))
                .suppress(untilTimeLimit(ms(5), unbounded())).toStream().to("out")),

            // Until a time limit, on a plain table.
            updates(limited("suppress_for_a_time", 5)),
            updates(limited("suppress_for_no_time", 0)),
            updates(limited("suppress_for_long", 30)),
            at(limited("suppress_at_the_limit", 5), "a", 10, 14, 15, 16, 19, 20, 21),
            limited("suppress_updates_do_not_reset_the_time", 5)
                .pipe("in", "a", 1L, 10).pipe("in", "a", 2L, 13).pipe("in", "a", 3L, 14).pipe("in", "b", 4L, 15)
                .pipe("in", "a", 5L, 16).pipe("in", "b", 6L, 20).pipe("in", "c", 7L, 21),
            limited("suppress_sends_tombstones", 5)
                .pipe("in", "a", 1L, 10).pipe("in", "a", null, 11).pipe("in", "b", 2L, 12).pipe("in", "c", 3L, 17)
                .pipe("in", "b", null, 18).pipe("in", "c", null, 30).pipe("in", "d", 4L, 40),
            limited("suppress_out_of_order", 5)
                .pipe("in", "a", 1L, 20).pipe("in", "b", 2L, 10).pipe("in", "c", 3L, 17).pipe("in", "d", 4L, 15)
                .pipe("in", "a", 5L, 24).pipe("in", "b", 6L, 25).pipe("in", null, 7L, 90).pipe("in", "e", 8L, 30),
            limited("suppress_headers_of_a_table", 5)
                .pipe("in", "a", 1L, 10, "h", "1").pipe("in", "a", 2L, 12, "h", "2").pipe("in", "b", 3L, 20, "h", "3"),
            numbersOut("suppress_then_plain_filter", b -> numberTable(b, "in", "store")
                    .suppress(untilTimeLimit(ms(5), unbounded())).filter((k, v) -> v > 2).toStream()
                    .to("out", asNumbers()))
                .pipe("in", "a", 5L, 10).pipe("in", "b", 1L, 11).pipe("in", "c", 6L, 16).pipe("in", "a", 2L, 17)
                .pipe("in", "d", null, 18).pipe("in", "b", 3L, 23).pipe("in", "c", null, 24).pipe("in", "a", 1L, 30)
                .pipe("in", "a", 4L, 40).pipe("in", "d", 8L, 60),
            updates(numbersOut("suppress_then_plain_map_values", b -> numberTable(b, "in", "store")
                .suppress(untilTimeLimit(ms(5), unbounded())).mapValues(v -> v * 10).toStream()
                .to("out", asNumbers()))),
            updates(numbersOut("suppress_count_for_a_time", b -> numbers(b, "in").groupByKey(byNumber())
                .count(numberStore("counts")).suppress(untilTimeLimit(ms(5), unbounded())).toStream()
                .to("out", asNumbers()))),
            updates(numbersOut("suppress_twice", b -> numberTable(b, "in", "store")
                .suppress(untilTimeLimit(ms(3), unbounded())).suppress(untilTimeLimit(ms(5), unbounded())).toStream()
                .to("out", asNumbers()))),

            // A buffer with a bound.
            keys(bounded("suppress_two_records_emit_early", 2)),
            keys(bounded("suppress_one_record_emits_early", 1)),
            keys(bounded("suppress_no_record_is_kept", 0)),
            updates(bounded("suppress_updates_of_a_bounded_buffer", 1)),
            keys(numbersOut("suppress_two_records_shut_down", b -> numberTable(b, "in", "store")
                .suppress(untilTimeLimit(ms(100), maxRecords(2).shutDownWhenFull())).toStream()
                .to("out", asNumbers())), 4),
            keys(numbersOut("suppress_three_records_shut_down_later", b -> numberTable(b, "in", "store")
                .suppress(untilTimeLimit(ms(100), maxRecords(3).shutDownWhenFull())).toStream()
                .to("out", asNumbers())), 6),
            at(inTens("suppress_strict_buffer_within_bounds", b -> counted(b, tumbling(10, 5))
                .suppress(untilWindowCloses(maxRecords(2).shutDownWhenFull())).toStream().to("out")),
                "a", 1, 2, 11, 12, 15, 16, 25, 26),
            at(inTens("suppress_strict_buffer_overflows", b -> counted(b, tumbling(10, 15))
                .suppress(untilWindowCloses(maxRecords(2).shutDownWhenFull())).toStream().to("out")),
                "a", 1, 2, 11, 12, 21),
            texts(dsl("suppress_bytes_emit_early", b -> wordTable(b, "in", "store")
                .suppress(untilTimeLimit(ms(100), maxBytes(2_500))).toStream().to("out"))),
            texts(dsl("suppress_bytes_or_records_emit_early", b -> wordTable(b, "in", "store")
                .suppress(untilTimeLimit(ms(100), maxBytes(4_800).withMaxRecords(1))).toStream().to("out"))),
            texts(dsl("suppress_bytes_shut_down", b -> wordTable(b, "in", "store")
                .suppress(untilTimeLimit(ms(100), maxBytes(4_800).shutDownWhenFull())).toStream().to("out"))),

            // Long inputs.
            RandomInput.of(501, 80, 4, 20).pipe(closing("suppress_until_tumbling_closes_random", tumbling(10, 5))),
            RandomInput.of(502, 80, 4, 20).pipe(closing("suppress_until_hopping_closes_random", hopping(10, 4, 8))),
            RandomInput.of(503, 80, 4, 20).pipe(slides("suppress_until_sliding_closes_random", sliding(10, 6))),
            RandomInput.of(504, 80, 5, 25).pipe(gaps("suppress_until_session_closes_random", gap(5, 8))),
            RandomInput.of(505, 80, 4, 20).withNullValues(15).pipe(limited("suppress_for_a_time_random", 10)),
            RandomInput.of(506, 80, 4, 20).withNullValues(15).pipe(bounded("suppress_two_records_random", 2)),
            RandomInput.of(507, 80, 4, 20).pipe(inTens("suppress_windows_for_a_time_random", b ->
                counted(b, hopping(10, 5, 10)).suppress(untilTimeLimit(ms(7), unbounded())).toStream().to("out"))),
            RandomInput.of(508, 80, 4, 20).pipe(inTens("suppress_windows_three_records_random", b ->
                counted(b, hopping(10, 5, 10)).suppress(untilTimeLimit(ms(50), maxRecords(3))).toStream().to("out"))),
            RandomInput.of(509, 80, 4, 20).withNullValues(15).pipe(numbersOut("suppress_then_map_values_random", b ->
                numberTable(b, "in", "store").suppress(untilTimeLimit(ms(8), unbounded())).mapValues(v -> v * 10)
                .toStream().to("out", asNumbers()))),
            RandomInput.of(510, 80, 4, 20).pipe(inTens("suppress_then_filter_random", b ->
                closed(b, tumbling(10, 5)).filter((k, v) -> v > 2)
                .toStream().to("out", numbersOf(inWindows(10))))));
    }

    private static KTable<Windowed<String>, Long> counted(StreamsBuilder b, TimeWindows windows) {
        return grouped(b).windowedBy(windows).count(windows("counts", INT64, KEEP));
    }

    private static KTable<Windowed<String>, Long> closed(StreamsBuilder b, TimeWindows windows) {
        return counted(b, windows).suppress(untilWindowCloses(unbounded()));
    }

    private static Case closing(String name, TimeWindows windows) {
        return inTens(name, b -> closed(b, windows).toStream().to("out"));
    }

    private static Case slides(String name, SlidingWindows windows) {
        return inTens(name, b -> grouped(b).windowedBy(windows).count(windows("counts", INT64, KEEP))
            .suppress(untilWindowCloses(unbounded())).toStream().to("out"));
    }

    private static Case gaps(String name, SessionWindows windows) {
        return dsl(name, b -> grouped(b).windowedBy(windows).count(sessions("counts", INT64, KEEP))
                .suppress(untilWindowCloses(unbounded())).toStream().to("out"))
            .input("in", STRING, INT64).output("out", inSessions(), INT64);
    }

    private static Case limited(String name, long limit) {
        return numbersOut(name, b -> numberTable(b, "in", "store").suppress(untilTimeLimit(ms(limit), unbounded()))
            .toStream().to("out"));
    }

    private static Case bounded(String name, long records) {
        return numbersOut(name, b -> numberTable(b, "in", "store")
            .suppress(untilTimeLimit(ms(100), maxRecords(records))).toStream().to("out"));
    }

    private static Case inTens(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64).output("out", inWindows(10), INT64);
    }

    private static Case numbersOut(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64).output("out", STRING, INT64);
    }

    private static Case refused(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64);
    }

    /** Inserts, updates and deletes of a table, a null key, times that go back. */
    private static Case updates(Case test) {
        return test
            .pipe("in", "b", 1L, 10).pipe("in", "a", 5L, 12).pipe("in", "b", 4L, 14).pipe("in", "b", 2L, 15)
            .pipe("in", "a", 7L, 9).pipe("in", "a", 7L, 17).pipe("in", null, 3L, 50).pipe("in", "c", null, 18)
            .pipe("in", "a", null, 24).pipe("in", "a", null, 25).pipe("in", "a", 3L, 2).pipe("in", "b", 1L, 30)
            .pipe("in", "c", 6L, 35).pipe("in", "d", 8L, 60);
    }

    private static Case keys(Case test) {
        return keys(test, 7);
    }

    /** Updates of several keys, as many as are asked for. */
    private static Case keys(Case test, int records) {
        String keys = "abacadb";
        long[] times = {10, 12, 11, 14, 13, 14, 20};
        for (int i = 0; i < records; i++) {
            test.pipe("in", keys.substring(i, i + 1), i + 1L, times[i]);
        }
        return test;
    }

    /** Values so long that nothing else of a buffered record counts. */
    private static Case texts(Case test) {
        test.input("in", STRING, STRING).output("out", STRING, STRING);
        for (int i = 0; i < 5; i++) {
            test.pipe("in", "k" + i, String.valueOf(i).repeat(1_000), 10 + i);
        }
        return test;
    }
}
