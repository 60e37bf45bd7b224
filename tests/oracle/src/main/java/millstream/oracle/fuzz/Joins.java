package millstream.oracle.fuzz;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.function.BiFunction;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.state.KeyValueStore;

/** Joins of a spec. Nodes are called "j" and the number of the step if they are named, stores of streams "w". */
final class Joins {
    private Joins() {}

    static KStream<Object, Object> ofStreams(KStream<Object, Object> left, KStream<Object, Object> right, JsonNode step) {
        StreamJoined<Object, Object, Object> joined = StreamJoined.with(serde(step, 0), serde(step, 1), serde(step, 2));
        if (isNamed(step)) {
            joined = joined.withName(name("j", step));
        }
        if (step.get("named_stores").asBoolean()) {
            joined = joined.withStoreName(name("w", step));
        }
        JoinWindows windows = windows(step.get("join_windows"));
        boolean withKey = withKey(step);
        return switch (step.get("kind").asText()) {
            case "join" -> withKey
                ? left.join(right, keyed(step), windows, joined) : left.join(right, plain(step), windows, joined);
            case "left_join" -> withKey
                ? left.leftJoin(right, keyed(step), windows, joined)
                : left.leftJoin(right, plain(step), windows, joined);
            case "outer_join" -> withKey
                ? left.outerJoin(right, keyed(step), windows, joined)
                : left.outerJoin(right, plain(step), windows, joined);
            default -> throw new IllegalArgumentException("no join " + step);
        };
    }

    static KStream<Object, Object> withTable(KStream<Object, Object> stream, KTable<Object, Object> table, JsonNode step) {
        Joined<Object, Object, Object> joined = Joined.with(serde(step, 0), serde(step, 1), serde(step, 2));
        if (isNamed(step)) {
            joined = joined.withName(name("j", step));
        }
        if (!step.get("grace").isNull()) {
            joined = joined.withGracePeriod(ms(step, "grace"));
        }
        if (isLeft(step)) {
            return withKey(step)
                ? stream.leftJoin(table, keyed(step), joined) : stream.leftJoin(table, plain(step), joined);
        }
        return withKey(step) ? stream.join(table, keyed(step), joined) : stream.join(table, plain(step), joined);
    }

    static KStream<Object, Object> withGlobalTable(
            KStream<Object, Object> stream, GlobalKTable<Object, Object> table,
            KeyValueMapper<Object, Object, Object> keyOf, JsonNode step) {
        if (isNamed(step)) {
            Named named = Named.as(name("j", step));
            if (isLeft(step)) {
                return withKey(step)
                    ? stream.leftJoin(table, keyOf, keyed(step), named)
                    : stream.leftJoin(table, keyOf, plain(step), named);
            }
            return withKey(step)
                ? stream.join(table, keyOf, keyed(step), named) : stream.join(table, keyOf, plain(step), named);
        }
        if (isLeft(step)) {
            return withKey(step)
                ? stream.leftJoin(table, keyOf, keyed(step)) : stream.leftJoin(table, keyOf, plain(step));
        }
        return withKey(step) ? stream.join(table, keyOf, keyed(step)) : stream.join(table, keyOf, plain(step));
    }

    /** Joiners of tables have no key in Kafka: they are drawn without one. */
    static KTable<Object, Object> ofTables(
            KTable<Object, Object> left, KTable<Object, Object> right, JsonNode step,
            Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store) {
        ValueJoiner<Object, Object, Object> joiner = plain(step);
        Named named = isNamed(step) ? Named.as(name("j", step)) : null;
        return switch (step.get("kind").asText()) {
            case "join" -> store == null
                ? named == null ? left.join(right, joiner) : left.join(right, joiner, named)
                : named == null ? left.join(right, joiner, store) : left.join(right, joiner, named, store);
            case "left_join" -> store == null
                ? named == null ? left.leftJoin(right, joiner) : left.leftJoin(right, joiner, named)
                : named == null ? left.leftJoin(right, joiner, store) : left.leftJoin(right, joiner, named, store);
            case "outer_join" -> store == null
                ? named == null ? left.outerJoin(right, joiner) : left.outerJoin(right, joiner, named)
                : named == null ? left.outerJoin(right, joiner, store) : left.outerJoin(right, joiner, named, store);
            default -> throw new IllegalArgumentException("no join " + step);
        };
    }

    /** Joiners have no key here, either. */
    static KTable<Object, Object> byForeignKey(
            KTable<Object, Object> left, KTable<Object, Object> right, KeyValueMapper<Object, Object, Object> keyOf,
            JsonNode step, Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store) {
        BiFunction<Object, Object, Object> extractor = keyOf::apply;
        ValueJoiner<Object, Object, Object> joiner = plain(step);
        if (isNamed(step)) {
            TableJoined<Object, Object> named = TableJoined.as(name("j", step));
            if (isLeft(step)) {
                return store == null
                    ? left.leftJoin(right, extractor, joiner, named)
                    : left.leftJoin(right, extractor, joiner, named, store);
            }
            return store == null
                ? left.join(right, extractor, joiner, named) : left.join(right, extractor, joiner, named, store);
        }
        if (isLeft(step)) {
            return store == null
                ? left.leftJoin(right, extractor, joiner) : left.leftJoin(right, extractor, joiner, store);
        }
        return store == null ? left.join(right, extractor, joiner) : left.join(right, extractor, joiner, store);
    }

    private static ValueJoiner<Object, Object, Object> plain(JsonNode step) {
        return (left, right) -> Functions.joined(step.get("joiner"), null, left, right);
    }

    private static ValueJoinerWithKey<Object, Object, Object, Object> keyed(JsonNode step) {
        return (key, left, right) -> Functions.joined(step.get("joiner"), key, left, right);
    }

    private static JoinWindows windows(JsonNode windows) {
        long most = Math.max(windows.get("before").asLong(), windows.get("after").asLong());
        return JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(most), ms(windows, "grace"))
            .before(ms(windows, "before")).after(ms(windows, "after"));
    }

    private static Duration ms(JsonNode node, String name) {
        return Duration.ofMillis(node.get(name).asLong());
    }

    private static Serde<Object> serde(JsonNode step, int number) {
        return Types.serde(step.get("types").get(number));
    }

    private static boolean isNamed(JsonNode step) {
        return step.get("named").asBoolean();
    }

    private static boolean isLeft(JsonNode step) {
        return step.get("kind").asText().equals("left_join");
    }

    private static boolean withKey(JsonNode step) {
        return step.get("with_key").asBoolean();
    }

    private static String name(String prefix, JsonNode step) {
        return prefix + step.get("id").asInt();
    }
}
