package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Case.optimized;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.JoinDsl.KEYED;
import static millstream.oracle.JoinDsl.PLUS;
import static millstream.oracle.JoinDsl.joined;
import static millstream.oracle.JoinDsl.records;
import static millstream.oracle.JoinDsl.within;
import static millstream.oracle.Type.STRING;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.Stream;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;

/** A stream joined with itself: every topology with two stores, and with single.store.self.join. */
final class SelfJoinCases {
    private SelfJoinCases() {}

    static List<Case> cases() {
        return topologies().entrySet().stream().flatMap(entry -> {
            Function<Case, Case> script = entry.getKey().endsWith("random")
                ? test -> RandomInput.of(1300, 70, 3, 20).pipe(words(test)) : test -> script(words(test));
            return Stream.of(
                script.apply(dsl(entry.getKey() + "_before", entry.getValue())),
                script.apply(optimized(
                    entry.getKey() + "_after", StreamsConfig.SINGLE_STORE_SELF_JOIN, entry.getValue())));
        }).toList();
    }

    private static Map<String, Consumer<StreamsBuilder>> topologies() {
        Map<String, Consumer<StreamsBuilder>> topologies = new LinkedHashMap<>();
        topologies.put("self_join", b -> {
            KStream<String, String> in = Dsl.words(b, "in");
            in.join(in, PLUS, within(10, 10, 0), joined()).to("out", asWords());
        });
        topologies.put("self_join_with_key", b -> {
            KStream<String, String> in = Dsl.words(b, "in");
            in.join(in, KEYED, within(10, 10, 0), joined()).to("out", asWords());
        });
        topologies.put("self_join_named", b -> {
            KStream<String, String> in = Dsl.words(b, "in");
            in.join(in, PLUS, within(10, 10, 0), joined().withName("pairs").withStoreName("kept"))
                .to("out", asWords());
        });
        topologies.put("self_join_of_one_topic_read_twice", b ->
            Dsl.words(b, "in").join(Dsl.words(b, "in"), PLUS, within(10, 10, 0), joined()).to("out", asWords()));
        topologies.put("self_join_behind_filter", b -> {
            KStream<String, String> in = Dsl.words(b, "in").filter((k, v) -> !"x3".equals(v));
            in.join(in, PLUS, within(10, 10, 0), joined()).to("out", asWords());
        });
        topologies.put("self_join_with_new_values", b -> {
            KStream<String, String> in = Dsl.words(b, "in");
            in.join(in.mapValues(v -> v + "!"), PLUS, within(10, 10, 0), joined()).to("out", asWords());
        });
        topologies.put("self_join_rekeyed", b -> {
            KStream<String, String> in = Dsl.words(b, "in").selectKey((k, v) -> k == null ? null : "k" + k);
            in.join(in, PLUS, within(10, 10, 0), joined()).to("out", asWords());
        });
        topologies.put("self_join_left", b -> {
            KStream<String, String> in = Dsl.words(b, "in");
            in.leftJoin(in, PLUS, within(-2, 10, 0), joined()).to("out", asWords());
        });
        topologies.put("self_join_outer", b -> {
            KStream<String, String> in = Dsl.words(b, "in");
            in.outerJoin(in, PLUS, within(-2, 10, 0), joined()).to("out", asWords());
        });
        topologies.put("self_join_uneven_random", b -> {
            KStream<String, String> in = Dsl.words(b, "in");
            in.join(in, PLUS, within(3, 8, 2), joined()).to("out", asWords());
        });
        topologies.put("self_join_random", b -> {
            KStream<String, String> in = Dsl.words(b, "in");
            in.join(in, PLUS, within(5, 5, 10), joined()).to("out", asWords());
        });
        return topologies;
    }

    private static Case words(Case test) {
        return test.input("in", STRING, STRING).output("out", STRING, STRING);
    }

    private static Case script(Case test) {
        return records(test,
            "in a x1 10", "in a x2 15", "in b x3 15", "in a x4 20", "in a x5 20", "in a x6 12", "in - x7 21",
            "in b - 22", "in a x8 30", "in a x9 31", "in b x3 24", "in b x10 14", "in a x11 60", "in a x12 40");
    }
}
