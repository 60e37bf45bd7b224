package millstream.oracle;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/** The text of one golden file, line by line. README.md describes the format. */
final class Fixture {
    private final StringBuilder text = new StringBuilder();

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
        line(spelled(step));
    }

    void error(Case.Step step, Throwable reason) {
        line("error " + spelled(step) + "  # " + root(reason).getClass().getName());
    }

    void output(Case.Topic topic, ProducerRecord<byte[], byte[]> record) {
        line("  -> " + topic.name() + ' '
            + Type.literal(topic.key().deserializer().deserialize(topic.name(), record.key())) + ' '
            + Type.literal(topic.value().deserializer().deserialize(topic.name(), record.value()))
            + " @" + record.timestamp() + spelled(record.headers()));
    }

    void store(StateStore store) {
        if (store instanceof TimestampedKeyValueStore<?, ?> timestamped) {
            line("store " + store.name() + " timestamped");
            for (KeyValue<?, ?> entry : entries(timestamped)) {
                ValueAndTimestamp<?> stored = (ValueAndTimestamp<?>) entry.value;
                line("  " + Type.literal(entry.key) + ' ' + Type.literal(stored.value()) + " @" + stored.timestamp());
            }
        } else if (store instanceof KeyValueStore<?, ?> plain) {
            line("store " + store.name() + " plain");
            for (KeyValue<?, ?> entry : entries(plain)) {
                line("  " + Type.literal(entry.key) + ' ' + Type.literal(entry.value));
            }
        } else {
            throw new IllegalStateException("no dump for " + store);
        }
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

    private static <K, V> List<KeyValue<K, V>> entries(KeyValueStore<K, V> store) {
        List<KeyValue<K, V>> entries = new ArrayList<>();
        try (KeyValueIterator<K, V> all = store.all()) {
            all.forEachRemaining(entries::add);
        }
        return entries;
    }

    private static Throwable root(Throwable reason) {
        return reason.getCause() == null ? reason : root(reason.getCause());
    }
}
