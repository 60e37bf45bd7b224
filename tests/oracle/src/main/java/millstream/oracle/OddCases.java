package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Case.papi;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.wordTable;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Processes.each;
import static millstream.oracle.Processes.toWords;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.List;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** Topologies that look wrong. Kafka refuses most of them, and accepts a few. */
final class OddCases {
    private static final Deserializer<String> IN = STRING.deserializer();
    private static final Serializer<String> OUT = STRING.serializer();
    private static final ProcessorSupplier<String, String, String, String> PASS = toWords((context, record) ->
        context.forward(record));

    private OddCases() {}

    static List<Case> cases() {
        return List.of(
            script(papi("odd_two_sources_of_one_topic", t -> t
                .addSource("one", IN, IN, "in").addSource("two", IN, IN, "in"))),
            script(papi("odd_one_source_with_a_topic_twice", t -> t
                .addSource("one", IN, IN, "in", "in").addSink("sink", "out", OUT, OUT, "one"))),
            script(papi("odd_two_nodes_of_one_name", t -> t
                .addSource("source", IN, IN, "in").addProcessor("source", PASS, "source"))),
            script(papi("odd_unknown_parent", t -> t
                .addSource("source", IN, IN, "in").addProcessor("mark", PASS, "nobody"))),
            script(papi("odd_processor_as_its_own_parent", t -> t
                .addSource("source", IN, IN, "in").addProcessor("mark", PASS, "mark"))),
            script(papi("odd_processor_without_parent", t -> t
                .addSource("source", IN, IN, "in").addSink("sink", "out", OUT, OUT, "source")
                .addProcessor("alone", PASS))),
            script(papi("odd_sink_without_parent", t -> t
                .addSource("source", IN, IN, "in").addSink("sink", "out", OUT, OUT))),
            script(papi("odd_sink_as_parent", t -> t
                .addSource("source", IN, IN, "in").addSink("sink", "out", OUT, OUT, "source")
                .addProcessor("after", PASS, "sink"))),
            script(papi("odd_source_without_topics", t -> t
                .addSource("source", IN, IN).addSink("sink", "out", OUT, OUT, "source"))),
            script(papi("odd_topic_beside_matching_pattern", t -> t
                .addSource("source", IN, IN, "in").addSource("all", IN, IN, Pattern.compile("i.*")))),
            script(papi("odd_pattern_beside_matching_topic", t -> t
                .addSource("all", IN, IN, Pattern.compile("i.*")).addSource("source", IN, IN, "in"))),
            script(papi("odd_two_stores_of_one_name", t -> t
                .addSource("source", IN, IN, "in").addProcessor("mark", PASS, "source")
                .addStateStore(store(), "mark").addStateStore(store(), "mark"))),
            script(papi("odd_store_for_unknown_processor", t -> t
                .addSource("source", IN, IN, "in").addStateStore(store(), "nobody"))),
            script(papi("odd_store_connected_to_source", t -> t
                .addSource("source", IN, IN, "in").addStateStore(store(), "source"))),
            script(papi("odd_store_connected_to_sink", t -> t
                .addSource("source", IN, IN, "in").addSink("sink", "out", OUT, OUT, "source")
                .addStateStore(store(), "sink"))),
            script(papi("odd_unknown_store_connected", t -> t
                .addSource("source", IN, IN, "in").addProcessor("mark", PASS, "source")
                .connectProcessorAndStateStores("mark", "nothing"))),
            script(papi("odd_supplier_that_returns_one_instance", t -> {
                Processor<String, String, String, String> only = PASS.get();
                t.addSource("source", IN, IN, "in").addProcessor("mark", () -> only, "source");
            })),
            script(papi("odd_global_store_of_a_source_topic", t -> t
                .addSource("source", IN, IN, "in")
                .addGlobalStore(store(), "global", IN, IN, "in", "keeper",
                    each((ProcessorContext<Void, Void> context, Record<String, String> record) -> {})))),

            script(dsl("odd_topic_as_stream_and_table_without_store", b -> {
                words(b, "in").to("out");
                wordTable(b, "in").toStream().to("out");
            })),
            script(dsl("odd_topic_as_two_tables_without_store", b -> {
                wordTable(b, "in").toStream().to("out");
                wordTable(b, "in").toStream().to("out");
            })),
            script(dsl("odd_topic_as_stream_and_global_table", b -> {
                words(b, "in").to("out");
                b.globalTable("in", wordStore("everywhere"));
            })),
            script(dsl("odd_topic_as_table_and_global_table", b -> {
                wordTable(b, "in").toStream().to("out");
                b.globalTable("in", wordStore("everywhere"));
            })),
            script(dsl("odd_topic_as_two_global_tables", b -> {
                b.globalTable("in", wordStore("one"));
                b.globalTable("in", wordStore("two"));
            })),
            script(dsl("odd_topic_beside_matching_pattern_in_dsl", b -> {
                words(b, "in").to("out");
                b.<String, String>stream(Pattern.compile("i.*")).to("out");
            })),
            script(dsl("odd_list_with_a_topic_twice", b -> b.<String, String>stream(List.of("in", "in")).to("out"))),
            script(dsl("odd_empty_list_of_topics", b -> b.<String, String>stream(List.of()).to("out"))),
            script(dsl("odd_unknown_store_of_process", b -> words(b, "in").process(PASS, "nothing").to("out"))),
            script(dsl("odd_two_operators_of_one_name", b -> words(b, "in").filter((k, v) -> true, Named.as("same"))
                .mapValues(v -> v, Named.as("same")).to("out"))),
            script(dsl("odd_two_counts_into_one_store", b -> {
                KStream<String, String> in = words(b, "in");
                in.groupByKey(byWord()).count(numberStore("counts"));
                in.groupByKey(byWord()).count(numberStore("counts"));
            })),
            script(dsl("odd_store_added_twice", b -> {
                b.addStateStore(store());
                b.addStateStore(store());
                words(b, "in").process(PASS, "store").to("out", asWords());
            })),
            script(dsl("odd_same_store_builder_added_twice", b -> {
                StoreBuilder<KeyValueStore<String, Long>> builder = store();
                b.addStateStore(builder);
                b.addStateStore(builder);
                words(b, "in").process(PASS, "store").to("out", asWords());
            })),
            script(dsl("odd_added_store_named_like_a_table", b -> {
                b.addStateStore(store());
                wordTable(b, "in", "store");
            })),
            script(dsl("odd_added_store_of_nobody", b -> {
                b.addStateStore(store());
                words(b, "in").to("out");
            })),
            script(dsl("odd_two_repartitions_of_one_name", b -> {
                KStream<String, String> in = words(b, "in");
                in.repartition(Repartitioned.with(STRING, STRING).withName("same")).to("out");
                in.mapValues(v -> v).repartition(Repartitioned.with(STRING, STRING).withName("same")).to("out");
            })),
            script(dsl("odd_two_groups_of_one_name", b -> {
                KStream<String, String> in = words(b, "in");
                in.groupBy((k, v) -> v, Grouped.with("same", STRING, STRING)).count().toStream().to("out", asNumbers());
                in.groupBy((k, v) -> k, Grouped.with("same", STRING, STRING)).count().toStream().to("out", asNumbers());
            })),
            script(dsl("odd_two_groups_of_one_name_below_one_rekeyed_stream", b -> {
                KStream<String, String> rekeyed = words(b, "in").selectKey((k, v) -> v);
                rekeyed.groupByKey(Grouped.with("same", STRING, STRING)).count().toStream().to("out", asNumbers());
                rekeyed.groupByKey(Grouped.with("same", STRING, STRING)).count().toStream().to("out", asNumbers());
            })).output("out", STRING, INT64),
            script(dsl("odd_two_branches_of_one_name", b -> words(b, "in").split(Named.as("part-"))
                .branch((k, v) -> true, Branched.as("same"))
                .branch((k, v) -> true, Branched.as("same"))
                .noDefaultBranch())),
            script(dsl("odd_store_name_with_a_space", b -> words(b, "in").groupByKey(byWord())
                .count(numberStore("two words")))),
            script(dsl("odd_operator_name_with_a_space", b -> words(b, "in")
                .filter((k, v) -> true, Named.as("two words")).to("out"))),
            script(dsl("odd_empty_operator_name", b -> words(b, "in").filter((k, v) -> true, Named.as("")).to("out"))),
            script(dsl("odd_source_name_with_a_space", b ->
                b.stream("in", Consumed.with(STRING, STRING).withName("two words")).to("out"))),
            script(dsl("odd_global_store_passed_to_process", b -> {
                b.globalTable("global", wordStore("everywhere"));
                words(b, "in").process(PASS, "everywhere").to("out");
            })).input("global", STRING, STRING),
            script(dsl("odd_two_sources_of_one_name", b -> {
                b.stream("in", Consumed.with(STRING, STRING).withName("same")).to("out");
                b.stream("other", Consumed.with(STRING, STRING).withName("same")).to("out");
            })).input("other", STRING, STRING));
    }

    private static StoreBuilder<KeyValueStore<String, Long>> store() {
        return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("store"), STRING, INT64);
    }

    private static Case script(Case test) {
        return test.input("in", STRING, STRING).output("out", STRING, STRING).pipe("in", "a", "x", 1)
            .pipe("in", "a", "y", 2);
    }
}
