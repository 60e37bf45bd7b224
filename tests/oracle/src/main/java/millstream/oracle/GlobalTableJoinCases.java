package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.JoinDsl.KEYED;
import static millstream.oracle.JoinDsl.PLUS;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Named;

/** Streams that look rows up in global tables, by a key of their choice. */
final class GlobalTableJoinCases {
    /** The key that a value names: "x1" looks for "1". */
    private static final KeyValueMapper<String, String, String> NAMED_BY_VALUE =
        (k, v) -> v == null ? null : v.substring(1);

    private GlobalTableJoinCases() {}

    static List<Case> cases() {
        List<Case> cases = new ArrayList<>();
        for (boolean isLeft : List.of(false, true)) {
            cases.addAll(of(isLeft));
        }
        return cases;
    }

    private static List<Case> of(boolean isLeft) {
        return List.of(
            script(sides(isLeft, "by_value", b -> out(join(isLeft, in(b), rows(b), NAMED_BY_VALUE)))),
            script(sides(isLeft, "by_key", b -> out(join(isLeft, in(b), rows(b), (k, v) -> k)))),
            script(sides(isLeft, "unnamed_store", b -> out(
                join(isLeft, in(b), b.globalTable("global", Consumed.with(STRING, STRING)), NAMED_BY_VALUE)))),
            script(sides(isLeft, "null_mapped_keys", b -> out(
                join(isLeft, in(b), rows(b), (k, v) -> "x1".equals(v) ? null : k)))),
            script(sides(isLeft, "with_key", b -> out(isLeft
                ? in(b).leftJoin(rows(b), NAMED_BY_VALUE, KEYED) : in(b).join(rows(b), NAMED_BY_VALUE, KEYED)))),
            script(sides(isLeft, "named", b -> out(isLeft
                ? in(b).leftJoin(rows(b), NAMED_BY_VALUE, PLUS, Named.as("enrich"))
                : in(b).join(rows(b), NAMED_BY_VALUE, PLUS, Named.as("enrich"))))),
            script(sides(isLeft, "rekeyed", b -> out(
                join(isLeft, in(b).selectKey((k, v) -> v), rows(b), (k, v) -> v == null ? null : v.substring(1))))),
            script(sides(isLeft, "rekeyed_then_group_by_key", b -> join(isLeft, in(b).selectKey((k, v) -> v), rows(b),
                (k, v) -> v == null ? null : v.substring(1)).groupByKey(byWord())
                .reduce((one, other) -> one + "," + other, wordStore("lists")).toStream().to("out"))),
            script(sides(isLeft, "then_group_by_key", b -> join(isLeft, in(b), rows(b), NAMED_BY_VALUE)
                .groupByKey(byWord()).reduce((one, other) -> one + "," + other, wordStore("lists")).toStream()
                .to("out"))),
            script(sides(isLeft, "two_tables", b -> out(
                    join(isLeft, join(isLeft, in(b), rows(b), NAMED_BY_VALUE),
                        b.globalTable("others", Consumed.with(STRING, STRING), wordStore("other")), (k, v) -> k)))
                .input("others", STRING, STRING)
                .pipe("others", "a", "o1", 50).pipe("in", "a", "x2", 51).pipe("in", "b", "x2", 52)),
            script(sides(isLeft, "one_table_twice", b -> {
                GlobalKTable<String, String> rows = rows(b);
                out(join(isLeft, join(isLeft, in(b), rows, NAMED_BY_VALUE), rows, (k, v) -> k));
            })),
            RandomInput.of(isLeft ? 1701 : 1702, 80, 4, 20).withNullValues(12).pipe(sides(isLeft, "by_key_random", b ->
                out(join(isLeft, in(b), rows(b), (k, v) -> k)))),
            RandomInput.of(isLeft ? 1703 : 1704, 80, 4, 20).withNullValues(12).pipe(sides(isLeft, "by_value_random", b ->
                out(join(isLeft, in(b), rows(b),
                    (k, v) -> v == null ? null : List.of("a", "b", "c").get(v.charAt(1) % 3))))),
            RandomInput.of(isLeft ? 1705 : 1706, 80, 4, 20).withNullValues(12).pipe(dsl(name(isLeft, "numbers_random"),
                    b -> {
                        GlobalKTable<String, Long> rows = b.globalTable("global", Consumed.with(STRING, INT64),
                            Dsl.numberStore("everywhere"));
                        KeyValueMapper<String, String, String> key = (k, v) -> k == null ? "a" : k;
                        out(isLeft ? in(b).leftJoin(rows, key, PLUS) : in(b).join(rows, key, PLUS));
                    })
                .input("in", STRING, STRING).input("global", STRING, INT64).output("out", STRING, STRING)));
    }

    private static KStream<String, String> join(
            boolean isLeft, KStream<String, String> stream, GlobalKTable<String, String> table,
            KeyValueMapper<String, String, String> key) {
        return isLeft ? stream.leftJoin(table, key, PLUS) : stream.join(table, key, PLUS);
    }

    private static KStream<String, String> in(StreamsBuilder b) {
        return words(b, "in");
    }

    private static GlobalKTable<String, String> rows(StreamsBuilder b) {
        return b.globalTable("global", Consumed.with(STRING, STRING), wordStore("everywhere"));
    }

    private static void out(KStream<String, String> stream) {
        stream.to("out", asWords());
    }

    private static String name(boolean isLeft, String what) {
        return (isLeft ? "global_table_left_join_" : "global_table_join_") + what;
    }

    private static Case sides(boolean isLeft, String what, Consumer<StreamsBuilder> body) {
        return dsl(name(isLeft, what), body)
            .input("in", STRING, STRING).input("global", STRING, STRING).output("out", STRING, STRING);
    }

    /** Rows that come, change and go, for keys of records and keys in values; null keys and values, headers. */
    private static Case script(Case test) {
        return test
            .pipe("in", "a", "x1", 10, "h", "1").pipe("global", "1", "g1", 20, "h", "2")
            .pipe("in", "a", "x1", 11, "h", "3").pipe("global", "a", "g2", 5).pipe("in", "a", "x2", 12)
            .pipe("in", null, "x1", 13).pipe("in", null, "x2", 13).pipe("in", "a", null, 14)
            .pipe("in", null, null, 14).pipe("global", null, "g3", 15).pipe("global", "1", "g4", 3)
            .pipe("in", "b", "x1", 9).pipe("global", "1", null, 30).pipe("in", "b", "x1", 40)
            .pipe("global", "2", "g5", 40).pipe("in", "b", "x2", 40);
    }
}
