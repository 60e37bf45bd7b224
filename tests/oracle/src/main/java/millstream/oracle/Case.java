package millstream.oracle;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;

/** A named topology and the script that is played to it. */
final class Case {
    /** The serdes of a topic's keys and values. */
    record Topic(String name, Type<?> key, Type<?> value) {}

    /** Something that is done to the running topology. */
    sealed interface Step permits Pipe, WallClock {}

    record Pipe(String topic, Object key, Object value, long timestamp, Headers headers) implements Step {}

    record WallClock(long advanceMs) implements Step {}

    final String name;
    final Supplier<Topology> topology;
    final Map<String, Topic> inputs = new LinkedHashMap<>();
    final Map<String, Topic> outputs = new LinkedHashMap<>();
    final List<Step> steps = new ArrayList<>();

    private Case(String name, Supplier<Topology> topology) {
        this.name = name;
        this.topology = topology;
    }

    /** A case written in the DSL. */
    static Case dsl(String name, Consumer<StreamsBuilder> body) {
        return new Case(name, () -> {
            StreamsBuilder builder = new StreamsBuilder();
            body.accept(builder);
            return builder.build();
        });
    }

    /** A case written in the DSL, with an optimisation of the topology. */
    static Case optimized(String name, String optimization, Consumer<StreamsBuilder> body) {
        return new Case(name, () -> {
            StreamsBuilder builder = new StreamsBuilder();
            body.accept(builder);
            Properties properties = new Properties();
            properties.setProperty(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, optimization);
            return builder.build(properties);
        });
    }

    /** A case written in the Processor API. */
    static Case papi(String name, Consumer<Topology> body) {
        return new Case(name, () -> {
            Topology topology = new Topology();
            body.accept(topology);
            return topology;
        });
    }

    Case input(String topic, Type<?> key, Type<?> value) {
        inputs.put(topic, new Topic(topic, key, value));
        return this;
    }

    Case output(String topic, Type<?> key, Type<?> value) {
        outputs.put(topic, new Topic(topic, key, value));
        return this;
    }

    /** Pipes one record; `headers` alternates names and values. */
    Case pipe(String topic, Object key, Object value, long timestamp, String... headers) {
        steps.add(new Pipe(topic, key, value, timestamp, headers(headers)));
        return this;
    }

    Case wallClock(long advanceMs) {
        steps.add(new WallClock(advanceMs));
        return this;
    }

    /** Headers from alternating names and values; a value may be null. */
    static Headers headers(String... namesAndValues) {
        Headers headers = new RecordHeaders();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            String value = namesAndValues[i + 1];
            headers.add(namesAndValues[i], value == null ? null : value.getBytes(StandardCharsets.UTF_8));
        }
        return headers;
    }
}
