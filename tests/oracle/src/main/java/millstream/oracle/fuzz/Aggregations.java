package millstream.oracle.fuzz;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** count, reduce and aggregate on whatever has them; sum, min and max as what one writes for them in Kafka. */
final class Aggregations {
    private Aggregations() {}

    private record Given(
        Initializer<Object> initial,
        Aggregator<Object, Object, Object> add,
        Reducer<Object> reduce,
        Merger<Object, Object> merge) {}

    private static Given given(JsonNode step, String fold) {
        String how = step.get("how").asText();
        JsonNode of = step.get("number");
        if (!of.isNull()) {
            return new Given(
                () -> null,
                (k, v, agg) -> Functions.ofNumbers(how, agg, (Long) Functions.newValue(of, null, v)),
                null,
                (k, one, other) -> one == null ? other : Functions.ofNumbers(how, one, (Long) other));
        }
        JsonNode f = step.get(fold);
        return new Given(
            () -> Functions.initial(f),
            (k, v, agg) -> Functions.fold(f, k, v, agg),
            (agg, v) -> Functions.fold(f, null, v, agg),
            (k, one, other) -> Functions.fold(step.get("merger"), k, other, one));
    }

    @SuppressWarnings("unchecked")
    private static <K, V> Materialized<K, Long, KeyValueStore<Bytes, byte[]>> ofLongs(
            Materialized<?, ?, KeyValueStore<Bytes, byte[]>> store) {
        return (Materialized<K, Long, KeyValueStore<Bytes, byte[]>>) store;
    }

    static Object plain(
            KGroupedStream<Object, Object> grouped,
            JsonNode step,
            Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store) {
        Given given = given(step, "fold");
        return switch (step.get("how").asText()) {
            case "count" -> grouped.count(ofLongs(store));
            case "reduce" -> grouped.reduce(given.reduce, store);
            default -> grouped.aggregate(given.initial, given.add, store);
        };
    }

    @SuppressWarnings("unchecked")
    static Object inWindows(
            TimeWindowedKStream<Object, Object> windowed,
            JsonNode step,
            Materialized<Object, Object, WindowStore<Bytes, byte[]>> store) {
        Given given = given(step, "fold");
        return switch (step.get("how").asText()) {
            case "count" -> windowed.count(
                (Materialized<Object, Long, WindowStore<Bytes, byte[]>>) (Materialized<Object, ?, ?>) store);
            case "reduce" -> windowed.reduce(given.reduce, store);
            default -> windowed.aggregate(given.initial, given.add, store);
        };
    }

    @SuppressWarnings("unchecked")
    static Object inSessions(
            SessionWindowedKStream<Object, Object> windowed,
            JsonNode step,
            Materialized<Object, Object, SessionStore<Bytes, byte[]>> store) {
        Given given = given(step, "fold");
        return switch (step.get("how").asText()) {
            case "count" -> windowed.count(
                (Materialized<Object, Long, SessionStore<Bytes, byte[]>>) (Materialized<Object, ?, ?>) store);
            case "reduce" -> windowed.reduce(given.reduce, store);
            default -> windowed.aggregate(given.initial, given.add, given.merge, store);
        };
    }

    static KTable<Object, ?> ofTable(
            KGroupedTable<Object, Object> grouped,
            JsonNode step,
            Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store) {
        Given add = given(step, "fold");
        Given subtract = given(step, "subtract");
        return switch (step.get("how").asText()) {
            case "count" -> grouped.count(ofLongs(store));
            case "reduce" -> grouped.reduce(add.reduce, subtract.reduce, store);
            default -> grouped.aggregate(add.initial, add.add, subtract.add, store);
        };
    }
}
