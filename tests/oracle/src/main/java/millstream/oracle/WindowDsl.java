package millstream.oracle;

import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** What cases of windows are made of: numbers by key, and durations in milliseconds. */
final class WindowDsl {
    private WindowDsl() {}

    static Duration ms(long milliseconds) {
        return Duration.ofMillis(milliseconds);
    }

    static KGroupedStream<String, Long> grouped(StreamsBuilder builder) {
        return numbers(builder, "in").groupByKey(byNumber());
    }

    static TimeWindows tumbling(long sizeMs, long graceMs) {
        return TimeWindows.ofSizeAndGrace(ms(sizeMs), ms(graceMs));
    }

    static TimeWindows hopping(long sizeMs, long advanceMs, long graceMs) {
        return tumbling(sizeMs, graceMs).advanceBy(ms(advanceMs));
    }

    static SlidingWindows sliding(long differenceMs, long graceMs) {
        return SlidingWindows.ofTimeDifferenceAndGrace(ms(differenceMs), ms(graceMs));
    }

    static SessionWindows gap(long gapMs, long graceMs) {
        return SessionWindows.ofInactivityGapAndGrace(ms(gapMs), ms(graceMs));
    }

    static <V> Materialized<String, V, WindowStore<Bytes, byte[]>> windows(String name, Type<V> value) {
        return Materialized.<String, V, WindowStore<Bytes, byte[]>>as(name).withKeySerde(STRING).withValueSerde(value);
    }

    static <V> Materialized<String, V, WindowStore<Bytes, byte[]>> windows(String name, Type<V> value, long retention) {
        return windows(name, value).withRetention(ms(retention));
    }

    static <V> Materialized<String, V, SessionStore<Bytes, byte[]>> sessions(String name, Type<V> value) {
        return Materialized.<String, V, SessionStore<Bytes, byte[]>>as(name).withKeySerde(STRING).withValueSerde(value);
    }

    static <V> Materialized<String, V, SessionStore<Bytes, byte[]>> sessions(
            String name, Type<V> value, long retention) {
        return sessions(name, value).withRetention(ms(retention));
    }

    static <V> Materialized<String, V, KeyValueStore<Bytes, byte[]>> versions(
            String name, Type<V> value, long historyMs) {
        return Materialized.<String, V>as(Stores.persistentVersionedKeyValueStore(name, ms(historyMs)))
            .withKeySerde(STRING).withValueSerde(value);
    }

    /** The keys of time windows and of sliding windows of a size. */
    static Type<Windowed<String>> inWindows(long sizeMs) {
        return Type.timeWindowed(STRING, sizeMs);
    }

    static Type<Windowed<String>> inSessions() {
        return Type.sessionWindowed(STRING);
    }

    static <K> Produced<K, Long> numbersOf(Type<K> key) {
        return Produced.with(key, INT64);
    }

    /** Pipes numbers of one key at these times: 1, 2, 3, ... */
    static Case at(Case test, String key, long... timestamps) {
        for (long timestamp : timestamps) {
            test.pipe("in", key, (long) test.steps.size() + 1, timestamp);
        }
        return test;
    }
}
