package millstream.oracle.fuzz;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.BiConsumer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** From the steps of a spec to Kafka's topology. `tests/oracle_fuzz/build.py` is the same for Millstream. */
final class Build {
    /** Value types of the topics that are read. */
    final Map<String, JsonNode> inputs = new LinkedHashMap<>();
    /** Key and value types of the topics that are written. */
    final Map<String, JsonNode> sinks = new LinkedHashMap<>();

    private final StreamsBuilder builder = new StreamsBuilder();
    private final Map<Integer, Object> handles = new HashMap<>();
    private final BiConsumer<String, KeyValue<Object, Object>> seen;

    /** `seen` is told what every `peek` sees. */
    Build(BiConsumer<String, KeyValue<Object, Object>> seen) {
        this.seen = seen;
    }

    Topology topology(JsonNode steps, String optimization) {
        for (JsonNode step : steps) {
            Object handle = made(step);
            if (handle != null) {
                handles.put(step.get("id").asInt(), handle);
            }
        }
        Properties properties = new Properties();
        properties.setProperty(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, optimization);
        return builder.build(properties);
    }

    @SuppressWarnings("unchecked")
    private Object made(JsonNode step) {
        return switch (step.get("op").asText()) {
            case "stream" -> builder.stream(input(step), consumed(step));
            case "table" -> table(step);
            case "filter" -> stream(step).filter(predicate(step.get("if")));
            case "filter_not" -> stream(step).filterNot(predicate(step.get("if")));
            case "map" -> stream(step).map((k, v) -> KeyValue.pair(
                Functions.newKey(step.get("key"), k, v), Functions.newValue(step.get("value"), k, v)));
            case "map_values" -> stream(step).mapValues(v -> Functions.newValue(step.get("value"), null, v));
            case "map_values_with_key" ->
                stream(step).mapValues((k, v) -> Functions.newValue(step.get("value"), k, v));
            case "flat_map" -> stream(step).flatMap((k, v) -> pairs(step, k, v));
            case "flat_map_values" -> stream(step).flatMapValues(v -> Functions.several(step.get("values"), v));
            case "select_key" -> stream(step).selectKey(newKey(step.get("key")));
            case "peek" -> stream(step).peek((k, v) -> seen.accept(name("peek", step), KeyValue.pair(k, v)));
            case "merge" -> stream(step).merge(stream(step, 1));
            case "split" -> split(step);
            case "branch" -> ((List<?>) parent(step, 0)).get(step.get("number").asInt());
            case "repartition" -> stream(step).repartition(repartitioned(step));
            case "process" -> processed(step);
            case "to_table" -> stream(step).toTable(keyValues(step));
            case "to" -> to(step);
            case "group_by_key" -> stream(step).groupByKey(grouped(step));
            case "group_by" -> stream(step).groupBy(newKey(step.get("key")), grouped(step));
            case "aggregation" -> aggregation(step);
            case "cogroup" -> cogroup(step);
            case "to_stream" -> step.get("key").isNull()
                ? table(step, 0).toStream() : table(step, 0).toStream(newKey(step.get("key")));
            case "table_filter" -> tableFilter(step);
            case "table_map_values" -> tableMapValues(step);
            case "table_group_by" -> table(step, 0).groupBy((k, v) -> KeyValue.pair(
                Functions.newKey(step.get("key"), k, v), Functions.newValue(step.get("value"), k, v)), grouped(step));
            case "table_aggregation" -> tableAggregation(step);
            case "suppress" -> suppress(step);
            case "stream_join" -> Joins.ofStreams(stream(step), stream(step, 1), step);
            case "stream_table_join" -> Joins.withTable(stream(step), table(step, 1), step);
            case "global_table" -> globalTable(step);
            case "global_table_join" -> Joins.withGlobalTable(
                stream(step), (GlobalKTable<Object, Object>) parent(step, 1), newKey(step.get("key_of")), step);
            case "table_join" -> Joins.ofTables(
                table(step, 0), table(step, 1), step, hasStore(step) ? keyValues(step) : null);
            case "foreign_key_join" -> Joins.byForeignKey(
                table(step, 0), table(step, 1), newKey(step.get("foreign_key")), step,
                hasStore(step) ? keyValues(step) : null);
            default -> throw new IllegalArgumentException("no step " + step);
        };
    }

    // What steps name.

    private static String name(String prefix, JsonNode step) {
        return prefix + step.get("id").asInt();
    }

    private Object parent(JsonNode step, int number) {
        return handles.get(step.get("of").get(number).asInt());
    }

    private KStream<Object, Object> stream(JsonNode step) {
        return stream(step, 0);
    }

    @SuppressWarnings("unchecked")
    private KStream<Object, Object> stream(JsonNode step, int number) {
        return (KStream<Object, Object>) parent(step, number);
    }

    @SuppressWarnings("unchecked")
    private KTable<Object, Object> table(JsonNode step, int number) {
        return (KTable<Object, Object>) parent(step, number);
    }

    @SuppressWarnings("unchecked")
    private KGroupedStream<Object, Object> groupedStream(JsonNode step, int number) {
        return (KGroupedStream<Object, Object>) parent(step, number);
    }

    private static Serde<Object> keySerde(JsonNode step) {
        return Types.serde(step.get("types").get(0));
    }

    private static Serde<Object> valueSerde(JsonNode step) {
        return Types.serde(step.get("types").get(1));
    }

    private static Consumed<Object, Object> consumed(JsonNode step) {
        return Consumed.with(keySerde(step), valueSerde(step));
    }

    private String input(JsonNode step) {
        String topic = step.get("topic").asText();
        inputs.put(topic, step.get("types").get(1));
        return topic;
    }

    private static Grouped<Object, Object> grouped(JsonNode step) {
        Grouped<Object, Object> grouped = Grouped.with(keySerde(step), valueSerde(step));
        return step.get("named").asBoolean() ? grouped.withName(name("g", step)) : grouped;
    }

    private static Repartitioned<Object, Object> repartitioned(JsonNode step) {
        Repartitioned<Object, Object> repartitioned = Repartitioned.with(keySerde(step), valueSerde(step));
        return step.get("named").asBoolean() ? repartitioned.withName(name("r", step)) : repartitioned;
    }

    private static boolean hasStore(JsonNode step) {
        return !step.get("store").isNull();
    }

    /** The types of a step with a windowed table are those of the keys inside. */
    private static <S extends StateStore> Materialized<Object, Object, S> materialized(JsonNode step) {
        JsonNode store = step.get("store");
        Materialized<Object, Object, S> made = store.get("named").asBoolean()
            ? Materialized.<Object, Object, S>as(name("s", step)) : Materialized.with(keySerde(step), valueSerde(step));
        made = made.withKeySerde(keySerde(step)).withValueSerde(valueSerde(step));
        if (!store.get("cached").asBoolean()) {
            made = made.withCachingDisabled();
        }
        return store.get("retention").isNull()
            ? made : made.withRetention(Duration.ofMillis(store.get("retention").asLong()));
    }

    private static Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> keyValues(JsonNode step) {
        JsonNode versioned = step.get("store").get("versioned");
        if (versioned.isNull()) {
            return materialized(step);
        }
        Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> made = Materialized.<Object, Object>as(
            Stores.persistentVersionedKeyValueStore(name("s", step), Duration.ofMillis(versioned.asLong())));
        return made.withKeySerde(keySerde(step)).withValueSerde(valueSerde(step));
    }

    // Functions.

    private static Predicate<Object, Object> predicate(JsonNode f) {
        return (k, v) -> Functions.holds(f, k, v);
    }

    private static KeyValueMapper<Object, Object, Object> newKey(JsonNode f) {
        return (k, v) -> Functions.newKey(f, k, v);
    }

    private static List<KeyValue<Object, Object>> pairs(JsonNode step, Object key, Object value) {
        return Functions.several(step.get("values"), value).stream()
            .map(one -> KeyValue.pair(Functions.newKey(step.get("key"), key, one), one)).toList();
    }

    // Steps that take more than a line.

    private Object table(JsonNode step) {
        return hasStore(step)
            ? builder.table(input(step), consumed(step), keyValues(step)) : builder.table(input(step), consumed(step));
    }

    private Object globalTable(JsonNode step) {
        String topic = input(step);
        if (!step.get("named").asBoolean()) {
            return builder.globalTable(topic, consumed(step));
        }
        return builder.globalTable(topic, consumed(step),
            Materialized.<Object, Object, KeyValueStore<Bytes, byte[]>>as(name("s", step))
                .withKeySerde(keySerde(step)).withValueSerde(valueSerde(step)));
    }

    private Object to(JsonNode step) {
        String topic = name("out", step);
        sinks.put(topic, step.get("types"));
        stream(step).to(topic, Produced.with(keySerde(step), valueSerde(step)));
        return null;
    }

    private List<KStream<Object, Object>> split(JsonNode step) {
        String prefix = name("b", step) + '-';
        BranchedKStream<Object, Object> branched = stream(step).split(Named.as(prefix));
        for (JsonNode one : step.get("ifs")) {
            branched = branched.branch(predicate(one));
        }
        boolean hasDefault = step.get("default").asBoolean();
        Map<String, KStream<Object, Object>> branches =
            hasDefault ? branched.defaultBranch() : branched.noDefaultBranch();
        List<KStream<Object, Object>> streams = new ArrayList<>();
        for (int number = 1; number <= step.get("ifs").size(); number++) {
            streams.add(branches.get(prefix + number));
        }
        if (hasDefault) {
            streams.add(branches.get(prefix + 0));
        }
        return streams;
    }

    private KStream<Object, Object> processed(JsonNode step) {
        String store = name("s", step);
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(store), Serdes.String(), Serdes.Long()));
        return step.get("fixed_key").asBoolean()
            ? stream(step).processValues(() -> new Remembering.FixedKey(store), store)
            : stream(step).process(() -> new Remembering.AnyKey(store, step.get("every")), store);
    }

    private Object aggregation(JsonNode step) {
        JsonNode windows = step.get("windows");
        KGroupedStream<Object, Object> grouped = groupedStream(step, 0);
        if (windows.isNull()) {
            return Aggregations.plain(grouped, step, keyValues(step));
        }
        if (windows.get("kind").asText().equals("session")) {
            SessionWindowedKStream<Object, Object> windowed =
                grouped.windowedBy(sessions(windows)).emitStrategy(emit(step));
            return Aggregations.inSessions(windowed, step, Build.<SessionStore<Bytes, byte[]>>materialized(step));
        }
        return Aggregations.inWindows(
            windowedBy(grouped, windows).emitStrategy(emit(step)), step,
            Build.<WindowStore<Bytes, byte[]>>materialized(step));
    }

    private static EmitStrategy emit(JsonNode step) {
        return step.get("emit").asText().equals("close")
            ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
    }

    private static TimeWindowedKStream<Object, Object> windowedBy(
            KGroupedStream<Object, Object> grouped, JsonNode windows) {
        return switch (windows.get("kind").asText()) {
            case "time" -> grouped.windowedBy(times(windows));
            case "sliding" -> grouped.windowedBy(sliding(windows));
            case "unlimited" -> grouped.windowedBy(unlimited(windows));
            default -> throw new IllegalArgumentException("no windows " + windows);
        };
    }

    private static Duration duration(JsonNode windows, String name) {
        return Duration.ofMillis(windows.get(name).asLong());
    }

    private static TimeWindows times(JsonNode windows) {
        return TimeWindows.ofSizeAndGrace(duration(windows, "size"), duration(windows, "grace"))
            .advanceBy(duration(windows, "advance"));
    }

    private static SlidingWindows sliding(JsonNode windows) {
        return SlidingWindows.ofTimeDifferenceAndGrace(duration(windows, "size"), duration(windows, "grace"));
    }

    private static SessionWindows sessions(JsonNode windows) {
        return SessionWindows.ofInactivityGapAndGrace(duration(windows, "size"), duration(windows, "grace"));
    }

    private static UnlimitedWindows unlimited(JsonNode windows) {
        return UnlimitedWindows.of().startOn(Instant.ofEpochMilli(windows.get("start").asLong()));
    }

    private Object cogroup(JsonNode step) {
        CogroupedKStream<Object, Object> cogrouped = null;
        for (int number = 0; number < step.get("of").size(); number++) {
            JsonNode f = step.get("folds").get(number);
            KGroupedStream<Object, Object> grouped = groupedStream(step, number);
            cogrouped = cogrouped == null
                ? grouped.cogroup((k, v, agg) -> Functions.fold(f, k, v, agg))
                : cogrouped.cogroup(grouped, (k, v, agg) -> Functions.fold(f, k, v, agg));
        }
        JsonNode first = step.get("folds").get(0);
        Initializer<Object> initial = () -> Functions.initial(first);
        JsonNode windows = step.get("windows");
        if (windows.isNull()) {
            return cogrouped.aggregate(initial, keyValues(step));
        }
        Materialized<Object, Object, WindowStore<Bytes, byte[]>> inWindows = materialized(step);
        return switch (windows.get("kind").asText()) {
            case "time" -> cogrouped.windowedBy(times(windows)).aggregate(initial, inWindows);
            case "sliding" -> cogrouped.windowedBy(sliding(windows)).aggregate(initial, inWindows);
            case "unlimited" -> cogrouped.windowedBy(unlimited(windows)).aggregate(initial, inWindows);
            case "session" -> {
                Merger<Object, Object> merger = (k, one, other) -> Functions.fold(step.get("merger"), k, other, one);
                yield cogrouped.windowedBy(sessions(windows)).aggregate(
                    initial, merger, Build.<SessionStore<Bytes, byte[]>>materialized(step));
            }
            default -> throw new IllegalArgumentException("no windows " + windows);
        };
    }

    private KTable<Object, Object> tableFilter(JsonNode step) {
        KTable<Object, Object> table = table(step, 0);
        Predicate<Object, Object> predicate = predicate(step.get("if"));
        if (step.get("negated").asBoolean()) {
            return hasStore(step) ? table.filterNot(predicate, keyValues(step)) : table.filterNot(predicate);
        }
        return hasStore(step) ? table.filter(predicate, keyValues(step)) : table.filter(predicate);
    }

    private KTable<Object, Object> tableMapValues(JsonNode step) {
        KTable<Object, Object> table = table(step, 0);
        JsonNode f = step.get("value");
        if (step.get("with_key").asBoolean()) {
            return hasStore(step)
                ? table.mapValues((k, v) -> Functions.newValue(f, k, v), keyValues(step))
                : table.mapValues((k, v) -> Functions.newValue(f, k, v));
        }
        return hasStore(step)
            ? table.mapValues(v -> Functions.newValue(f, null, v), keyValues(step))
            : table.mapValues(v -> Functions.newValue(f, null, v));
    }

    @SuppressWarnings("unchecked")
    private Object tableAggregation(JsonNode step) {
        return Aggregations.ofTable((KGroupedTable<Object, Object>) parent(step, 0), step, keyValues(step));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private Object suppress(JsonNode step) {
        Suppressed suppressed;
        JsonNode records = step.get("max_records");
        if (step.get("until").isNull()) {
            suppressed = Suppressed.untilWindowCloses(records.isNull()
                ? Suppressed.BufferConfig.unbounded()
                : Suppressed.BufferConfig.maxRecords(records.asLong()).shutDownWhenFull());
        } else {
            Duration limit = Duration.ofMillis(step.get("until").asLong());
            Suppressed.BufferConfig buffer = records.isNull()
                ? Suppressed.BufferConfig.unbounded()
                : step.get("when_full").asText().equals("shut-down")
                    ? Suppressed.BufferConfig.maxRecords(records.asLong()).shutDownWhenFull()
                    : Suppressed.BufferConfig.maxRecords(records.asLong());
            suppressed = Suppressed.untilTimeLimit(limit, buffer);
        }
        return table(step, 0).suppress(suppressed);
    }
}
