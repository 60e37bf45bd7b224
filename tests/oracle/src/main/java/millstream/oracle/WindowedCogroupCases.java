package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.gap;
import static millstream.oracle.WindowDsl.hopping;
import static millstream.oracle.WindowDsl.inSessions;
import static millstream.oracle.WindowDsl.inWindows;
import static millstream.oracle.WindowDsl.ms;
import static millstream.oracle.WindowDsl.sessions;
import static millstream.oracle.WindowDsl.sliding;
import static millstream.oracle.WindowDsl.tumbling;
import static millstream.oracle.WindowDsl.windows;
import static org.apache.kafka.streams.kstream.Suppressed.BufferConfig.unbounded;
import static org.apache.kafka.streams.kstream.Suppressed.untilWindowCloses;

import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.state.WindowStore;

/**
 * cogroup in windows: each input stream has a stream time of its own. All stores keep their windows for long: with the
 * default retention a stream that runs ahead lets go of windows that are open to another.
 */
final class WindowedCogroupCases {
    private static final long KEEP = 100_000;

    private WindowedCogroupCases() {}

    static List<Case> cases() {
        return List.of(
            script(inTens("windowed_cogroup", b -> both(b).windowedBy(tumbling(10, 0))
                .aggregate(() -> "", windows("all", STRING, KEEP)).toStream().to("out"))),
            script(inTens("windowed_cogroup_with_grace", b -> both(b).windowedBy(tumbling(10, 5))
                .aggregate(() -> "", windows("all", STRING, KEEP)).toStream().to("out"))),
            script(inTens("windowed_cogroup_uncached", b -> both(b).windowedBy(hopping(10, 5, 5))
                .aggregate(() -> "", windows("all", STRING, KEEP).withCachingDisabled()).toStream().to("out"))),
            inTens("windowed_cogroup_of_one", b -> words(b, "words").groupByKey(byWord())
                    .cogroup(WindowedCogroupCases::word).windowedBy(tumbling(10, 0))
                    .aggregate(() -> "", windows("all", STRING, KEEP)).toStream().to("out"))
                .input("words", STRING, STRING)
                .pipe("words", "a", "w1", 12).pipe("words", "b", "w2", 13).pipe("words", "a", "w3", 18)
                .pipe("words", "a", "w4", 25).pipe("words", "a", "w5", 13),
            script(inTens("windowed_cogroup_named", b -> both(b).windowedBy(tumbling(10, 0))
                .aggregate(() -> "", Named.as("together"), windows("all", STRING, KEEP)).toStream().to("out"))),
            script(inTens("windowed_cogroup_unnamed_store", b -> both(b).windowedBy(tumbling(10, 0))
                .aggregate(() -> "", Materialized.<String, String, WindowStore<Bytes, byte[]>>with(STRING, STRING)
                    .withRetention(ms(KEEP))).toStream()
                .to("out", Produced.with(inWindows(10), STRING)))),
            script(inTens("windowed_cogroup_of_rekeyed_streams", b -> words(b, "words")
                .groupBy((k, v) -> v, Grouped.with("by-word", STRING, STRING)).cogroup(WindowedCogroupCases::word)
                .cogroup(numbers(b, "numbers").groupBy((k, v) -> "w" + v, Grouped.with("by-number", STRING, INT64)),
                    WindowedCogroupCases::number)
                .windowedBy(tumbling(10, 0)).aggregate(() -> "", windows("all", STRING, KEEP)).toStream().to("out"))),
            script(dsl("windowed_cogroup_unlimited", b -> both(b).windowedBy(UnlimitedWindows.of())
                    .aggregate(() -> "", windows("all", STRING)).toStream()
                    .to("out", Produced.with(inWindows(Long.MAX_VALUE), STRING)))
                .output("out", inWindows(Long.MAX_VALUE), STRING)),
            script(inTens("windowed_cogroup_sliding", b -> both(b).windowedBy(sliding(10, 5))
                .aggregate(() -> "", windows("all", STRING, KEEP)).toStream().to("out"))),
            script(inTens("windowed_cogroup_sliding_uncached", b -> both(b).windowedBy(sliding(10, 5))
                .aggregate(() -> "", windows("all", STRING, KEEP).withCachingDisabled()).toStream().to("out"))),
            script(inGaps("windowed_cogroup_sessions", b -> both(b).windowedBy(gap(5, 0))
                .aggregate(() -> "", (k, one, other) -> one + '+' + other, sessions("all", STRING, KEEP))
                .toStream().to("out"))),
            script(inGaps("windowed_cogroup_sessions_uncached", b -> both(b).windowedBy(gap(5, 5))
                .aggregate(() -> "", (k, one, other) -> one + '+' + other,
                    sessions("all", STRING, KEEP).withCachingDisabled())
                .toStream().to("out"))),
            script(inTens("windowed_cogroup_then_suppress", b -> both(b).windowedBy(tumbling(10, 5))
                .aggregate(() -> "", windows("all", STRING, KEEP)).suppress(untilWindowCloses(unbounded()))
                .toStream().to("out"))),
            RandomInput.of(601, 80, 4, 20).withNullValues(0).pipe(inputs(inTens("windowed_cogroup_random", b -> both(b)
                .windowedBy(tumbling(10, 5)).aggregate(() -> "", windows("all", STRING, KEEP)).toStream().to("out")))),
            RandomInput.of(602, 80, 4, 20).withNullValues(0).pipe(inputs(inTens("windowed_cogroup_uncached_random", b ->
                both(b).windowedBy(hopping(10, 5, 5))
                .aggregate(() -> "", windows("all", STRING, KEEP).withCachingDisabled()).toStream().to("out")))),
            RandomInput.of(603, 60, 4, 20).pipe(inputs(inTens("windowed_cogroup_sliding_random", b -> both(b)
                .windowedBy(sliding(10, 5)).aggregate(() -> "", windows("all", STRING, KEEP)).toStream().to("out")))),
            RandomInput.of(604, 80, 4, 20).withNullValues(0).pipe(inputs(inGaps("windowed_cogroup_sessions_random", b ->
                both(b).windowedBy(gap(4, 8))
                .aggregate(() -> "", (k, one, other) -> one + '+' + other, sessions("all", STRING, KEEP))
                .toStream().to("out")))),
            RandomInput.of(605, 80, 4, 20).withNullValues(0).pipe(inputs(inGaps(
                "windowed_cogroup_sessions_uncached_random", b -> both(b).windowedBy(gap(4, 8))
                .aggregate(() -> "", (k, one, other) -> one + '+' + other,
                    sessions("all", STRING, KEEP).withCachingDisabled())
                .toStream().to("out")))));
    }

    private static String word(String key, String value, String agg) {
        return agg + ' ' + value;
    }

    private static String number(String key, Long value, String agg) {
        return agg + ' ' + value;
    }

    private static CogroupedKStream<String, String> both(StreamsBuilder b) {
        return words(b, "words").groupByKey(byWord()).cogroup(WindowedCogroupCases::word)
            .cogroup(numbers(b, "numbers").groupByKey(byNumber()), WindowedCogroupCases::number);
    }

    private static Case inTens(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).output("out", inWindows(10), STRING);
    }

    private static Case inGaps(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).output("out", inSessions(), STRING);
    }

    private static Case inputs(Case test) {
        return test.input("words", STRING, STRING).input("numbers", STRING, INT64);
    }

    /** Words run ahead of the numbers; what is late for words is not for numbers. */
    private static Case script(Case test) {
        return inputs(test)
            .pipe("words", "a", "w1", 12).pipe("numbers", "a", 2L, 14).pipe("words", "b", "w3", 13)
            .pipe("words", "a", "w2", 41).pipe("numbers", "a", 1L, 15).pipe("words", "a", "w2", 17)
            .pipe("numbers", "b", 3L, 8).pipe("words", null, "w1", 99).pipe("numbers", "a", 4L, 36)
            .pipe("numbers", "b", 1L, 36).pipe("numbers", "a", 2L, 19).pipe("words", "b", "w1", 38);
    }
}
