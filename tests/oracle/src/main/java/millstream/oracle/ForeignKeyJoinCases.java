package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.numberTable;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.wordTable;
import static millstream.oracle.JoinDsl.PLUS;
import static millstream.oracle.JoinDsl.onlyFrom;
import static millstream.oracle.JoinDsl.records;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.versions;

import java.util.ArrayList;
import java.util.List;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.TableJoined;

/** Tables joined with tables by a key that stands in the value. */
final class ForeignKeyJoinCases {
    /** Numbers on the left: 1, 4 and 7 refer to "b", 2, 5 and 8 to "c", 3, 6 and 9 to "a"; 4 and 9 to nothing. */
    private static final Function<Long, String> REFERENCE =
        v -> v == 4 || v == 9 ? null : List.of("a", "b", "c").get((int) (v % 3));

    private static final BiFunction<String, Long, String> WITH_KEY = (k, v) -> "a".equals(k) ? "a" : REFERENCE.apply(v);

    private ForeignKeyJoinCases() {}

    static List<Case> cases() {
        List<Case> cases = new ArrayList<>();
        for (boolean isLeft : List.of(false, true)) {
            cases.addAll(scripted(isLeft));
            cases.addAll(topologies(isLeft));
            cases.addAll(random(isLeft));
        }
        return cases;
    }

    private static List<Case> scripted(boolean isLeft) {
        return List.of(
            records(plain(isLeft, "left_rows_come_and_go"),
                "left k 1 10", "left l 1 11", "right b r1 12", "left k - 13", "left k - 14", "left m 1 15",
                "left k 1 16", "left n 2 17", "left n - 18", "left o - 19"),
            records(plain(isLeft, "right_rows_come_and_go"),
                "right b r1 10", "left k 1 11", "left l 7 12", "right b r2 13", "right b - 14", "right b - 15",
                "right c - 16", "left m 2 17", "right c r3 18", "right b r4 19"),
            records(plain(isLeft, "reference_changes"),
                "right a r1 10", "right b r2 11", "left k 1 12", "left k 3 13", "left k 2 14", "left k 1 15",
                "right a r3 16", "right b r4 17", "left k 5 18", "left k 8 19", "right c r5 20"),
            records(plain(isLeft, "same_reference_other_value"),
                "right b r1 10", "left k 1 11", "left k 7 12", "left k 7 13", "right b r1 14", "left l 5 15",
                "left l 8 16"),
            records(plain(isLeft, "reference_becomes_null"),
                "right b r1 10", "left k 1 11", "left k 4 12", "left k 9 13", "right b r2 14", "left k 7 15",
                "left k 4 16", "left k - 17", "left l 4 18", "left l - 19", "left m 2 20", "left m 4 21",
                "left m 8 22"),
            records(plain(isLeft, "equal_times"),
                "left k 1 10", "right b r1 10", "left k 3 10", "right a r2 10", "right b r3 10", "left k - 10",
                "left k 1 10", "right b - 10"),
            records(plain(isLeft, "out_of_order"),
                "left k 1 20", "right b r1 10", "left k 7 15", "right b r2 30", "left k 1 12", "left k 3 11",
                "right a r3 5", "right a - 3", "left k - 2", "left k 1 1"),
            records(plain(isLeft, "key_equal_to_reference"),
                "left a 3 10", "left b 3 11", "left c 1 12", "right a r1 13", "right b r2 14", "left a 1 15",
                "right a - 16", "left b - 17"),
            records(plain(isLeft, "null_keys"),
                "left - 1 10", "right - r1 11", "left k 1 12", "right b r2 13", "left - - 14", "right - - 15"),
            plain(isLeft, "headers")
                .pipe("left", "k", 1L, 10, "h", "1").pipe("right", "b", "r1", 11, "h", "2")
                .pipe("left", "k", 7L, 12, "h", "3").pipe("left", "k", 3L, 13, "h", "4")
                .pipe("right", "a", "r2", 14, "h", "5").pipe("left", "k", null, 15, "h", "6"));
    }

    private static List<Case> topologies(boolean isLeft) {
        return List.of(
            script(sides(isLeft, "with_store", b -> (isLeft
                    ? left(b).leftJoin(right(b), REFERENCE, PLUS, wordStore("pairs"))
                    : left(b).join(right(b), REFERENCE, PLUS, wordStore("pairs"))).toStream().to("out"))),
            script(sides(isLeft, "with_uncached_store", b -> (isLeft
                    ? left(b).leftJoin(right(b), REFERENCE, PLUS, wordStore("pairs").withCachingDisabled())
                    : left(b).join(right(b), REFERENCE, PLUS, wordStore("pairs").withCachingDisabled()))
                .toStream().to("out"))),
            script(sides(isLeft, "named", b -> out(isLeft
                ? left(b).leftJoin(right(b), REFERENCE, PLUS, TableJoined.as("refer"))
                : left(b).join(right(b), REFERENCE, PLUS, TableJoined.as("refer"))))),
            script(sides(isLeft, "named_with_store", b -> (isLeft
                    ? left(b).leftJoin(right(b), REFERENCE, PLUS, TableJoined.as("refer"), wordStore("pairs"))
                    : left(b).join(right(b), REFERENCE, PLUS, TableJoined.as("refer"), wordStore("pairs")))
                .toStream().to("out"))),
            script(sides(isLeft, "reference_of_key_and_value", b -> out(isLeft
                ? left(b).leftJoin(right(b), WITH_KEY, PLUS) : left(b).join(right(b), WITH_KEY, PLUS)))),
            script(sides(isLeft, "of_unnamed_stores", b -> out(
                join(isLeft, numberTable(b, "left"), wordTable(b, "right"))))),
            script(sides(isLeft, "of_uncached", b -> out(join(isLeft,
                b.table("left", Consumed.with(STRING, INT64), numberStore("lefts").withCachingDisabled()),
                b.table("right", Consumed.with(STRING, STRING), wordStore("rights").withCachingDisabled()))))),
            script(sides(isLeft, "of_views", b -> out(join(isLeft,
                left(b).filter((k, v) -> v != 5), right(b).mapValues(v -> v + "!"))))),
            script(sides(isLeft, "of_versioned", b -> out(join(isLeft,
                b.table("left", Consumed.with(STRING, INT64), versions("lefts", INT64, 100)),
                b.table("right", Consumed.with(STRING, STRING), versions("rights", STRING, 100)))))),
            script(sides(isLeft, "of_counts", b -> {
                KTable<String, Long> sums = numbers(b, "left").groupByKey(byNumber())
                    .reduce((agg, v) -> (agg + v) % 9 + 1, numberStore("sums"));
                out(join(isLeft, sums, right(b)));
            })),
            script(sides(isLeft, "then_group_by", b -> join(isLeft, left(b), right(b))
                .groupBy((k, v) -> KeyValue.pair("all", v), byWord())
                .aggregate(() -> "", (k, v, list) -> list + "," + v, (k, v, list) -> list + ",-" + v,
                    wordStore("lists")).toStream().to("out"))),
            script(sides(isLeft, "then_joined_back", b -> {
                KTable<String, Long> left = left(b);
                out(join(isLeft, left, right(b)).leftJoin(left, PLUS));
            })),
            onlyFrom("right", script(sides(isLeft, "of_itself", b -> {
                KTable<String, String> rows = right(b);
                out(isLeft ? rows.leftJoin(rows, v -> v.substring(1), PLUS)
                    : rows.join(rows, v -> v.substring(1), PLUS));
            }))).pipe("right", "1", "r2", 60).pipe("right", "2", "r1", 61).pipe("right", "1", "r1", 62)
                .pipe("right", "2", null, 63),
            script(sides(isLeft, "twice", b -> {
                KTable<String, Long> left = left(b);
                KTable<String, String> right = right(b);
                out(join(isLeft, left, right));
                join(isLeft, left, right).toStream().to("out2", asWords());
            }).output("out2", STRING, STRING)),
            script(sides(isLeft, "of_a_join", b -> {
                KTable<String, String> once = join(isLeft, left(b), right(b));
                Function<String, String> first = v -> v.substring(0, 1);
                KTable<String, String> third = wordTable(b, "third", "thirds");
                out(isLeft ? once.leftJoin(third, first, PLUS) : once.join(third, first, PLUS));
            }).input("third", STRING, STRING)
                .pipe("third", "1", "t1", 50).pipe("left", "k", 1L, 51).pipe("third", "7", "t7", 52)
                .pipe("left", "k", 7L, 53).pipe("third", "7", null, 54)));
    }

    private static List<Case> random(boolean isLeft) {
        long seed = isLeft ? 1601 : 1651;
        return List.of(
            random(seed, plain(isLeft, "random")),
            random(seed + 1, sides(isLeft, "with_store_random", b -> (isLeft
                    ? left(b).leftJoin(right(b), REFERENCE, PLUS, wordStore("pairs"))
                    : left(b).join(right(b), REFERENCE, PLUS, wordStore("pairs"))).toStream().to("out"))),
            random(seed + 2, sides(isLeft, "of_views_random", b -> out(join(isLeft,
                left(b).filter((k, v) -> v != 5), right(b).filter((k, v) -> !v.equals("w3")))))),
            random(seed + 3, sides(isLeft, "then_group_by_random", b -> join(isLeft, left(b), right(b))
                .groupBy((k, v) -> KeyValue.pair("all", v), byWord()).count(numberStore("counts"))
                .toStream().mapValues(v -> "" + v).to("out", asWords()))),
            random(seed + 4, sides(isLeft, "then_joined_back_random", b -> {
                KTable<String, Long> left = left(b);
                out(join(isLeft, left, right(b)).outerJoin(left, PLUS));
            })));
    }

    private static KTable<String, Long> left(StreamsBuilder b) {
        return numberTable(b, "left", "lefts");
    }

    private static KTable<String, String> right(StreamsBuilder b) {
        return wordTable(b, "right", "rights");
    }

    private static KTable<String, String> join(
            boolean isLeft, KTable<String, Long> left, KTable<String, String> right) {
        return isLeft ? left.leftJoin(right, REFERENCE, PLUS) : left.join(right, REFERENCE, PLUS);
    }

    private static void out(KTable<String, String> table) {
        table.toStream().to("out", asWords());
    }

    private static Case plain(boolean isLeft, String what) {
        return sides(isLeft, what, b -> out(join(isLeft, left(b), right(b))));
    }

    private static Case sides(boolean isLeft, String what, Consumer<StreamsBuilder> body) {
        return dsl((isLeft ? "foreign_key_left_join_" : "foreign_key_join_") + what, body)
            .input("left", STRING, INT64).input("right", STRING, STRING).output("out", STRING, STRING);
    }

    private static Case random(long seed, Case test) {
        return RandomInput.of(seed, 90, 4, 25).withNullValues(15).pipe(test);
    }

    /** Both sides come, change and go; references change and become null; several rows refer to one. */
    private static Case script(Case test) {
        return records(test,
            "left k 1 10", "right b r1 11", "left l 7 12", "left a 3 13", "right a r2 14", "right b r3 15",
            "left k 3 16", "left l 4 17", "right a - 18", "left k 5 19", "right c r4 20", "left m 8 9",
            "left l 2 21", "right c r5 22", "left k - 23", "left a - 24", "left l 9 25", "right - r6 26",
            "left - 1 27", "left n 1 28", "right b - 29");
    }
}
