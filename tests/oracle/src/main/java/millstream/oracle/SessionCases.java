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
import static millstream.oracle.WindowDsl.gap;
import static millstream.oracle.WindowDsl.grouped;
import static millstream.oracle.WindowDsl.inSessions;
import static millstream.oracle.WindowDsl.numbersOf;
import static millstream.oracle.WindowDsl.sessions;

import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;

/** Session windows: records of a key that are at most a gap apart. Sessions grow and merge. */
final class SessionCases {
    private static final long KEEP = 100_000;

    private SessionCases() {}

    static List<Case> cases() {
        return List.of(
            // The gap.
            at(collecting("session_gap_is_inclusive", 5, 100), "a", 10, 15, 20, 5),
            at(collecting("session_gap_and_one_more", 5, 100), "a", 10, 16, 22, 4),
            at(collecting("session_bridges_two", 5, 100), "a", 10, 20, 15),
            at(collecting("session_bridges_two_only_just_not", 5, 100), "a", 10, 21, 15),
            at(collecting("session_bridges_three", 10, 100), "a", 10, 21, 32, 20),
            at(collecting("session_equal_timestamps", 5, 100), "a", 10, 10, 10, 12, 12, 10),
            at(collecting("session_record_inside_a_session", 5, 100), "a", 10, 14, 18, 12, 14),
            at(collecting("session_grows_backwards", 5, 100), "a", 30, 26, 22, 18, 12),
            at(collecting("session_near_zero", 5, 100), "a", 3, 0, 8, 14, 9),
            at(counting("session_gap_of_zero", 0, 100), "a", 10, 10, 11, 10),
            collecting("session_keys_have_sessions_of_their_own", 5, 100)
                .pipe("in", "a", 1L, 10).pipe("in", "b", 2L, 12).pipe("in", "a", 3L, 14).pipe("in", "b", 4L, 20)
                .pipe("in", "b", 5L, 16),
            collecting("session_aggregates_null_values_and_skips_null_keys", 5, 0)
                .pipe("in", "a", null, 10).pipe("in", null, 2L, 90).pipe("in", "a", 3L, 12).pipe("in", "a", null, 14),
            collecting("session_headers", 5, 100)
                .pipe("in", "a", 1L, 10, "h", "1").pipe("in", "a", 2L, 12, "h", "2").pipe("in", "a", 3L, 11, "h", "3"),

            // Late records: the end of the merged session counts.
            at(counting("session_late_at_the_bound", 5, 0), "a", 10, 20, 15, 10, 14, 9),
            at(counting("session_late_one_below_the_bound", 5, 0), "a", 10, 26, 20, 21),
            at(counting("session_late_at_the_bound_of_grace", 5, 7), "a", 10, 30, 18, 17, 31, 18, 19),
            at(counting("session_late_record_of_a_live_session", 5, 0), "a", 10, 14, 18, 22, 8, 6, 2),
            counting("session_time_of_one_key_closes_another", 5, 0)
                .pipe("in", "a", 1L, 10).pipe("in", "b", 2L, 30).pipe("in", "a", 3L, 12).pipe("in", "a", 4L, 24)
                .pipe("in", "a", 5L, 25).pipe("in", "c", 6L, 24),
            at(counting("session_jump_of_time", 5, 3), "a", 10, 1_000_000, 12, 999_992, 999_991, 999_995),

            // Cached and uncached, reduce and aggregate.
            updates(numbersIn("session_count_uncached", b -> grouped(b).windowedBy(gap(5, 10))
                .count(sessions("counts", INT64, KEEP).withCachingDisabled()).toStream().to("out"))),
            updates(numbersIn("session_reduce", b -> grouped(b).windowedBy(gap(5, 10))
                .reduce((agg, v) -> agg + v, sessions("sums", INT64, KEEP)).toStream().to("out"))),
            updates(numbersIn("session_reduce_uncached", b -> grouped(b).windowedBy(gap(5, 10))
                .reduce((agg, v) -> agg + v, sessions("sums", INT64, KEEP).withCachingDisabled())
                .toStream().to("out"))),
            updates(numbersIn("session_aggregate_returning_null", b -> grouped(b).windowedBy(gap(5, 10))
                .aggregate(() -> 0L, (k, v, agg) -> v % 3 == 0 ? null : sum(agg, v), (k, one, other) -> sum(one, other),
                    sessions("sums", INT64, KEEP))
                .toStream().to("out"))),
            updates(numbersIn("session_aggregate_returning_null_uncached", b -> grouped(b).windowedBy(gap(5, 10))
                .aggregate(() -> 0L, (k, v, agg) -> v % 3 == 0 ? null : sum(agg, v), (k, one, other) -> sum(one, other),
                    sessions("sums", INT64, KEEP).withCachingDisabled())
                .toStream().to("out"))),
            updates(numbersIn("session_aggregate_named", b -> grouped(b).windowedBy(gap(5, 10))
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, one, other) -> one + other, Named.as("total"),
                    sessions("sums", INT64, KEEP))
                .toStream().to("out"))),
            at(numbersIn("session_aggregate_raising_fails", b -> grouped(b).windowedBy(gap(5, 10))
                .aggregate(() -> 0L, (k, v, agg) -> 10 / (v - 3), (k, one, other) -> one + other,
                    sessions("sums", INT64, KEEP)).toStream().to("out")), "a", 1, 2, 3),
            updates(numbersIn("session_sum", b -> grouped(b).windowedBy(gap(5, 10))
                .aggregate(() -> 0L, (k, v, agg) -> agg + v, (k, one, other) -> one + other,
                    sessions("sums", INT64, KEEP))
                .toStream().to("out"))),
            updates(numbersIn("session_max", b -> grouped(b).windowedBy(gap(5, 10))
                .aggregate(() -> null, (k, v, agg) -> greater(agg, v), (k, one, other) -> greater(one, other),
                    sessions("greatest", INT64, KEEP))
                .toStream().to("out"))),
            updates(numbersIn("session_collapses_updates_of_one_record", b -> numbers(b, "in")
                .flatMapValues(v -> List.of(v, v, v)).groupByKey(byNumber()).windowedBy(gap(5, 10))
                .count(sessions("counts", INT64, KEEP)).toStream().to("out"))),
            updates(numbersIn("session_uncached_shows_every_update", b -> numbers(b, "in")
                .flatMapValues(v -> List.of(v, v, v)).groupByKey(byNumber()).windowedBy(gap(5, 10))
                .count(sessions("counts", INT64, KEEP).withCachingDisabled()).toStream().to("out"))),

            // Names, stores, topologies.
            at(numbersIn("session_count_unnamed_store", b -> grouped(b).windowedBy(gap(5, 10)).count()
                .toStream().to("out", numbersOf(inSessions()))), "a", 10, 12, 15, 3),
            at(numbersIn("session_count_named", b -> grouped(b).windowedBy(gap(5, 10)).count(Named.as("counter"))
                .toStream(Named.as("changes")).to("out", numbersOf(inSessions()))), "a", 10, 12, 15, 3),
            at(numbersIn("session_reduce_named", b -> grouped(b).windowedBy(gap(5, 10))
                .reduce(Long::sum, Named.as("total"), sessions("sums", INT64)).toStream().to("out")), "a", 10, 12),
            dsl("session_count_of_rekeyed_stream", b -> words(b, "words").groupBy((k, v) -> v, byWord())
                    .windowedBy(gap(5, 0)).count().toStream().to("out", numbersOf(inSessions())))
                .input("words", STRING, STRING).output("out", inSessions(), INT64)
                .pipe("words", "k", "x", 11).pipe("words", "l", "x", 15).pipe("words", "k", "y", 13)
                .pipe("words", "k", null, 14).pipe("words", null, "x", 16),
            updates(dsl("session_to_stream_with_new_key", b -> counted(b)
                    .toStream((k, v) -> k.key() + '@' + k.window().start() + '-' + k.window().end())
                    .to("out", asNumbers()))
                .input("in", STRING, INT64).output("out", STRING, INT64)),
            updates(numbersIn("session_filter", b -> counted(b).filter((k, v) -> v > 1)
                .toStream().to("out", numbersOf(inSessions())))),
            updates(numbersIn("session_map_values_with_store", b -> counted(b)
                .mapValues(v -> v * 10, Materialized.<Windowed<String>, Long, KeyValueStore<Bytes, byte[]>>as("tens")
                    .withKeySerde(inSessions()).withValueSerde(INT64))
                .toStream().to("out"))),
            updates(dsl("session_table_group_by_key", b -> counted(b)
                    .groupBy((k, v) -> KeyValue.pair(k.key(), v), byNumber())
                    .reduce(Long::sum, (agg, v) -> agg - v, numberStore("totals")).toStream().to("out"))
                .input("in", STRING, INT64).output("out", STRING, INT64)),

            // Retention: sessions whose end is at or before the store's time less the retention are gone.
            at(kept("session_retention_hides_sessions_at_the_bound", 5), "a", 10, 16, 21),
            at(kept("session_retention_shows_sessions_above_the_bound", 6), "a", 10, 16, 21, 27),
            at(kept("session_retention_hides_what_a_record_would_reach", 5), "a", 10, 20, 15),
            at(kept("session_retention_longer_lets_a_record_reach_it", 11), "a", 10, 20, 15),
            refused("session_retention_below_gap_is_refused", b -> grouped(b).windowedBy(gap(5, 0))
                .count(sessions("counts", INT64, 4))),
            refused("session_retention_below_gap_and_grace_is_refused", b -> grouped(b).windowedBy(gap(5, 5))
                .count(sessions("counts", INT64, 9))),
            refused("session_negative_gap_is_refused", b -> grouped(b).windowedBy(gap(-1, 0)).count()),
            refused("session_negative_grace_is_refused", b -> grouped(b).windowedBy(gap(5, -1)).count()),

            // Long inputs.
            RandomInput.of(301, 80, 5, 25).pipe(collecting("session_collect_random", 4, 10)),
            RandomInput.of(302, 80, 5, 25).pipe(numbersIn("session_count_uncached_random", b -> grouped(b)
                .windowedBy(gap(5, 8)).count(sessions("counts", INT64, KEEP).withCachingDisabled())
                .toStream().to("out"))),
            RandomInput.of(303, 80, 5, 25).pipe(counting("session_count_random", 5, 0)),
            RandomInput.of(304, 80, 5, 40).pipe(counting("session_count_random_with_grace", 5, 12)),
            RandomInput.of(305, 60, 20, 60).pipe(counting("session_count_random_sparse", 10, 20)),
            RandomInput.of(306, 100, 4, 30).withNullValues(0).pipe(numbersIn("session_reduce_random", b -> grouped(b)
                .windowedBy(gap(4, 10)).reduce((agg, v) -> agg + v, sessions("sums", INT64, KEEP))
                .toStream().to("out"))),
            RandomInput.of(307, 100, 4, 30).pipe(numbersIn("session_aggregate_with_tombstones_random", b -> grouped(b)
                .windowedBy(gap(4, 10))
                .aggregate(() -> 0L, (k, v, agg) -> v == null || v == 7 ? null : sum(agg, v),
                    (k, one, other) -> sum(one, other), sessions("sums", INT64, KEEP))
                .toStream().to("out"))),
            RandomInput.of(308, 100, 4, 30).pipe(numbersIn("session_aggregate_with_tombstones_uncached_random", b ->
                grouped(b).windowedBy(gap(4, 10))
                .aggregate(() -> 0L, (k, v, agg) -> v == null || v == 7 ? null : sum(agg, v),
                    (k, one, other) -> sum(one, other), sessions("sums", INT64, KEEP).withCachingDisabled())
                .toStream().to("out"))),
            RandomInput.of(311, 80, 20_000, 120_000).pipe(numbersIn("session_minutes_random", b -> grouped(b)
                .windowedBy(gap(30_000, 60_000)).count(sessions("counts", INT64, 10_000_000)).toStream().to("out"))),
            RandomInput.of(312, 80, 20_000, 120_000).pipe(numbersIn("session_minutes_uncached_random", b -> grouped(b)
                .windowedBy(gap(30_000, 60_000)).count(sessions("counts", INT64).withCachingDisabled())
                .toStream().to("out"))),
            RandomInput.of(313, 100, 5, 25).pipe(numbersIn("session_default_retention_uncached_random", b -> grouped(b)
                .windowedBy(gap(5, 8)).count(sessions("counts", INT64).withCachingDisabled()).toStream().to("out"))),
            RandomInput.of(309, 80, 5, 25).pipe(dsl("session_table_group_by_random", b -> counted(b)
                    .groupBy((k, v) -> KeyValue.pair(k.key(), v), byNumber())
                    .reduce(Long::sum, (agg, v) -> agg - v, numberStore("totals")).toStream().to("out"))
                .input("in", STRING, INT64).output("out", STRING, INT64)),
            RandomInput.of(310, 80, 5, 25).pipe(numbersIn("session_filter_random", b -> counted(b)
                .filter((k, v) -> v > 1).toStream().to("out", numbersOf(inSessions())))));
    }

    private static KTable<Windowed<String>, Long> counted(StreamsBuilder b) {
        return grouped(b).windowedBy(gap(5, 10)).count(sessions("counts", INT64, KEEP));
    }

    /** The records of each session, in the order in which they were aggregated and merged. */
    private static Case collecting(String name, long gap, long grace) {
        return dsl(name, b -> grouped(b).windowedBy(gap(gap, grace))
                .aggregate(() -> "", (k, v, agg) -> agg + v + ';', (k, one, other) -> one + '+' + other,
                    sessions("log", STRING, KEEP))
                .toStream().to("out"))
            .input("in", STRING, INT64).output("out", inSessions(), STRING);
    }

    private static Case counting(String name, long gap, long grace) {
        return numbersIn(name, b -> grouped(b).windowedBy(gap(gap, grace)).count(sessions("counts", INT64, KEEP))
            .toStream().to("out"));
    }

    /** Without a cache, because Kafka's shows what the store has let go of. */
    private static Case kept(String name, long retention) {
        return numbersIn(name, b -> grouped(b).windowedBy(gap(5, 0))
            .count(sessions("counts", INT64, retention).withCachingDisabled()).toStream().to("out"));
    }

    private static Case numbersIn(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64).output("out", inSessions(), INT64);
    }

    private static Case refused(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64);
    }

    private static Long sum(Long one, Long other) {
        return one == null ? other : other == null ? one : Long.valueOf(one + other);
    }

    private static Long greater(Long one, Long other) {
        return one == null ? other : other == null ? one : Long.valueOf(Math.max(one, other));
    }

    /** Sessions of two keys that grow, merge and end, out of order, equal times, a late record. */
    private static Case updates(Case test) {
        return test
            .pipe("in", "a", 1L, 10).pipe("in", "b", 2L, 12).pipe("in", "a", 4L, 20).pipe("in", "a", 5L, 15)
            .pipe("in", "b", 7L, 12).pipe("in", "a", 6L, 30).pipe("in", "a", 3L, 30).pipe("in", "a", 2L, 33)
            .pipe("in", "b", 1L, 18).pipe("in", "b", 9L, 13).pipe("in", "a", 8L, 26).pipe("in", "b", 5L, 60)
            .pipe("in", "a", 4L, 44).pipe("in", "a", 2L, 46);
    }
}
