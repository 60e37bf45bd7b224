package millstream.oracle;

import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.wordTable;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.JoinDsl.PLUS;
import static millstream.oracle.JoinDsl.joined;
import static millstream.oracle.JoinDsl.lookup;
import static millstream.oracle.JoinDsl.onlyFrom;
import static millstream.oracle.JoinDsl.optimizedSides;
import static millstream.oracle.JoinDsl.sides;
import static millstream.oracle.JoinDsl.within;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.gap;
import static millstream.oracle.WindowDsl.inSessions;
import static millstream.oracle.WindowDsl.inWindows;
import static millstream.oracle.WindowDsl.ms;
import static millstream.oracle.WindowDsl.sessions;
import static millstream.oracle.WindowDsl.tumbling;
import static millstream.oracle.WindowDsl.versions;
import static millstream.oracle.WindowDsl.windows;
import static org.apache.kafka.streams.kstream.Suppressed.BufferConfig.unbounded;
import static org.apache.kafka.streams.kstream.Suppressed.untilTimeLimit;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import millstream.oracle.JoinDsl.Kind;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Windowed;

/** Joins among other operators: windows, suppressions, groups, one stream in several joins, optimisations. */
final class JoinProgramCases {
    private static final long KEEP = 100_000;

    private JoinProgramCases() {}

    static List<Case> cases() {
        List<Case> cases = new ArrayList<>();
        long seed = 1800;
        for (Kind kind : Kind.values()) {
            cases.add(random(++seed, sides("joins_windowed_tables_" + kind.label, b -> kind
                .of(inTens(b, "left"), inTens(b, "right")).toStream()
                .to("out", Produced.with(inWindows(10), STRING))).output("out", inWindows(10), STRING)));
            cases.add(random(++seed, sides("joins_session_tables_" + kind.label, b -> kind
                .of(inGaps(b, "left"), inGaps(b, "right")).toStream()
                .to("out", Produced.with(inSessions(), STRING))).output("out", inSessions(), STRING)));
        }
        for (Map.Entry<String, Consumer<StreamsBuilder>> entry : topologies().entrySet()) {
            cases.add(random(++seed, sides(entry.getKey(), entry.getValue())));
        }
        for (Map.Entry<String, Consumer<StreamsBuilder>> entry : ofTheLeft().entrySet()) {
            cases.add(onlyFrom("left", random(++seed, sides(entry.getKey(), entry.getValue()))));
        }
        for (Map.Entry<String, Consumer<StreamsBuilder>> entry : optimized().entrySet()) {
            ++seed;
            cases.add(random(seed, twoOutputs(sides(entry.getKey() + "_before", entry.getValue()))));
            cases.add(random(seed, twoOutputs(
                optimizedSides(entry.getKey() + "_after", StreamsConfig.OPTIMIZE, entry.getValue()))));
        }
        cases.add(random(++seed, sides("joins_with_all_kinds_of_tables", b -> {
            GlobalKTable<String, String> everywhere = b.globalTable(
                "global", Consumed.with(STRING, STRING), wordStore("everywhere"));
            KStream<String, String> pairs = left(b).leftJoin(right(b), PLUS, within(6, 6, 2), joined());
            pairs.leftJoin(wordTable(b, "third", "thirds"), PLUS, lookup())
                .join(everywhere, (k, v) -> k, PLUS).to("out", asWords());
        }).input("third", STRING, STRING).input("global", STRING, STRING)));
        return cases;
    }

    private static Map<String, Consumer<StreamsBuilder>> topologies() {
        Map<String, Consumer<StreamsBuilder>> topologies = new LinkedHashMap<>();
        topologies.put("joins_suppressed_table_on_the_right", b -> out(
            wordTable(b, "left", "lefts").join(suppressed(b, "right"), PLUS)));
        topologies.put("joins_stream_with_suppressed_table", b ->
            left(b).leftJoin(suppressed(b, "right"), PLUS, lookup()).to("out", asWords()));
        topologies.put("joins_cogroup_with_table", b -> {
            KTable<String, String> lists = left(b).groupByKey(byWord()).<String>cogroup((k, v, agg) -> agg + "l" + v)
                .cogroup(right(b).groupByKey(byWord()), (k, v, agg) -> agg + "r" + v)
                .aggregate(() -> "", wordStore("lists"));
            KTable<String, Long> counts = right(b).groupByKey(byWord()).count(numberStore("counts"));
            out(lists.leftJoin(counts, PLUS));
        });
        topologies.put("joins_pairs_as_table", b -> {
            KStream<String, String> left = left(b);
            KTable<String, String> pairs = left.outerJoin(right(b), PLUS, within(5, 5, 0), joined())
                .toTable(wordStore("pairs"));
            left.leftJoin(pairs, PLUS, lookup()).to("out", asWords());
        });
        topologies.put("joins_changes_of_one_table_with_another", b -> wordTable(b, "left", "lefts").toStream()
            .leftJoin(wordTable(b, "right", "rights"), PLUS, lookup()).to("out", asWords()));
        topologies.put("joins_versioned_with_grace_into_table", b -> {
            KTable<String, String> history = b.table("right", Consumed.with(STRING, STRING),
                versions("rights", STRING, 50));
            left(b).filter((k, v) -> k != null).leftJoin(history, PLUS, lookup().withGracePeriod(ms(6)))
                .toTable(wordStore("rows")).outerJoin(history, PLUS).toStream().to("out", asWords());
        });
        topologies.put("joins_windowed_counts_with_table", b -> inTens(b, "left")
            .toStream((k, v) -> k.key()).join(wordTable(b, "right", "rights"), PLUS,
                Joined.with(STRING, INT64, STRING)).to("out", asWords()));
        topologies.put("joins_grouped_table_with_its_table", b -> {
            KTable<String, String> lefts = wordTable(b, "left", "lefts");
            KTable<String, Long> counts = wordTable(b, "right", "rights")
                .groupBy((k, v) -> KeyValue.pair(List.of("a", "b", "c").get(v.charAt(1) % 3), v), byWord())
                .count(numberStore("counts"));
            out(lefts.outerJoin(counts, PLUS));
        });
        topologies.put("joins_then_windows", b -> left(b)
            .leftJoin(right(b), PLUS, within(4, 4, 3), joined()).groupByKey(byWord())
            .windowedBy(tumbling(20, 10)).count(windows("counts", INT64, KEEP))
            .toStream((k, v) -> k.key() + "@" + k.window().start()).mapValues(v -> "" + v).to("out", asWords()));
        topologies.put("joins_then_totals", b -> left(b).mapValues(v -> v == null ? null : (long) v.charAt(1) - 48)
            .join(wordTable(b, "right", "rights"), (l, r) -> l * 10 + r.charAt(1) - 48,
                Joined.with(STRING, INT64, STRING))
            .groupByKey(byNumber()).reduce(Long::sum, numberStore("totals")).toStream().mapValues(v -> "" + v)
            .to("out", asWords()));
        topologies.put("joins_table_with_stored_join", b -> {
            KTable<String, String> lefts = wordTable(b, "left", "lefts");
            KTable<String, String> rights = wordTable(b, "right", "rights");
            out(lefts.outerJoin(rights, PLUS, wordStore("pairs")).join(lefts, PLUS, wordStore("again"))
                .filter((k, v) -> !v.contains("null")));
        });
        topologies.put("joins_mapped_with_filtered_join", b -> {
            KTable<String, String> lefts = wordTable(b, "left", "lefts");
            KTable<String, String> rights = wordTable(b, "right", "rights");
            KTable<String, String> pairs = lefts.leftJoin(rights, PLUS).filter((k, v) -> !v.contains("w3"));
            out(pairs.mapValues(v -> v + "!").outerJoin(rights.filter((k, v) -> !v.equals("w2")), PLUS));
        });
        return topologies;
    }

    private static Map<String, Consumer<StreamsBuilder>> ofTheLeft() {
        Map<String, Consumer<StreamsBuilder>> topologies = new LinkedHashMap<>();
        topologies.put("joins_changes_of_a_table_with_it", b -> {
            KTable<String, String> rows = wordTable(b, "left", "lefts");
            rows.toStream().leftJoin(rows, PLUS, lookup()).to("out", asWords());
        });
        topologies.put("joins_changes_of_an_uncached_table_with_it", b -> {
            KTable<String, String> rows = b.table(
                "left", Consumed.with(STRING, STRING), wordStore("lefts").withCachingDisabled());
            rows.toStream().leftJoin(rows, PLUS, lookup()).to("out", asWords());
        });
        topologies.put("joins_branches_of_one_stream", b -> {
            KStream<String, String> small = left(b).filter((k, v) -> v != null && v.charAt(1) < '5');
            KStream<String, String> large = left(b).filter((k, v) -> v != null && v.charAt(1) >= '5');
            small.outerJoin(large, PLUS, within(6, 3, 2), joined()).to("out", asWords());
        });
        topologies.put("joins_a_stream_with_its_windows", b -> {
            KStream<String, String> left = left(b);
            KTable<String, Long> latest = left.groupByKey(byWord()).windowedBy(tumbling(10, 5))
                .count(windows("counts", INT64, KEEP)).toStream((k, v) -> k.key())
                .toTable(numberStore("latest"));
            left.leftJoin(latest, PLUS, Joined.with(STRING, STRING, INT64)).to("out", asWords());
        });
        return topologies;
    }

    /** With out2, too. */
    private static Map<String, Consumer<StreamsBuilder>> optimized() {
        Map<String, Consumer<StreamsBuilder>> topologies = new LinkedHashMap<>();
        topologies.put("joins_of_one_rekeyed_stream", b -> {
            KStream<String, String> rekeyed = rekeyed(left(b));
            rekeyed.join(right(b), PLUS, within(6, 6, 0), joined()).to("out", asWords());
            rekeyed.leftJoin(wordTable(b, "right2", "rights"), PLUS, lookup()).to("out2", asWords());
        });
        topologies.put("joins_of_one_rekeyed_stream_named", b -> {
            KStream<String, String> rekeyed = rekeyed(left(b));
            rekeyed.join(right(b), PLUS, within(6, 6, 0), joined().withName("pairs")).to("out", asWords());
            rekeyed.join(wordTable(b, "right2", "rights"), PLUS, lookup().withName("enrich")).to("out2", asWords());
        });
        topologies.put("joins_and_groups_of_one_rekeyed_stream", b -> {
            KStream<String, String> rekeyed = rekeyed(left(b));
            rekeyed.filter((k, v) -> v != null).join(right(b), PLUS, within(6, 6, 0), joined()).to("out", asWords());
            KTable<String, Long> counts = rekeyed.groupByKey(byWord()).count(numberStore("counts"));
            wordTable(b, "right2", "rights").outerJoin(counts, PLUS).toStream().to("out2", asWords());
        });
        topologies.put("joins_of_source_tables", b -> {
            KTable<String, String> rows = wordTable(b, "left", "lefts");
            left2(b).join(rows, PLUS, lookup()).to("out", asWords());
            rows.outerJoin(wordTable(b, "right"), PLUS).toStream().to("out2", asWords());
        });
        topologies.put("joins_with_itself_rekeyed", b -> {
            KStream<String, String> rekeyed = rekeyed(left(b));
            rekeyed.join(rekeyed, PLUS, within(3, 3, 0), joined()).to("out", asWords());
            right(b).foreach((k, v) -> {});
            rekeyed.leftJoin(wordTable(b, "right2", "rights"), PLUS, lookup()).to("out2", asWords());
        });
        return topologies;
    }

    private static Case twoOutputs(Case test) {
        String second = test.name.contains("source_tables") ? "left2" : "right2";
        return test.input(second, STRING, STRING).output("out2", STRING, STRING);
    }

    private static KStream<String, String> left(StreamsBuilder b) {
        return words(b, "left");
    }

    private static KStream<String, String> left2(StreamsBuilder b) {
        return words(b, "left2");
    }

    private static KStream<String, String> right(StreamsBuilder b) {
        return words(b, "right");
    }

    private static KStream<String, String> rekeyed(KStream<String, String> stream) {
        return stream.selectKey((k, v) -> v == null ? null : List.of("a", "b", "c").get(v.charAt(1) % 3));
    }

    private static KTable<Windowed<String>, Long> inTens(StreamsBuilder b, String topic) {
        return words(b, topic).groupByKey(byWord()).windowedBy(tumbling(10, 5))
            .count(windows(topic + "s", INT64, KEEP));
    }

    private static KTable<Windowed<String>, Long> inGaps(StreamsBuilder b, String topic) {
        return words(b, topic).groupByKey(byWord()).windowedBy(gap(4, 20)).count(sessions(topic + "s", INT64, KEEP));
    }

    private static KTable<String, String> suppressed(StreamsBuilder b, String topic) {
        return wordTable(b, topic, topic + "s").suppress(untilTimeLimit(ms(6), unbounded()));
    }

    private static void out(KTable<String, String> table) {
        table.toStream().to("out", asWords());
    }

    private static Case random(long seed, Case test) {
        return RandomInput.of(seed, 90, 4, 20).withNullValues(12).pipe(test);
    }
}
