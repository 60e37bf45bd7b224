package millstream.oracle;

import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.wordTable;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.JoinDsl.PLUS;
import static millstream.oracle.JoinDsl.lookup;
import static millstream.oracle.JoinDsl.onlyFrom;
import static millstream.oracle.JoinDsl.sides;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.versions;

import java.util.ArrayList;
import java.util.List;
import millstream.oracle.JoinDsl.Kind;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Named;

/** Tables joined with tables by their keys. */
final class TableTableJoinCases {
    private TableTableJoinCases() {}

    static List<Case> cases() {
        List<Case> cases = new ArrayList<>();
        for (Kind kind : Kind.values()) {
            cases.addAll(of(kind));
            cases.addAll(random(kind, 1500 + 20 * kind.ordinal()));
        }
        cases.addAll(topologies());
        return cases;
    }

    private static List<Case> of(Kind kind) {
        return List.of(
            script(sides(name(kind, "nulls_and_tombstones"), b -> out(kind.of(left(b), right(b))))),
            script(sides(name(kind, "with_store"), b -> kind.of(left(b), right(b), wordStore("pairs"))
                .toStream().to("out"))),
            script(sides(name(kind, "with_uncached_store"), b -> kind
                .of(left(b), right(b), wordStore("pairs").withCachingDisabled()).toStream().to("out"))),
            script(sides(name(kind, "of_uncached"), b -> out(kind.of(uncached(b, "left"), uncached(b, "right"))))),
            script(sides(name(kind, "of_unnamed_stores"), b -> out(
                kind.of(wordTable(b, "left"), wordTable(b, "right"))))),
            script(sides(name(kind, "of_filtered"), b -> out(kind.of(
                left(b).filter((k, v) -> !v.endsWith("2")), right(b).filter((k, v) -> !v.endsWith("3")))))),
            script(sides(name(kind, "of_mapped"), b -> out(kind.of(
                left(b).mapValues(v -> v + "!"), right(b).mapValues(v -> v + "?"))))),
            script(sides(name(kind, "of_mapped_with_stores"), b -> out(kind.of(
                left(b).mapValues(v -> v + "!", wordStore("loud")),
                right(b).mapValues(v -> v + "?", wordStore("asked")))))),
            script(sides(name(kind, "then_filter"), b -> out(
                kind.of(left(b), right(b)).filter((k, v) -> !v.contains("2"))))),
            script(sides(name(kind, "with_store_then_filter"), b -> out(
                kind.of(left(b), right(b), wordStore("pairs")).filter((k, v) -> !v.contains("2"))))),
            script(sides(name(kind, "then_group_by"), b -> grouped(kind.of(left(b), right(b))))),
            script(sides(name(kind, "with_store_then_group_by"), b -> grouped(
                kind.of(left(b), right(b), wordStore("pairs"))))),
            script(sides(name(kind, "of_uncached_then_group_by"), b -> grouped(
                kind.of(uncached(b, "left"), uncached(b, "right"))))),
            script(sides(name(kind, "of_versioned"), b -> out(kind.of(versioned(b, "left"), versioned(b, "right"))))),
            script(sides(name(kind, "of_versioned_then_group_by"), b -> grouped(
                kind.of(versioned(b, "left"), versioned(b, "right"))))),
            script(sides(name(kind, "into_versioned_store"), b -> kind
                .of(left(b), right(b), versions("pairs", STRING, 100)).toStream().to("out"))),
            onlyFrom("left", script(sides(name(kind, "of_itself"), b -> {
                KTable<String, String> rows = left(b);
                out(kind.of(rows, rows));
            }))),
            onlyFrom("left", script(sides(name(kind, "of_its_own_view"), b -> {
                KTable<String, String> rows = left(b);
                out(kind.of(rows, rows.mapValues(v -> v + "!")));
            }))));
    }

    private static List<Case> random(Kind kind, long seed) {
        return List.of(
            random(seed + 1, sides(name(kind, "random"), b -> out(kind.of(left(b), right(b))))),
            random(seed + 2, sides(name(kind, "with_store_random"), b -> kind
                .of(left(b), right(b), wordStore("pairs")).toStream().to("out"))),
            random(seed + 3, sides(name(kind, "then_group_by_random"), b -> grouped(
                kind.of(uncached(b, "left"), uncached(b, "right"), wordStore("pairs").withCachingDisabled())))),
            random(seed + 4, sides(name(kind, "of_three_random"), b -> out(
                    kind.of(kind.of(left(b), right(b)), wordTable(b, "third", "thirds"))))
                .input("third", STRING, STRING)),
            random(seed + 5, sides(name(kind, "of_versioned_random"), b -> out(
                kind.of(versioned(b, "left"), versioned(b, "right"), wordStore("pairs"))))),
            random(seed + 6, sides(name(kind, "of_views_random"), b -> out(kind.of(
                left(b).filter((k, v) -> !v.equals("w5")), right(b).mapValues(v -> v + "!"))
                .filter((k, v) -> !v.contains("3"))))));
    }

    private static List<Case> topologies() {
        return List.of(
            script(sides("table_table_join_named", b -> out(left(b).join(right(b), PLUS, Named.as("pair"))))),
            script(sides("table_table_left_join_named_with_store", b -> left(b)
                .leftJoin(right(b), PLUS, Named.as("pair"), wordStore("pairs")).toStream().to("out"))),
            script(sides("table_table_outer_join_named", b -> out(
                left(b).outerJoin(right(b), PLUS, Named.as("pair"))))),
            script(sides("table_table_join_of_joins", b -> {
                KTable<String, String> left = left(b);
                KTable<String, String> right = right(b);
                out(left.outerJoin(right, PLUS).leftJoin(right, PLUS).join(left, PLUS));
            })),
            script(sides("table_table_join_of_counts", b -> {
                KTable<String, Long> one = words(b, "left").groupByKey(byWord()).count(numberStore("ones"));
                KTable<String, Long> other = words(b, "right").groupByKey(byWord()).count(numberStore("others"));
                out(one.outerJoin(other, PLUS));
            })),
            script(sides("table_table_join_of_rekeyed_counts", b -> {
                KTable<String, Long> one = words(b, "left").groupBy((k, v) -> v == null ? null : v.substring(1),
                    byWord()).count(numberStore("ones"));
                KTable<String, Long> other = words(b, "right").groupBy((k, v) -> v == null ? null : v.substring(1),
                    byWord()).count(numberStore("others"));
                out(one.leftJoin(other, PLUS));
            })),
            script(sides("table_table_join_then_joined_by_a_stream", b -> {
                KTable<String, String> pairs = left(b).join(right(b), PLUS);
                words(b, "third").leftJoin(pairs, PLUS, lookup()).to("out", asWords());
            }).input("third", STRING, STRING)
                .pipe("third", "a", "t1", 41).pipe("third", "b", "t2", 5).pipe("third", "c", "t3", 42)),
            script(sides("table_table_join_of_a_stream_as_table", b -> out(
                words(b, "left").toTable(wordStore("lefts")).join(right(b), PLUS)))),
            script(sides("table_table_join_of_a_rekeyed_stream_as_table", b -> out(
                words(b, "left").selectKey((k, v) -> k).toTable(wordStore("lefts")).outerJoin(right(b), PLUS)))),
            onlyFrom("left", script(sides("table_table_join_of_tables_that_change_together_then_group_by", b -> {
                KStream<String, String> in = words(b, "left");
                KTable<String, String> loud = in.mapValues(v -> v == null ? null : v + "!").toTable(wordStore("loud"));
                grouped(in.toTable(wordStore("lefts")).join(loud, PLUS));
            }))),
            script(sides("table_table_join_of_grouped_table", b -> {
                KTable<String, Long> counts = left(b).groupBy((k, v) -> KeyValue.pair(v.substring(1), v), byWord())
                    .count(numberStore("counts"));
                out(counts.outerJoin(right(b), PLUS));
            })),
            script(sides("table_table_join_returning_null", b -> left(b)
                .join(right(b), (l, r) -> l.endsWith("2") ? null : l + "+" + r, wordStore("pairs")).toStream()
                .to("out"))),
            script(sides("table_table_outer_join_returning_null", b -> out(left(b)
                .outerJoin(right(b), (l, r) -> l == null || l.endsWith("2") ? null : l + "+" + r)))));
    }

    private static KTable<String, String> left(StreamsBuilder b) {
        return wordTable(b, "left", "lefts");
    }

    private static KTable<String, String> right(StreamsBuilder b) {
        return wordTable(b, "right", "rights");
    }

    private static KTable<String, String> uncached(StreamsBuilder b, String topic) {
        return b.table(topic, Consumed.with(STRING, STRING), wordStore(topic + "s").withCachingDisabled());
    }

    private static KTable<String, String> versioned(StreamsBuilder b, String topic) {
        return b.table(topic, Consumed.with(STRING, STRING), versions(topic + "s", STRING, 30));
    }

    /** All pairs in one list: what is taken out of it again shows the old values. */
    private static void grouped(KTable<String, String> pairs) {
        pairs.groupBy((k, v) -> KeyValue.pair("all", v), byWord())
            .aggregate(() -> "", (k, v, list) -> list + "," + v, (k, v, list) -> list + ",-" + v, wordStore("lists"))
            .toStream().to("out");
    }

    private static void out(KTable<String, String> table) {
        table.toStream().to("out", asWords());
    }

    private static String name(Kind kind, String what) {
        return "table_table_" + kind.label + '_' + what;
    }

    private static Case random(long seed, Case test) {
        return RandomInput.of(seed, 70, 4, 25).withNullValues(20).pipe(test);
    }

    /** Each side comes, changes and goes first and last; equal values and times, out of order, null keys. */
    private static Case script(Case test) {
        return test
            .pipe("left", "a", "l1", 10, "h", "1").pipe("right", "a", "r1", 12, "h", "2")
            .pipe("left", "a", "l2", 11, "h", "3").pipe("right", "a", "r2", 9).pipe("right", "a", "r2", 12)
            .pipe("left", null, "l3", 13).pipe("right", null, "r3", 13).pipe("right", "a", null, 14)
            .pipe("right", "a", null, 15).pipe("left", "a", null, 16).pipe("left", "a", null, 17)
            .pipe("right", "b", "r3", 20).pipe("left", "b", "l3", 20).pipe("left", "b", null, 21)
            .pipe("left", "b", "l4", 18).pipe("right", "b", null, 30).pipe("right", "c", null, 31)
            .pipe("left", "c", "l2", 32).pipe("right", "c", "r4", 33).pipe("left", "c", "l5", 40)
            .pipe("right", "b", "r5", 35).pipe("left", "b", "l6", 35);
    }
}
