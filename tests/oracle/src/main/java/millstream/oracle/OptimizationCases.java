package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Case.optimized;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Repartitioned;

/** merge.repartition.topics: every topology before and after. */
final class OptimizationCases {
    private OptimizationCases() {}

    static List<Case> cases() {
        return topologies().entrySet().stream().flatMap(entry -> Stream.of(
            script(dsl(entry.getKey() + "_before", entry.getValue())),
            script(optimized(entry.getKey() + "_after", StreamsConfig.MERGE_REPARTITION_TOPICS, entry.getValue()))))
            .toList();
    }

    private static Map<String, Consumer<StreamsBuilder>> topologies() {
        Map<String, Consumer<StreamsBuilder>> topologies = new LinkedHashMap<>();
        topologies.put("merge_repartitions_of_two_counts", b -> {
            KStream<String, String> rekeyed = words(b, "in").selectKey((k, v) -> v);
            count(rekeyed, "one");
            count(rekeyed, "two");
        });
        topologies.put("merge_repartitions_with_names", b -> {
            KStream<String, String> rekeyed = words(b, "in").selectKey((k, v) -> v, Named.as("rekey"));
            rekeyed.groupByKey(Grouped.with("first", STRING, STRING)).count(numberStore("one")).toStream()
                .to("out", asNumbers());
            rekeyed.groupByKey(Grouped.with("second", STRING, STRING)).count(numberStore("two")).toStream()
                .to("out2", asNumbers());
        });
        topologies.put("merge_repartitions_behind_filters", b -> {
            KStream<String, String> rekeyed = words(b, "in").selectKey((k, v) -> v);
            count(rekeyed.filter((k, v) -> v != null), "one");
            count(rekeyed.peek((k, v) -> {}).filterNot((k, v) -> "x".equals(v)), "two");
        });
        topologies.put("merge_repartitions_not_behind_new_values", b -> {
            KStream<String, String> rekeyed = words(b, "in").selectKey((k, v) -> v);
            count(rekeyed.mapValues(v -> v + "1"), "one");
            count(rekeyed, "two");
            count(rekeyed.filter((k, v) -> true), "three");
        });
        topologies.put("merge_repartitions_moves_a_single_one", b ->
            count(words(b, "in").selectKey((k, v) -> v).filter((k, v) -> v != null), "one"));
        topologies.put("merge_repartitions_not_by_hand", b -> {
            KStream<String, String> rekeyed = words(b, "in").selectKey((k, v) -> v);
            count(rekeyed.repartition(Repartitioned.with(STRING, STRING)), "one");
            count(rekeyed.repartition(Repartitioned.with(STRING, STRING)), "two");
        });
        topologies.put("merge_repartitions_of_map_and_table", b -> {
            KStream<String, String> rekeyed = words(b, "in")
                .map((k, v) -> org.apache.kafka.streams.KeyValue.pair(v, k));
            count(rekeyed, "one");
            rekeyed.toTable(wordStore("rows"));
        });
        topologies.put("merge_repartitions_behind_a_merge", b -> {
            KStream<String, String> one = words(b, "in").selectKey((k, v) -> v);
            KStream<String, String> other = words(b, "other").selectKey((k, v) -> v);
            KStream<String, String> both = one.merge(other);
            count(both, "one");
            count(both.filter((k, v) -> v != null), "two");
        });
        topologies.put("merge_repartitions_of_two_keys", b -> {
            KStream<String, String> in = words(b, "in");
            KStream<String, String> once = in.selectKey((k, v) -> v);
            count(once, "one");
            count(once, "two");
            KStream<String, String> again = once.selectKey((k, v) -> v + v);
            again.groupByKey(byWord()).count(numberStore("three")).toStream().to("out2", asNumbers());
            again.groupByKey(byWord()).count(numberStore("four"));
        });
        topologies.put("merge_repartitions_of_a_cogroup", b -> {
            KStream<String, String> rekeyed = words(b, "in").selectKey((k, v) -> v);
            count(rekeyed, "one");
            rekeyed.groupByKey(byWord()).<Long>cogroup((k, v, n) -> n + 1)
                .cogroup(rekeyed.filter((k, v) -> v != null).groupByKey(byWord()), (k, v, n) -> n + 10)
                .aggregate(() -> 0L, numberStore("score")).toStream().to("out2", asNumbers());
        });
        return topologies;
    }

    private static void count(KStream<String, String> stream, String store) {
        stream.groupByKey(byWord()).count(numberStore(store)).toStream().to("out", asNumbers());
    }

    private static Case script(Case test) {
        test.input("in", STRING, STRING).output("out", STRING, INT64).output("out2", STRING, INT64);
        if (test.name.contains("behind_a_merge")) {
            test.input("other", STRING, STRING);
        }
        return test.pipe("in", "a", "x", 10, "h", "1").pipe("in", "b", "y", 5).pipe("in", null, "x", 20)
            .pipe("in", "a", null, 21).pipe("in", "b", "x", 5);
    }
}
