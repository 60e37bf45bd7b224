package millstream.oracle;

import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.wordTable;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.JoinDsl.KEYED;
import static millstream.oracle.JoinDsl.PLUS;
import static millstream.oracle.JoinDsl.lookup;
import static millstream.oracle.JoinDsl.onlyFrom;
import static millstream.oracle.JoinDsl.records;
import static millstream.oracle.JoinDsl.sides;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.ms;
import static millstream.oracle.WindowDsl.versions;

import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;

/** Streams that look rows up in tables: as they are, as they were at the time of the record, and after a grace. */
final class StreamTableJoinCases {
    private StreamTableJoinCases() {}

    static List<Case> cases() {
        List<Case> cases = new ArrayList<>();
        for (boolean isLeft : List.of(false, true)) {
            cases.addAll(plain(isLeft));
            cases.addAll(versioned(isLeft));
            cases.addAll(buffered(isLeft));
        }
        cases.addAll(topologies());
        return cases;
    }

    private static List<Case> plain(boolean isLeft) {
        return List.of(
            script(sides(name(isLeft, "nulls_and_tombstones"), b -> out(
                join(isLeft, left(b), wordTable(b, "right", "rows"), lookup())))),
            script(sides(name(isLeft, "unnamed_store"), b -> out(
                join(isLeft, left(b), wordTable(b, "right"), lookup())))),
            script(sides(name(isLeft, "uncached"), b -> out(join(isLeft, left(b),
                b.table("right", Consumed.with(STRING, STRING), wordStore("rows").withCachingDisabled()),
                lookup())))),
            script(sides(name(isLeft, "with_key"), b -> out(isLeft
                ? left(b).leftJoin(wordTable(b, "right", "rows"), KEYED, lookup())
                : left(b).join(wordTable(b, "right", "rows"), KEYED, lookup())))),
            script(sides(name(isLeft, "named"), b -> out(
                join(isLeft, left(b), wordTable(b, "right", "rows"), lookup().withName("enrich"))))),
            script(sides(name(isLeft, "rekeyed"), b -> out(
                join(isLeft, byValue(left(b)), wordTable(b, "right", "rows"), lookup())))),
            script(sides(name(isLeft, "rekeyed_named"), b -> out(
                join(isLeft, byValue(left(b)), wordTable(b, "right", "rows"), lookup().withName("enrich"))))),
            script(sides(name(isLeft, "of_filtered_table"), b -> out(
                join(isLeft, left(b), wordTable(b, "right").filter((k, v) -> !v.endsWith("2")), lookup())))),
            script(sides(name(isLeft, "of_mapped_table"), b -> out(
                join(isLeft, left(b), wordTable(b, "right").mapValues(v -> v + "!"), lookup())))),
            script(sides(name(isLeft, "of_mapped_table_with_store"), b -> out(
                join(isLeft, left(b), wordTable(b, "right").mapValues(v -> v + "!", wordStore("loud")), lookup())))),
            random(isLeft ? 1401 : 1402, sides(name(isLeft, "random"), b -> out(
                join(isLeft, left(b), wordTable(b, "right", "rows"), lookup())))),
            random(isLeft ? 1403 : 1404, sides(name(isLeft, "rekeyed_random"), b -> out(join(isLeft,
                left(b).selectKey((k, v) -> v == null ? null : List.of("a", "b", "c").get(v.charAt(1) % 3)),
                wordTable(b, "right", "rows"), lookup())))));
    }

    private static List<Case> versioned(boolean isLeft) {
        return List.of(
            history(sides(name(isLeft, "versioned_as_of_the_record"), b -> out(
                join(isLeft, left(b), versionedTable(b, 100), lookup())))),
            history(sides(name(isLeft, "versioned_short_history"), b -> out(
                join(isLeft, left(b), versionedTable(b, 10), lookup())))),
            history(sides(name(isLeft, "versioned_filtered"), b -> out(
                join(isLeft, left(b), versionedTable(b, 100).filter((k, v) -> !v.endsWith("2")), lookup())))),
            history(sides(name(isLeft, "versioned_mapped"), b -> out(
                join(isLeft, left(b), versionedTable(b, 100).mapValues(v -> v + "!"), lookup())))),
            random(isLeft ? 1411 : 1412, sides(name(isLeft, "versioned_random"), b -> out(
                join(isLeft, left(b), versionedTable(b, 20), lookup())))),
            random(isLeft ? 1413 : 1414, sides(name(isLeft, "versioned_rekeyed_random"), b -> out(join(isLeft,
                left(b).selectKey((k, v) -> v == null ? null : List.of("a", "b", "c").get(v.charAt(1) % 3)),
                versionedTable(b, 30), lookup())))));
    }

    /** Kafka's left join with a grace period fails for null keys, so there are none. */
    private static List<Case> buffered(boolean isLeft) {
        return List.of(
            records(sides(name(isLeft, "grace_bounds"), b -> out(
                    join(isLeft, left(b), versionedTable(b, 100), lookup().withGracePeriod(ms(5))))),
                "left a l1 10", "left a l2 14", "right a r1 8", "left z l3 15", "right a r2 12", "left z l4 18",
                "left z l5 19", "left a l6 14", "left a l7 13", "left a l8 15", "left z l9 20", "left z l10 40"),
            records(sides(name(isLeft, "grace_order"), b -> out(
                    join(isLeft, left(b), versionedTable(b, 100), lookup().withGracePeriod(ms(10))))),
                "right a r1 10", "right b r2 11", "left b l1 15", "left a l2 12", "left a l3 15", "left b l4 12",
                "left a l5 12", "right a r3 13", "right b - 14", "left z l6 25", "left a - 60", "left z l7 40",
                "right a r4 1", "left a l8 5", "left z l9 80"),
            records(sides(name(isLeft, "grace_of_zero"), b -> out(
                    join(isLeft, left(b), versionedTable(b, 100), lookup().withGracePeriod(ms(0))))),
                "right a r1 10", "left a l1 15", "left a l2 15", "left a l3 9", "left a l4 10", "right a r2 12",
                "left a l5 12", "left a l6 16"),
            records(sides(name(isLeft, "grace_named"), b -> out(join(isLeft, left(b), versionedTable(b, 100),
                    lookup().withName("enrich").withGracePeriod(ms(5))))),
                "right a r1 10", "left a l1 15", "left a l2 20", "left a l3 30"),
            // The hashes of "rows" and "look8-Buffer" are alike: the description shows which was connected first.
            records(sides(name(isLeft, "grace_named_with_equal_hashes"), b -> out(join(isLeft, left(b),
                    versionedTable(b, 100), lookup().withName("look8").withGracePeriod(ms(5))))),
                "right a r1 10", "left a l1 15", "left a l2 20", "left a l3 30"),
            sides(name(isLeft, "grace_longer_than_history_is_refused"), b -> out(
                join(isLeft, left(b), versionedTable(b, 5), lookup().withGracePeriod(ms(6))))),
            records(sides(name(isLeft, "grace_rekeyed"), b -> out(join(isLeft, byValue(left(b)),
                    versionedTable(b, 100), lookup().withGracePeriod(ms(5))))),
                "right 1 r1 10", "left a l1 15", "left b l2 14", "right 2 r2 14", "left a l1 12", "left a l9 19",
                "left a l9 40"),
            withHeaders(sides(name(isLeft, "grace_headers"), b -> out(
                join(isLeft, left(b), versionedTable(b, 100), lookup().withGracePeriod(ms(5)))))),
            RandomInput.of(isLeft ? 1421 : 1422, 100, 4, 25).withNullValues(12).withoutNullKeys().pipe(
                sides(name(isLeft, "grace_random"), b -> out(
                    join(isLeft, left(b), versionedTable(b, 50), lookup().withGracePeriod(ms(8)))))),
            RandomInput.of(isLeft ? 1423 : 1424, 80, 4, 25).withNullValues(12).withoutNullKeys().pipe(
                sides(name(isLeft, "grace_as_long_as_history_random"), b -> out(
                    join(isLeft, left(b), versionedTable(b, 12), lookup().withGracePeriod(ms(12)))))));
    }

    private static List<Case> topologies() {
        return List.of(
            onlyFrom("left", script(sides("stream_table_join_of_its_own_table", b -> {
                KStream<String, String> left = left(b);
                left.join(left.toTable(wordStore("rows")), PLUS, lookup()).to("out", asWords());
            }))),
            onlyFrom("left", script(sides("stream_table_join_of_its_own_count", b -> {
                KStream<String, String> left = left(b);
                KTable<String, Long> counts = left.groupByKey(byWord()).count(numberStore("counts"));
                left.leftJoin(counts, PLUS, Joined.with(STRING, STRING, INT64)).to("out", asWords());
            }))),
            onlyFrom("left", script(sides("stream_table_join_of_its_own_count_attached_before", b -> {
                KStream<String, String> left = left(b);
                KStream<String, String> later = left.mapValues(v -> v + "!");
                KTable<String, Long> counts = left.groupByKey(byWord()).count(numberStore("counts"));
                later.leftJoin(counts, PLUS, Joined.with(STRING, STRING, INT64)).to("out", asWords());
            }))),
            script(sides("stream_table_join_of_rekeyed_count", b -> {
                KTable<String, Long> counts = words(b, "right").groupBy((k, v) -> v, byWord())
                    .count(numberStore("counts"));
                byValue(left(b)).join(counts, PLUS, Joined.with(STRING, STRING, INT64)).to("out", asWords());
            })),
            script(sides("stream_table_join_two_tables", b -> {
                KTable<String, String> rows = wordTable(b, "right", "rows");
                KStream<String, String> once = left(b).join(rows, PLUS, lookup());
                once.leftJoin(rows.filter((k, v) -> v.endsWith("1")), PLUS, lookup()).to("out", asWords());
            })),
            script(sides("stream_table_join_then_group_by_key", b -> left(b)
                .join(wordTable(b, "right", "rows"), PLUS, lookup()).groupByKey(byWord())
                .reduce((one, other) -> one + "," + other, wordStore("lists")).toStream().to("out"))),
            script(sides("stream_table_join_of_repartitioned", b -> left(b)
                .repartition(Repartitioned.with(STRING, STRING).withName("spread"))
                .leftJoin(wordTable(b, "right", "rows"), PLUS, lookup()).to("out", asWords()))),
            script(sides("stream_table_join_rekeyed_twice", b -> {
                KStream<String, String> rekeyed = byValue(left(b));
                KTable<String, String> rows = wordTable(b, "right", "rows");
                rekeyed.join(rows, PLUS, lookup()).to("out", asWords());
                rekeyed.leftJoin(rows, PLUS, lookup()).to("out2", asWords());
            }).output("out2", STRING, STRING)),
            script(sides("stream_table_join_default_serdes", b ->
                b.<String, String>stream("left").join(b.<String, String>table("right"), PLUS).to("out", asWords()))),
            script(sides("stream_table_join_versioned_with_unversioned_store", b -> left(b)
                .leftJoin(versionedTable(b, 100).mapValues(v -> v + "!", wordStore("loud")), PLUS, lookup())
                .to("out", asWords()))),
            sides("stream_table_join_grace_without_versions_is_refused", b -> left(b)
                .join(wordTable(b, "right", "rows"), PLUS, lookup().withGracePeriod(ms(5))).to("out")),
            sides("stream_table_join_grace_of_unversioned_store_is_refused", b -> left(b)
                .join(versionedTable(b, 100).mapValues(v -> v + "!", wordStore("loud")), PLUS,
                    lookup().withGracePeriod(ms(5))).to("out")),
            sides("stream_table_join_twice_under_one_name_is_refused", b -> {
                KTable<String, String> rows = wordTable(b, "right", "rows");
                left(b).join(rows, PLUS, lookup().withName("enrich")).to("out");
                left(b).join(rows, PLUS, lookup().withName("enrich")).to("out");
            }));
    }

    private static KStream<String, String> join(
            boolean isLeft, KStream<String, String> stream, KTable<String, String> table,
            Joined<String, String, String> joined) {
        return isLeft ? stream.leftJoin(table, PLUS, joined) : stream.join(table, PLUS, joined);
    }

    private static KStream<String, String> left(StreamsBuilder b) {
        return words(b, "left");
    }

    private static KTable<String, String> versionedTable(StreamsBuilder b, long history) {
        return b.table("right", Consumed.with(STRING, STRING), versions("rows", STRING, history));
    }

    private static KStream<String, String> byValue(KStream<String, String> stream) {
        return stream.selectKey((k, v) -> v == null ? null : v.substring(1));
    }

    private static void out(KStream<String, String> stream) {
        stream.to("out", asWords());
    }

    private static String name(boolean isLeft, String what) {
        return (isLeft ? "stream_table_left_join_" : "stream_table_join_") + what;
    }

    private static Case random(long seed, Case test) {
        return RandomInput.of(seed, 80, 4, 25).withNullValues(12).pipe(test);
    }

    /** Rows that come, change and go, records out of order, null keys, null values, headers. */
    private static Case script(Case test) {
        return test
            .pipe("left", "a", "l1", 10, "h", "1").pipe("right", "a", "r1", 11, "h", "2")
            .pipe("left", "a", "l2", 12, "h", "3").pipe("left", "a", "l3", 5).pipe("right", "a", "r2", 8)
            .pipe("left", "a", "l4", 12).pipe("left", null, "l5", 13).pipe("left", "a", null, 14)
            .pipe("right", null, "r3", 15).pipe("right", "a", null, 16).pipe("left", "a", "l6", 17)
            .pipe("right", "1", "r4", 20).pipe("right", "2", "r2", 20).pipe("left", "b", "l1", 20)
            .pipe("left", "b", "l2", 20).pipe("right", "b", "r5", 30).pipe("left", "b", "l7", 25)
            .pipe("right", "1", null, 31).pipe("left", "c", "l1", 32).pipe("left", null, null, 33);
    }

    /** The same for tables with versions: look-ups between, at and before them. */
    private static Case history(Case test) {
        return records(test,
            "right a r1 10", "right a r2 20", "left a l1 5", "left a l2 10", "left a l3 19", "left a l4 20",
            "right a r3 15", "left a l5 15", "left a l6 19", "left a l7 30", "right a - 25", "left a l8 24",
            "left a l9 25", "right a r4 30", "left a l10 29", "left - l11 30", "left a - 30", "right b r5 40",
            "left a l12 12", "left a l13 22", "right a r6 12", "left a l14 13", "left b l15 39", "left b l16 41",
            "right b r6 40", "left b l17 40");
    }

    private static Case withHeaders(Case test) {
        return test
            .pipe("right", "a", "r1", 5, "h", "0").pipe("left", "a", "l1", 10, "h", "1")
            .pipe("left", "a", "l2", 12, "h", "2").pipe("left", "a", "l3", 16, "h", "3")
            .pipe("left", "a", "l4", 8, "h", "4").pipe("left", "a", "l5", 30);
    }
}
