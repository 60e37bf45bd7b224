package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.ms;

import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.state.KeyValueStore;

/** What cases of joins are made of: words on the left, words on the right, and "left+right" as the result. */
final class JoinDsl {
    static final ValueJoiner<Object, Object, String> PLUS = (left, right) -> left + "+" + right;
    static final ValueJoinerWithKey<String, Object, Object, String> KEYED =
        (key, left, right) -> key + ":" + left + "+" + right;

    /** Which records go out without a partner. */
    enum Kind {
        INNER("join"), LEFT("left_join"), OUTER("outer_join");

        final String label;

        Kind(String label) {
            this.label = label;
        }

        <V1, V2> KStream<String, String> of(
                KStream<String, V1> left, KStream<String, V2> right, JoinWindows windows,
                StreamJoined<String, V1, V2> joined) {
            return switch (this) {
                case INNER -> left.join(right, PLUS, windows, joined);
                case LEFT -> left.leftJoin(right, PLUS, windows, joined);
                case OUTER -> left.outerJoin(right, PLUS, windows, joined);
            };
        }

        KStream<String, String> withKey(
                KStream<String, String> left, KStream<String, String> right, JoinWindows windows) {
            return switch (this) {
                case INNER -> left.join(right, KEYED, windows, joined());
                case LEFT -> left.leftJoin(right, KEYED, windows, joined());
                case OUTER -> left.outerJoin(right, KEYED, windows, joined());
            };
        }

        <K, V1, V2> KTable<K, String> of(KTable<K, V1> left, KTable<K, V2> right) {
            return switch (this) {
                case INNER -> left.join(right, PLUS);
                case LEFT -> left.leftJoin(right, PLUS);
                case OUTER -> left.outerJoin(right, PLUS);
            };
        }

        <V1, V2> KTable<String, String> of(
                KTable<String, V1> left, KTable<String, V2> right,
                Materialized<String, String, KeyValueStore<Bytes, byte[]>> store) {
            return switch (this) {
                case INNER -> left.join(right, PLUS, store);
                case LEFT -> left.leftJoin(right, PLUS, store);
                case OUTER -> left.outerJoin(right, PLUS, store);
            };
        }
    }

    private JoinDsl() {}

    static JoinWindows within(long beforeMs, long afterMs, long graceMs) {
        return JoinWindows.ofTimeDifferenceAndGrace(ms(Math.max(beforeMs, afterMs)), ms(graceMs))
            .before(ms(beforeMs)).after(ms(afterMs));
    }

    static StreamJoined<String, String, String> joined() {
        return StreamJoined.with(STRING, STRING, STRING);
    }

    static Joined<String, String, String> lookup() {
        return Joined.with(STRING, STRING, STRING);
    }

    /** Words from `left` and `right`, words to `out`. */
    static Case sides(String name, Consumer<StreamsBuilder> body) {
        return words(dsl(name, body));
    }

    /** The same, with an optimisation of the topology. */
    static Case optimizedSides(String name, String optimization, Consumer<StreamsBuilder> body) {
        return words(Case.optimized(name, optimization, body));
    }

    private static Case words(Case test) {
        return test.input("left", STRING, STRING).input("right", STRING, STRING).output("out", STRING, STRING);
    }

    /** The case without its other inputs. */
    static Case onlyFrom(String topic, Case test) {
        test.inputs.keySet().retainAll(List.of(topic));
        test.steps.removeIf(step -> step instanceof Case.Pipe pipe && !pipe.topic().equals(topic));
        return test;
    }

    /** Pipes records that are spelled "topic key value time"; a dash is null. */
    static Case records(Case test, String... lines) {
        for (String line : lines) {
            String[] parts = line.split(" ");
            boolean number = test.inputs.get(parts[0]).value() == INT64;
            Object value = parts[2].equals("-") ? null : number ? (Object) Long.valueOf(parts[2]) : parts[2];
            test.pipe(parts[0], parts[1].equals("-") ? null : parts[1], value, Long.parseLong(parts[3]));
        }
        return test;
    }
}
