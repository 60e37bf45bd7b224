package millstream.oracle;

import static millstream.oracle.Case.papi;
import static millstream.oracle.Processes.each;
import static millstream.oracle.Processes.starting;
import static millstream.oracle.Processes.toWords;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.time.Duration;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.AutoOffsetReset;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** Topologies that are put together by hand: addSource, addProcessor, addSink, addStateStore. */
final class ProcessorApiCases {
    private static final Deserializer<String> IN = STRING.deserializer();
    private static final Serializer<String> OUT = STRING.serializer();

    private ProcessorApiCases() {}

    static List<Case> cases() {
        return List.of(
            script(papi("papi_source_to_sink", t -> t
                .addSource("source", IN, IN, "in")
                .addSink("sink", "out", OUT, OUT, "source"))),
            script(papi("papi_processor", t -> t
                .addSource("source", IN, IN, "in")
                .addProcessor("mark", marking("!"), "source")
                .addSink("sink", "out", OUT, OUT, "mark"))),
            script(papi("papi_children_in_order_of_connection", t -> t
                .addSource("source", IN, IN, "in")
                .addProcessor("z-first", marking("1"), "source")
                .addProcessor("a-second", marking("2"), "source")
                .addSink("sink", "out", OUT, OUT, "a-second", "z-first"))),
            script(papi("papi_diamond", t -> t
                .addSource("source", IN, IN, "in")
                .addProcessor("left", marking(" left"), "source")
                .addProcessor("right", marking(" right"), "source")
                .addProcessor("both", marking(" both"), "right", "left")
                .addSink("sink", "out", OUT, OUT, "both"))),
            script(papi("papi_deep_and_shallow_paths", t -> t
                .addSource("source", IN, IN, "in")
                .addProcessor("one", marking("1"), "source")
                .addProcessor("two", marking("2"), "one")
                .addProcessor("three", marking("3"), "two", "source")
                .addSink("sink", "out", OUT, OUT, "three", "one"))),
            script(papi("papi_named_children", t -> t
                .addSource("source", IN, IN, "in")
                .addProcessor("router",
                    toWords((context, record) -> {
                    context.forward(record, "x".equals(record.value()) ? "exes" : "others");
                    context.forward(record.withKey("copy"));
                }), "source")
                .addSink("exes", "exes-out", OUT, OUT, "router")
                .addProcessor("others", marking(" other"), "router")
                .addSink("sink", "out", OUT, OUT, "others")))
                .output("exes-out", STRING, STRING),
            script(papi("papi_several_subtopologies", t -> t
                .addSource("source-b", IN, IN, "other")
                .addSource("source-a", IN, IN, "in")
                .addProcessor("mark-a", marking(" a"), "source-a")
                .addProcessor("mark-b", marking(" b"), "source-b")
                .addSink("sink-a", "out", OUT, OUT, "mark-a")
                .addSink("sink-b", "out", OUT, OUT, "mark-b")))
                .input("other", STRING, STRING)
                .pipe("other", "k", "x", 3),
            script(papi("papi_subtopologies_joined_by_a_store", t -> t
                .addSource("source-a", IN, IN, "in")
                .addSource("source-b", IN, IN, "other")
                .addProcessor("writer", counting(), "source-a")
                .addProcessor("reader", reading(), "source-b")
                .addStateStore(counts(), "writer", "reader")
                .addSink("sink", "out", OUT, OUT, "reader", "writer")))
                .input("other", STRING, STRING)
                .pipe("other", "a", "x", 3).pipe("other", "zzz", "x", 3),
            script(papi("papi_store_connected_later", t -> t
                .addSource("source", IN, IN, "in")
                .addProcessor("writer", counting(), "source")
                .addProcessor("reader", reading(), "writer")
                .addStateStore(counts())
                .connectProcessorAndStateStores("writer", "counts")
                .connectProcessorAndStateStores("reader", "counts")
                .addSink("sink", "out", OUT, OUT, "reader"))),
            script(papi("papi_store_of_nobody", t -> t
                .addSource("source", IN, IN, "in")
                .addStateStore(counts())
                .addSink("sink", "out", OUT, OUT, "source"))),
            script(papi("papi_source_of_several_topics", t -> t
                .addSource("source", IN, IN, "other", "in")
                .addSink("sink", "out", OUT, OUT, "source")))
                .input("other", STRING, STRING)
                .pipe("other", "k", "x", 3),
            papi("papi_source_pattern", t -> t
                    .addSource("source", IN, IN, Pattern.compile("in-.*"))
                    .addSink("sink", "out", OUT, OUT, "source"))
                .input("in-a", STRING, STRING).input("in-b", STRING, STRING).output("out", STRING, STRING)
                .pipe("in-a", "a", "x", 1).pipe("in-b", "b", "y", 2),
            script(papi("papi_two_parents", t -> t
                .addSource("source-a", IN, IN, "in")
                .addSource("source-b", IN, IN, "other")
                .addProcessor("where", toWords((context, record) ->
                    context.forward(record.withValue(context.recordMetadata().orElseThrow().topic()))),
                    "source-a", "source-b")
                .addSink("sink", "out", OUT, OUT, "where")))
                .input("other", STRING, STRING)
                .pipe("other", "k", "x", 3),
            script(papi("papi_sink_topic_from_key", t -> t
                .addSource("source", IN, IN, "in")
                .addSink("sink", new Route<String, String>("by_key", (key, value, context) -> "out-" + key), OUT, OUT,
                    "source")))
                .output("out-a", STRING, STRING).output("out-b", STRING, STRING).output("out-null", STRING, STRING),
            script(papi("papi_sink_topic_is_read_again", t -> t
                .addSource("source", IN, IN, "in")
                .addProcessor("mark", marking("1"), "source")
                .addSink("middle-sink", "middle", OUT, OUT, "mark")
                .addSource("middle-source", IN, IN, "middle")
                .addProcessor("mark-again", marking("2"), "middle-source")
                .addSink("sink", "out", OUT, OUT, "mark-again")))
                .output("middle", STRING, STRING),
            script(papi("papi_source_without_children", t -> t
                .addSource("source", IN, IN, "in")
                .addSource("idle", IN, IN, "other")
                .addSink("sink", "out", OUT, OUT, "source")))
                .input("other", STRING, STRING)
                .pipe("other", "k", "x", 3),
            script(papi("papi_processor_without_children", t -> t
                .addSource("source", IN, IN, "in")
                .addProcessor("end", marking("!"), "source")
                .addSink("sink", "out", OUT, OUT, "source"))),
            script(papi("papi_offset_reset", t -> t
                .addSource(AutoOffsetReset.earliest(), "source", IN, IN, "in")
                .addSink("sink", "out", OUT, OUT, "source"))),
            papi("papi_timestamp_extractor", t -> t
                    .addSource((AutoOffsetReset) null, "source", (record, partitionTime) -> (Long) record.value(), IN,
                        INT64.deserializer(), "in")
                    .addSink("sink", "out", OUT, INT64.serializer(), "source"))
                .input("in", STRING, INT64).output("out", STRING, INT64)
                .pipe("in", "a", 99L, 1).pipe("in", "a", 5L, 2),
            script(papi("papi_global_store", t -> t
                .addGlobalStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("names"), STRING, STRING),
                    "names-source", IN, IN, "global", "names-keeper",
                        each((ProcessorContext<Void, Void> context, Record<String, String> record) -> {
                        KeyValueStore<String, String> names = context.getStateStore("names");
                        names.put(record.key(), record.value());
                    }))
                .addSource("source", IN, IN, "in")
                .addProcessor("name",
                    toWords((context, record) -> {
                    KeyValueStore<String, String> names = context.getStateStore("names");
                    String name = record.key() == null ? null : names.get(record.key());
                    context.forward(record.withValue(name == null ? "unknown" : name));
                }), "source")
                .addSink("sink", "out", OUT, OUT, "name")))
                .input("global", STRING, STRING)
                .pipe("global", "a", "Ann", 1).pipe("in", "a", "x", 2).pipe("global", "a", null, 3)
                .pipe("in", "a", "x", 4),
            script(papi("papi_punctuator", t -> t
                .addSource("source", IN, IN, "in")
                .addProcessor("ticker", starting((ProcessorContext<String, String> context) ->
                        context.schedule(Duration.ofMillis(10), PunctuationType.WALL_CLOCK_TIME,
                            time -> context.forward(new Record<>("tick", "" + time, time))),
                    (ProcessorContext<String, String> context, Record<String, String> record) ->
                        context.forward(record)), "source")
                .addProcessor("mark", marking("!"), "ticker")
                .addSink("sink", "out", OUT, OUT, "mark")))
                .wallClock(10).wallClock(5).wallClock(5),
            script(papi("papi_many_of_everything", t -> t
                .addSource("orders", IN, IN, "in")
                .addSource("customers", IN, IN, "other")
                .addSource("audit", IN, IN, Pattern.compile("audit-.*"))
                .addProcessor("count-orders", counting(), "orders")
                .addProcessor("mark-customers", marking(" customer"), "customers")
                .addProcessor("merge", marking(""), "mark-customers", "count-orders")
                .addProcessor("read", reading(), "merge")
                .addProcessor("audit-mark", marking(" audited"), "audit")
                .addStateStore(counts(), "count-orders", "read")
                .addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("a-spare"), STRING, INT64),
                    "read")
                .addSink("counts-sink", "out", OUT, OUT, "count-orders")
                .addSink("merged-sink", "merged", OUT, OUT, "merge", "read")
                .addSink("audit-sink", "audited", OUT, OUT, "audit-mark")))
                .input("other", STRING, STRING).input("audit-1", STRING, STRING)
                .output("merged", STRING, STRING).output("audited", STRING, STRING)
                .pipe("other", "a", "x", 3).pipe("audit-1", "a", "x", 3));
    }

    private static ProcessorSupplier<String, String, String, String> marking(String mark) {
        return each((context, record) -> context.forward(record.withValue(record.value() + mark)));
    }

    /** Counts records per key, null key as "none". */
    private static ProcessorSupplier<String, String, String, String> counting() {
        return each((context, record) -> {
            KeyValueStore<String, Long> counts = context.getStateStore("counts");
            String key = record.key() == null ? "none" : record.key();
            Long before = counts.get(key);
            counts.put(key, before == null ? 1 : before + 1);
            context.forward(record.withValue("count " + counts.get(key)));
        });
    }

    private static ProcessorSupplier<String, String, String, String> reading() {
        return each((context, record) -> {
            KeyValueStore<String, Long> counts = context.getStateStore("counts");
            Long count = counts.get(record.key() == null ? "none" : record.key());
            context.forward(record.withValue("read " + (count == null ? "nothing" : count)));
        });
    }

    private static StoreBuilder<KeyValueStore<String, Long>> counts() {
        return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("counts"), STRING, INT64);
    }

    private static Case script(Case test) {
        return test.input("in", STRING, STRING).output("out", STRING, STRING)
            .pipe("in", "a", "x", 10, "h", "1").pipe("in", "b", "y", 5).pipe("in", null, "x", 20)
            .pipe("in", "a", "y", 11);
    }
}
