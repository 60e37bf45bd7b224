package millstream.oracle.fuzz;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.test.TestRecord;

/** Plays one request, and answers with all that could be seen: outputs of each action by topic, and stores. */
final class Play {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    private final JsonNode request;
    private final Path stateDirectory;
    private final ObjectNode answer = JSON.objectNode();
    private final Map<String, ArrayNode> produced = new HashMap<>();
    private final Build build = new Build(this::saw);

    private Play(JsonNode request, Path stateDirectory) {
        this.request = request;
        this.stateDirectory = stateDirectory;
    }

    static ObjectNode play(JsonNode request, Path stateDirectory) {
        Play play = new Play(request, stateDirectory);
        play.run();
        return play.answer;
    }

    private void run() {
        TopologyTestDriver driver;
        try {
            Topology topology = build.topology(request.get("steps"), request.get("optimization").asText());
            answer.put("topology", topology.describe().toString());
            driver = new TopologyTestDriver(topology, config(), Instant.EPOCH);
        } catch (RuntimeException refusal) {
            answer.put("refused", refusal + " because of " + root(refusal));
            return;
        }
        boolean failed = false;
        try {
            failed = !playActions(driver);
            if (!failed) {
                answer.set("stores", Stores.dump(driver, request));
            }
        } finally {
            close(driver, failed);
        }
    }

    private boolean playActions(TopologyTestDriver driver) {
        Map<String, TestInputTopic<String, Object>> inputs = new HashMap<>();
        build.inputs.forEach((topic, type) -> {
            Serializer<Object> values = Types.serde(type).serializer();
            inputs.put(topic, driver.createInputTopic(topic, Serdes.String().serializer(), values));
        });
        Map<String, TestOutputTopic<Object, Object>> outputs = new HashMap<>();
        build.sinks.forEach((topic, types) -> outputs.put(topic, driver.createOutputTopic(
            topic, Types.serde(types.get(0)).deserializer(), Types.serde(types.get(1)).deserializer())));
        ArrayNode actions = answer.putArray("actions");
        for (JsonNode action : request.get("actions")) {
            produced.clear();
            try {
                act(driver, inputs, action);
            } catch (RuntimeException error) {
                answer.put("error", root(error).toString());
                return false;
            }
            outputs.forEach((topic, output) -> output.readRecordsToList().forEach(record -> wrote(topic, record)));
            ObjectNode byTopic = actions.addObject();
            produced.forEach(byTopic::set);
        }
        return true;
    }

    private static void act(
            TopologyTestDriver driver, Map<String, TestInputTopic<String, Object>> inputs, JsonNode action) {
        if (action.has("clock")) {
            driver.advanceWallClockTime(Duration.ofMillis(action.get("clock").asLong()));
            return;
        }
        TestInputTopic<String, Object> topic = inputs.get(action.get("topic").asText());
        if (topic != null) {
            topic.pipeInput(new TestRecord<>(
                (String) Types.value(action.get("key")), Types.value(action.get("value")),
                headers(action.get("headers")), action.get("at").asLong()));
        }
    }

    private static Headers headers(JsonNode pairs) {
        Headers headers = new RecordHeaders();
        for (JsonNode pair : pairs) {
            headers.add(pair.get(0).asText(), pair.get(1).asText().getBytes(StandardCharsets.UTF_8));
        }
        return headers;
    }

    private void wrote(String topic, TestRecord<Object, Object> record) {
        ArrayNode row = produced.computeIfAbsent(topic, unused -> JSON.arrayNode()).addArray();
        row.add(Types.json(record.key())).add(Types.json(record.value())).add(record.timestamp());
        ArrayNode headers = row.addArray();
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(new String(header.value(), StandardCharsets.UTF_8));
        }
    }

    private void saw(String peek, KeyValue<Object, Object> pair) {
        produced.computeIfAbsent(peek, unused -> JSON.arrayNode())
            .addArray().add(Types.json(pair.key)).add(Types.json(pair.value));
    }

    private static Throwable root(Throwable error) {
        return error.getCause() == null ? error : root(error.getCause());
    }

    private static void close(TopologyTestDriver driver, boolean failed) {
        try {
            driver.close();
        } catch (RuntimeException error) {
            if (!failed) {
                throw error;
            }
        }
    }

    private Properties config() {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "fuzz");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "unused:9092");
        config.put(StreamsConfig.STATE_DIR_CONFIG, stateDirectory.toString());
        // Kafka looks for closed windows and for unmatched records of joins at most once per second of the machine's
        // clock, unless it is told not to wait.
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        return config;
    }
}
