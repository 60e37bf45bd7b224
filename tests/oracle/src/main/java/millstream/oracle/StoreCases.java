package millstream.oracle;

import static millstream.oracle.Case.papi;
import static millstream.oracle.Processes.each;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/** Key-value stores, driven by commands: each record's value is a call, each output's value its result. */
final class StoreCases {
    private StoreCases() {}

    static List<Case> cases() {
        return List.of(
            points(papi("store_points", t -> build(t, plain(), TEXT))),
            points(papi("store_points_cached", t -> build(t, plain().withCachingEnabled(), TEXT))),
            points(papi("store_points_persistent", t -> build(t,
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("store"), STRING, STRING), TEXT))),
            points(papi("store_points_timestamped", t -> build(t, timestamped(), STAMPED))),
            points(papi("store_points_timestamped_cached", t -> build(t, timestamped().withCachingEnabled(), STAMPED))),
            ranges(papi("store_ranges", t -> build(t, plain(), TEXT))),
            ranges(papi("store_ranges_cached", t -> build(t, plain().withCachingEnabled(), TEXT))),
            ranges(papi("store_ranges_persistent", t -> build(t,
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("store"), STRING, STRING), TEXT))),
            ranges(papi("store_ranges_timestamped", t -> build(t, timestamped(), STAMPED))),
            prefixes(papi("store_prefix_scan", t -> build(t, plain(), TEXT))),
            prefixes(papi("store_prefix_scan_cached", t -> build(t, plain().withCachingEnabled(), TEXT))),
            prefixes(papi("store_prefix_scan_timestamped", t -> build(t, timestamped(), STAMPED))),
            commands(papi("store_order_of_int_keys", t -> build(t,
                    Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("store"), INT64, STRING),
                    new Dialect<Long, String>(Long::valueOf, (v, time) -> v, v -> v, INT64.serializer()))),
                "put_all 3=c -1=m 10=j 0=z -20=y 256=b", "all", "reverse_all", "range 0 10", "range -20 -1",
                    "range -1 3", "range 3 -1",
                "range - 3", "range 10 -", "reverse_range 0 256", "delete -1", "range - -"),
            commands(papi("store_number_of_entries", t -> build(t, plain(), TEXT)),
                "number", "put a 1", "put b 2", "put a 3", "number", "delete a", "delete a", "number", "put c null",
                    "number"),
            commands(papi("store_get_of_null_key_fails", t -> build(t, plain(), TEXT)), "put a 1", "get null"),
            commands(papi("store_put_of_null_key_fails", t -> build(t, plain(), TEXT)), "put a 1", "put null 1"));
    }

    /** How commands spell keys and values, and how results show values. */
    private record Dialect<K, V>(
        Function<String, K> key, BiFunction<String, Long, V> value, Function<V, String> shown, Serializer<K> prefix) {}

    private static final Dialect<String, String> TEXT = new Dialect<>(k -> k, (v, time) -> v, v -> v,
        STRING.serializer());

    private static final Dialect<String, ValueAndTimestamp<String>> STAMPED = new Dialect<>(
        k -> k, ValueAndTimestamp::make, v -> v.value() + "@" + v.timestamp(), STRING.serializer());

    private static StoreBuilder<KeyValueStore<String, String>> plain() {
        return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("store"), STRING, STRING);
    }

    private static StoreBuilder<? extends KeyValueStore<String, ValueAndTimestamp<String>>> timestamped() {
        return Stores.timestampedKeyValueStoreBuilder(Stores.inMemoryKeyValueStore("store"), STRING, STRING);
    }

    private static <K, V> void build(Topology topology, StoreBuilder<? extends KeyValueStore<K, V>> store,
        Dialect<K, V> dialect) {
        topology.addSource("commands", STRING.deserializer(), STRING.deserializer(), "in")
            .addProcessor("clerk", obeying(dialect), "commands")
            .addStateStore(store, "clerk")
            .addSink("results", "out", STRING.serializer(), STRING.serializer(), "clerk");
    }

    private static <K, V> ProcessorSupplier<String, String, String, String> obeying(Dialect<K, V> dialect) {
        return each((context, record) -> context.forward(
            record.withValue(obey(context.<KeyValueStore<K, V>>getStateStore("store"), dialect, record))));
    }

    private static <K, V> String obey(KeyValueStore<K, V> store, Dialect<K, V> dialect, Record<String, String> record) {
        String[] words = record.value().split(" ");
        switch (words[0]) {
            case "get":
                return shown(dialect, store.get(key(dialect, words[1])));
            case "put":
                store.put(key(dialect, words[1]), value(dialect, words[2], record.timestamp()));
                return "done";
            case "put_if_absent":
                return shown(dialect,
                    store.putIfAbsent(key(dialect, words[1]), value(dialect, words[2], record.timestamp())));
            case "delete":
                return shown(dialect, store.delete(key(dialect, words[1])));
            case "put_all":
                store.putAll(Arrays.stream(words).skip(1).map(pair -> pair.split("="))
                    .map(pair -> KeyValue.pair(key(dialect, pair[0]), value(dialect, pair[1], record.timestamp())))
                    .toList());
                return "done";
            case "range":
                return shown(dialect, store.range(key(dialect, words[1]), key(dialect, words[2])));
            case "reverse_range":
                return shown(dialect, store.reverseRange(key(dialect, words[1]), key(dialect, words[2])));
            case "prefix_scan":
                return shown(dialect, store.prefixScan(dialect.key.apply(words[1]), dialect.prefix));
            case "all":
                return shown(dialect, store.all());
            case "reverse_all":
                return shown(dialect, store.reverseAll());
            case "number":
                return "" + store.approximateNumEntries();
            default:
                throw new IllegalArgumentException(record.value());
        }
    }

    /** A key as written; "-" is an open end and "null" is null. */
    private static <K, V> K key(Dialect<K, V> dialect, String written) {
        return written.equals("-") || written.equals("null") ? null : dialect.key.apply(written);
    }

    private static <K, V> V value(Dialect<K, V> dialect, String written, long time) {
        return written.equals("null") ? null : dialect.value.apply(written, time);
    }

    private static <K, V> String shown(Dialect<K, V> dialect, V value) {
        return value == null ? "nothing" : dialect.shown.apply(value);
    }

    private static <K, V> String shown(Dialect<K, V> dialect, KeyValueIterator<K, V> entries) {
        List<KeyValue<K, V>> found = new ArrayList<>();
        try (entries) {
            entries.forEachRemaining(found::add);
        }
        return found.stream().map(entry -> entry.key + "=" + shown(dialect, entry.value))
            .collect(Collectors.joining(" "));
    }

    private static Case points(Case test) {
        return commands(test,
            "get a", "put a 1", "get a", "put a 2", "get a", "put_if_absent a 3", "put_if_absent b 4", "get b",
                "delete a", "get a",
            "delete a", "put_all c=5 b=6 c=7", "get b", "get c", "put c null", "get c", "put_if_absent c 8",
                "put_all b=null d=9",
            "get b", "put_if_absent e null", "all");
    }

    private static Case ranges(Case test) {
        return commands(test,
            "all", "range a z", "put_all b=1 d=2 a=3 dd=4 c=5 B=6", "all", "reverse_all", "range b d",
                "reverse_range b d", "range - c",
            "range c -", "range - -", "reverse_range - c", "reverse_range c -", "range d b", "range bb cc",
                "range x y", "range c c",
            "delete c", "range b d", "put c again", "reverse_range a dd");
    }

    private static Case prefixes(Case test) {
        return commands(test,
            "put_all ab=1 a=2 abc=3 b=4 ac=5 aB=6 \u00e4=7", "prefix_scan a", "prefix_scan ab", "prefix_scan abcd",
                "prefix_scan b",
            "prefix_scan \u00e4", "delete ab", "prefix_scan ab", "put ab again", "prefix_scan ab");
    }

    private static Case commands(Case test, String... commands) {
        test.input("in", STRING, STRING).output("out", STRING, STRING);
        for (int i = 0; i < commands.length; i++) {
            test.pipe("in", null, commands[i], i);
        }
        return test;
    }
}
