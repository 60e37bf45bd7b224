package millstream.oracle.fuzz;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;

/** The contents of all stores that the program has named: "s" and the number of a step. */
final class Stores {
    private Stores() {}

    static ObjectNode dump(TopologyTestDriver driver, JsonNode request) {
        ObjectNode stores = JsonNodeFactory.instance.objectNode();
        for (Map.Entry<String, StateStore> entry : driver.getAllStateStores().entrySet()) {
            if (entry.getKey().matches("s[0-9]+") && entry.getValue() != null) {
                dump(entry.getValue(), stores.putArray(entry.getKey()), request);
            }
        }
        return stores;
    }

    @SuppressWarnings("unchecked")
    private static void dump(StateStore store, ArrayNode rows, JsonNode request) {
        if (store instanceof VersionedKeyValueStore<?, ?> versioned) {
            dumpVersions((VersionedKeyValueStore<Object, Object>) versioned, rows, request);
        } else if (store instanceof WindowStore<?, ?> windows) {
            rows(windows.all(), rows);
        } else if (store instanceof SessionStore<?, ?> sessions) {
            rows((KeyValueIterator<Windowed<Object>, Object>) (KeyValueIterator<?, ?>) sessions.fetch(null, null), rows);
        } else if (store instanceof KeyValueStore<?, ?> plain) {
            rows(plain.all(), rows);
        } else {
            throw new IllegalStateException("no dump for " + store);
        }
    }

    private static <K, V> void rows(KeyValueIterator<K, V> all, ArrayNode rows) {
        try (all) {
            all.forEachRemaining(entry -> {
                ArrayNode row = rows.addArray().add(Types.json(entry.key));
                if (entry.value instanceof ValueAndTimestamp<?> stored) {
                    row.add(Types.json(stored.value())).add(stored.timestamp());
                } else {
                    row.add(Types.json(entry.value));
                }
            });
        }
    }

    private static void dumpVersions(VersionedKeyValueStore<Object, Object> store, ArrayNode rows, JsonNode request) {
        for (JsonNode key : request.get("keys")) {
            add(rows, key, "latest", store.get(key.asText()));
            for (JsonNode time : request.get("times")) {
                add(rows, key, time.asText(), store.get(key.asText(), time.asLong()));
            }
        }
    }

    private static void add(ArrayNode rows, JsonNode key, String when, VersionedRecord<Object> found) {
        if (found != null) {
            rows.addArray().add(key).add(when).add(Types.json(found.value())).add(found.timestamp());
        }
    }
}
