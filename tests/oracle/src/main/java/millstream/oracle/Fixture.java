package millstream.oracle;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.CachedStateStore;
import org.apache.kafka.streams.state.internals.TimeOrderedKeyValueBuffer;

/** The text of one golden file, line by line. README.md describes the format. */
final class Fixture {
    private static final Pattern OF_A_JOIN = Pattern.compile(
        "-OUTERSHARED-|(left|outer)-shared-join-store$|-SUBSCRIPTION-STATE-STORE-|-subscription-store$");

    private final StringBuilder text = new StringBuilder();
    private final TreeSet<String> keys = new TreeSet<>();
    private final TreeSet<Long> times = new TreeSet<>();

    Fixture(Case test) {
        line("case " + test.name);
        section("topics");
        test.inputs.values().forEach(topic -> line("input " + declaration(topic)));
        test.outputs.values().forEach(topic -> line("output " + declaration(topic)));
    }

    void section(String title) {
        text.append('\n').append('[').append(title).append("]\n");
    }

    void line(String line) {
        text.append(line).append('\n');
    }

    void refused(Throwable reason) {
        section("refused");
        line("# " + reason.getClass().getName());
    }

    void input(Case.Step step) {
        if (step instanceof Case.Pipe pipe) {
            seen(pipe.key(), pipe.timestamp());
        }
        line(spelled(step));
    }

    void error(Case.Step step, Throwable reason) {
        line("error " + spelled(step) + "  # " + root(reason).getClass().getName());
    }

    void output(Case.Topic topic, ProducerRecord<byte[], byte[]> record) {
        Object key = topic.key().deserializer().deserialize(topic.name(), record.key());
        seen(key, record.timestamp());
        line("  -> " + topic.name() + ' ' + Type.literal(key) + ' '
            + Type.literal(topic.value().deserializer().deserialize(topic.name(), record.value()))
            + " @" + record.timestamp() + spelled(record.headers()));
    }

    void store(StateStore store) {
        if (isOfAJoin(store)) {
            // What a join remembers is nobody's to read.
            return;
        }
        if (store instanceof TimestampedKeyValueStore<?, ?> timestamped) {
            line("store " + store.name() + " timestamped");
            for (KeyValue<?, ?> entry : entries(timestamped)) {
                line("  " + Type.literal(entry.key) + ' ' + stamped((ValueAndTimestamp<?>) entry.value));
            }
        } else if (store instanceof TimestampedWindowStore<?, ?> windows) {
            line("store " + store.name() + " window");
            for (KeyValue<? extends Windowed<?>, ?> entry : windows(windows)) {
                line("  " + Type.literal(entry.key) + ' ' + stamped((ValueAndTimestamp<?>) entry.value));
            }
        } else if (store instanceof SessionStore<?, ?> sessions) {
            line("store " + store.name() + " session");
            for (KeyValue<? extends Windowed<?>, ?> entry : sessions(sessions)) {
                line("  " + Type.literal(entry.key) + ' ' + Type.literal(entry.value));
            }
        } else if (store instanceof VersionedKeyValueStore<?, ?> versioned) {
            line("store " + store.name() + " versioned");
            keys.forEach(key -> versions(key, versioned));
        } else if (store instanceof TimeOrderedKeyValueBuffer<?, ?, ?>) {
            // What waits in a suppression is nobody's to read.
            return;
        } else if (store instanceof KeyValueStore<?, ?> plain) {
            line("store " + store.name() + " plain");
            for (KeyValue<?, ?> entry : entries(plain)) {
                line("  " + Type.literal(entry.key) + ' ' + Type.literal(entry.value));
            }
        } else {
            throw new IllegalStateException("no dump for " + store);
        }
    }

    /** Rows and waiting rows of stream-stream joins, and the subscriptions of foreign-key joins. */
    private static boolean isOfAJoin(StateStore store) {
        if (store instanceof WindowStore<?, ?>) {
            return !(store instanceof TimestampedWindowStore<?, ?>);
        }
        return OF_A_JOIN.matcher(store.name()).find();
    }

    /** Kafka's description, to the last byte: it is the last section, and nothing is added to its end. */
    void topology(String description) {
        section("topology");
        text.append(description);
    }

    @Override
    public String toString() {
        return text.toString();
    }

    private static String declaration(Case.Topic topic) {
        return topic.name() + ' ' + topic.key().name() + ' ' + topic.value().name();
    }

    private static String spelled(Case.Step step) {
        if (step instanceof Case.Pipe pipe) {
            return "pipe " + pipe.topic() + ' ' + Type.literal(pipe.key()) + ' ' + Type.literal(pipe.value())
                + " @" + pipe.timestamp() + spelled(pipe.headers());
        }
        return "wallclock +" + ((Case.WallClock) step).advanceMs();
    }

    private static String spelled(Headers headers) {
        List<String> pairs = new ArrayList<>();
        for (Header header : headers) {
            String value = header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8);
            pairs.add('[' + Type.literal(header.key()) + ", " + Type.literal(value) + ']');
        }
        return pairs.isEmpty() ? "" : " [" + String.join(", ", pairs) + ']';
    }

    private void seen(Object key, long timestamp) {
        if (key instanceof String text) {
            keys.add(text);
        }
        times.add(timestamp);
    }

    private static String stamped(ValueAndTimestamp<?> stored) {
        return Type.literal(stored.value()) + " @" + stored.timestamp();
    }

    private static <K, V> List<KeyValue<K, V>> entries(KeyValueStore<K, V> store) {
        return list(store.all());
    }

    private static <K, V> List<KeyValue<Windowed<K>, V>> windows(WindowStore<K, V> store) {
        emptyCache(store);
        return sorted(list(store.all()));
    }

    private static <K, V> List<KeyValue<Windowed<K>, V>> sessions(SessionStore<K, V> store) {
        emptyCache(store);
        return sorted(list(store.fetch((K) null, (K) null)));
    }

    /** The versions of a key as readers find them: each answer of the store from the time on when it is given. */
    @SuppressWarnings("unchecked")
    private <K> void versions(String key, VersionedKeyValueStore<K, ?> store) {
        String last = null;
        for (long time : times) {
            VersionedRecord<?> version = store.get((K) key, time);
            String answer = version == null ? null : Type.literal(version.value()) + " @" + version.timestamp();
            if (!Objects.equals(answer, last)) {
                line("  " + Type.literal(key) + ' ' + (answer == null ? "null @" + time : answer));
            }
            last = answer;
        }
    }

    /** A cache still shows rows that its store has let go of, so it is emptied before a windowed store is read. */
    private static void emptyCache(StateStore store) {
        CachedStateStore<?, ?> cached = (CachedStateStore<?, ?>) store;
        cached.flushCache();
        cached.clearCache();
    }

    private static <K, V> List<KeyValue<K, V>> list(KeyValueIterator<K, V> rows) {
        List<KeyValue<K, V>> entries = new ArrayList<>();
        try (rows) {
            rows.forEachRemaining(entries::add);
        }
        return entries;
    }

    private static <K, V> List<KeyValue<Windowed<K>, V>> sorted(List<KeyValue<Windowed<K>, V>> entries) {
        entries.sort(Comparator
            .comparing((KeyValue<Windowed<K>, V> entry) -> Type.literal(entry.key.key()))
            .thenComparing(entry -> entry.key.window().start())
            .thenComparing(entry -> entry.key.window().end()));
        return entries;
    }

    private static Throwable root(Throwable reason) {
        return reason.getCause() == null ? reason : root(reason.getCause());
    }
}
