package millstream.oracle;

import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.JoinDsl.joined;
import static millstream.oracle.JoinDsl.records;
import static millstream.oracle.JoinDsl.sides;
import static millstream.oracle.JoinDsl.within;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.function.Consumer;
import java.util.stream.LongStream;
import millstream.oracle.JoinDsl.Kind;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.StreamJoined;

/** Streams joined with streams: inner, left and outer, in windows of all shapes. */
final class StreamStreamJoinCases {
    private record Shape(String name, long before, long after, long grace) {
        JoinWindows windows() {
            return within(before, after, grace);
        }
    }

    private static final List<Shape> SHAPES = List.of(
        new Shape("symmetric", 10, 10, 0),
        new Shape("with_grace", 10, 10, 5),
        new Shape("before_only", 10, 0, 3),
        new Shape("after_only", 0, 10, 3),
        new Shape("negative_after", 10, -3, 2),
        new Shape("negative_before", -3, 10, 2),
        new Shape("equal_times_only", 0, 0, 0));

    private StreamStreamJoinCases() {}

    static List<Case> cases() {
        List<Case> cases = new ArrayList<>();
        long seed = 1000;
        for (Kind kind : Kind.values()) {
            for (Shape shape : SHAPES) {
                cases.add(bounds(shape, joining(kind, shape.name + "_bounds", shape)));
                cases.add(RandomInput.of(++seed, 80, 4, 25).pipe(joining(kind, shape.name + "_random", shape)));
            }
            cases.addAll(of(kind));
        }
        cases.addAll(unmatched());
        cases.addAll(late());
        cases.addAll(rekeyed());
        cases.addAll(refused());
        return cases;
    }

    /** What every kind of join shows. */
    private static List<Case> of(Kind kind) {
        return List.of(
            mixed(joining(kind, "nulls_and_headers", new Shape("", 10, 10, 0))),
            records(joining(kind, "equal_keys_and_times", new Shape("", 5, 5, 2)),
                "left a l1 10", "left a l2 10", "right a r1 12", "right a r2 12", "left a l3 10", "right a r3 10",
                "left b l4 12", "left b l5 12", "right b r4 20", "left b l6 12", "left z l7 20", "left z l8 30"),
            records(joining(kind, "near_zero", new Shape("", 10, 10, 0)),
                "left a l1 0", "right a r1 3", "right a r2 0", "left a l2 1", "right b r3 2", "left b l3 13",
                "left b l4 12", "left z l5 40"),
            mixed(sides(name(kind, "with_key"), b -> kind.withKey(left(b), right(b), within(10, 10, 0))
                .to("out", asWords()))),
            mixed(sides(name(kind, "named"), b -> kind.of(left(b), right(b), within(10, 10, 0),
                joined().withName("pairs")).to("out", asWords()))),
            mixed(sides(name(kind, "named_stores"), b -> kind.of(left(b), right(b), within(10, 10, 0),
                joined().withStoreName("kept")).to("out", asWords()))),
            mixed(sides(name(kind, "named_nodes_and_stores"), b -> kind.of(left(b), right(b), within(10, 10, 0),
                joined().withName("pairs").withStoreName("kept").withLoggingDisabled()).to("out", asWords()))),
            mixed(sides(name(kind, "rekeyed_left"), b -> kind.of(byValue(left(b)), right(b), within(10, 10, 0),
                joined()).to("out", asWords()))),
            mixed(sides(name(kind, "rekeyed_right_named"), b -> kind.of(left(b), byValue(right(b)), within(10, 10, 0),
                joined().withName("pairs")).to("out", asWords()))),
            RandomInput.of(1100 + kind.ordinal(), 80, 4, 20).pipe(sides(name(kind, "rekeyed_both_random"), b ->
                kind.of(byValue(left(b)), byValue(right(b)), within(10, 10, 3), joined()).to("out", asWords()))),
            RandomInput.of(1110 + kind.ordinal(), 120, 1, 6).pipe(joining(kind, "dense_random",
                new Shape("", 2, 3, 1))),
            RandomInput.of(1120 + kind.ordinal(), 60, 40_000, 200_000).pipe(joining(kind, "minutes_random",
                new Shape("", 60_000, 90_000, 30_000))),
            RandomInput.of(1130 + kind.ordinal(), 60, 4, 20).pipe(sides(name(kind, "of_two_types_random"), b ->
                    kind.of(left(b), Dsl.numbers(b, "right"), within(6, 6, 4),
                        StreamJoined.with(STRING, STRING, INT64)).to("out", asWords()))
                .input("right", STRING, INT64)),
            mixed(sides(name(kind, "then_count"), b -> kind.of(left(b), right(b), within(10, 10, 0), joined())
                    .groupByKey(byWord()).count(numberStore("counts")).toStream().to("out", asNumbers()))
                .output("out", STRING, INT64)));
    }

    /** Records without a partner wait for the end of their windows and of the grace period. */
    private static List<Case> unmatched() {
        Shape uneven = new Shape("", 3, 10, 5);
        return List.of(
            records(joining(Kind.LEFT, "left_waits_for_after_and_grace", uneven),
                "left a l1 10", "right z r1 25", "right z r2 26", "left a l2 30", "left z l3 45", "left z l4 46"),
            records(joining(Kind.OUTER, "each_side_waits_for_its_own_bound", uneven),
                "left a l1 10", "right b r1 10", "right z r2 18", "right z r3 19", "left z l2 25", "left z l3 26",
                "right z r4 100"),
            records(joining(Kind.OUTER, "released_by_time_then_side_then_key", new Shape("", 5, 5, 0)),
                "left c l1 10", "right b r1 10", "left a l2 10", "right a r2 11", "right c r3 9", "left b l3 9",
                "right d r4 10", "left d l4 16", "left z l5 40"),
            records(joining(Kind.OUTER, "released_before_its_own_pairs", new Shape("", 10, 10, 0)),
                "left b l1 10", "right a r1 20", "right a r2 21", "left a l2 25", "left z l3 60"),
            records(joining(Kind.OUTER, "partial_release", new Shape("", 2, 10, 0)),
                "left a l1 10", "right b r1 11", "left c l2 12", "right d r2 13", "right z r3 16", "right z r4 21",
                "right z r5 22", "right z r6 23", "left z l3 24", "left z l4 60"),
            records(joining(Kind.LEFT, "partial_release", new Shape("", 5, 5, 0)),
                "left a l1 10", "left b l2 12", "left c l3 14", "left z l4 16", "left z l5 17", "left z l6 18",
                "left z l7 20", "left z l8 40"),
            records(joining(Kind.LEFT, "a_match_takes_all_that_wait_at_its_time", new Shape("", 5, 5, 0)),
                "left a l1 10", "left a l2 10", "left a l3 11", "right a r1 15", "right a r2 16", "left z l4 40"),
            records(joining(Kind.OUTER, "a_match_takes_all_that_wait_at_its_time", new Shape("", 5, 5, 0)),
                "left a l1 10", "left a l2 10", "right b r1 10", "right b r2 10", "right a r3 14", "left b l3 13",
                "left z l4 40"),
            records(joining(Kind.LEFT, "a_tie_with_stream_time_releases", new Shape("", 5, 5, 0)),
                "left a l1 10", "right z r1 16", "left b l2 10", "right z r2 16", "left b l3 11", "left z l4 16"),
            records(joining(Kind.OUTER, "null_keys_do_not_release", new Shape("", 5, 5, 0)),
                "left a l1 10", "left - l2 30", "right - r1 40", "left b - 50", "right b - 50", "right z r2 15",
                "right z r3 16"),
            records(joining(Kind.LEFT, "right_alone_releases", new Shape("", 5, 5, 0)),
                "left a l1 10", "left b l2 11", "right z r1 16", "right z r2 17", "right - r3 60", "left c l3 18",
                "right z r4 60"),
            withHeaders(joining(Kind.OUTER, "released_with_headers_of_the_trigger", new Shape("", 5, 5, 0))));
    }

    /** Records behind stream time. */
    private static List<Case> late() {
        Shape grace = new Shape("", 5, 5, 20);
        return List.of(
            records(joining(Kind.LEFT, "late_goes_out_alone_and_in_a_pair", grace),
                "left z l1 30", "left a l2 10", "right a r1 12", "left a l3 25", "left a l4 24", "right a r2 26",
                "left z l5 100"),
            records(joining(Kind.OUTER, "late_goes_out_alone_and_in_a_pair", grace),
                "left z l1 30", "right a r1 10", "left a l2 12", "right b r2 25", "right b r3 24", "left b l3 26",
                "left z l4 100"),
            records(joining(Kind.INNER, "partner_kept_until_its_own_side_moves_on", new Shape("", 5, 5, 0)),
                "right a r1 10", "left z l1 1000", "left a l2 12", "right z r2 19", "left a l3 13", "right z r3 20",
                "left a l4 14", "right a r4 11", "left a l5 11"),
            records(joining(Kind.INNER, "partner_kept_for_window_and_grace", new Shape("", 5, 5, 7)),
                "left a l1 10", "left z l2 26", "right a r1 12", "left z l3 27", "right a r2 12"),
            records(joining(Kind.INNER, "partner_kept_for_uneven_window", new Shape("", 2, 8, 0)),
                "left a l1 10", "left z l2 19", "right a r1 12", "left z l3 20", "right a r2 12"),
            records(joining(Kind.OUTER, "jump_of_time", new Shape("", 5, 5, 2)),
                "left a l1 10", "right b r1 11", "left z l2 1000000", "right a r2 12", "left b l3 12",
                "right z r3 1000003", "left a l4 999990", "right a r4 999988"));
    }

    private static List<Case> rekeyed() {
        return List.of(
            mixed(sides("stream_stream_join_of_one_rekeyed_stream_twice", b -> {
                KStream<String, String> left = byValue(left(b));
                left.join(right(b), JoinDsl.PLUS, within(10, 10, 0), joined()).to("out", asWords());
                left.leftJoin(right(b), JoinDsl.PLUS, within(5, 5, 0), joined()).to("out2", asWords());
            }).output("out2", STRING, STRING)),
            mixed(sides("stream_stream_join_of_one_rekeyed_stream_twice_named", b -> {
                KStream<String, String> left = byValue(left(b));
                left.join(right(b), JoinDsl.PLUS, within(10, 10, 0), joined().withName("one")).to("out", asWords());
                left.leftJoin(right(b), JoinDsl.PLUS, within(5, 5, 0), joined().withName("two"))
                    .to("out2", asWords());
            }).output("out2", STRING, STRING)),
            mixed(sides("stream_stream_join_of_joins", b -> {
                KStream<String, String> once = left(b).join(right(b), JoinDsl.PLUS, within(10, 10, 0), joined());
                once.leftJoin(words(b, "third"), JoinDsl.PLUS, within(10, 10, 0), joined()).to("out", asWords());
            }).input("third", STRING, STRING)
                .pipe("third", "a", "t1", 14).pipe("third", "a", "t2", 33).pipe("left", "z", "z", 80)),
            mixed(sides("stream_stream_join_then_rekeyed_join", b -> {
                KStream<String, String> once = left(b).join(right(b), JoinDsl.PLUS, within(10, 10, 0), joined());
                once.selectKey((k, v) -> "k" + k).outerJoin(right(b).selectKey((k, v) -> "k" + k), JoinDsl.PLUS,
                    within(10, 10, 0), joined()).to("out", asWords());
            })),
            mixed(sides("stream_stream_join_of_merged_and_filtered", b -> left(b).merge(right(b))
                .leftJoin(right(b).filter((k, v) -> !"r2".equals(v)), JoinDsl.PLUS, within(10, 10, 0), joined())
                .to("out", asWords()))),
            RandomInput.of(1201, 80, 4, 20).pipe(sides("stream_stream_join_of_joins_random", b -> {
                KStream<String, String> once = left(b).outerJoin(right(b), JoinDsl.PLUS, within(6, 4, 3), joined());
                once.outerJoin(words(b, "third"), JoinDsl.PLUS, within(8, 8, 0), joined()).to("out", asWords());
            }).input("third", STRING, STRING)));
    }

    private static List<Case> refused() {
        return List.of(
            sides("stream_stream_join_window_below_zero_is_refused", b ->
                left(b).join(right(b), JoinDsl.PLUS, within(5, -6, 0), joined()).to("out")),
            sides("stream_stream_join_negative_grace_is_refused", b ->
                left(b).join(right(b), JoinDsl.PLUS, within(5, 5, -1), joined()).to("out")),
            sides("stream_stream_join_twice_under_one_name_is_refused", b -> {
                left(b).join(right(b), JoinDsl.PLUS, within(5, 5, 0), joined().withName("pairs")).to("out");
                left(b).join(right(b), JoinDsl.PLUS, within(5, 5, 0), joined().withName("pairs")).to("out");
            }),
            sides("stream_stream_join_twice_under_one_store_name_is_refused", b -> {
                left(b).join(right(b), JoinDsl.PLUS, within(5, 5, 0), joined().withStoreName("kept")).to("out");
                left(b).join(right(b), JoinDsl.PLUS, within(5, 5, 0), joined().withStoreName("kept")).to("out");
            }));
    }

    private static KStream<String, String> left(StreamsBuilder b) {
        return words(b, "left");
    }

    private static KStream<String, String> right(StreamsBuilder b) {
        return words(b, "right");
    }

    private static KStream<String, String> byValue(KStream<String, String> stream) {
        return stream.selectKey((k, v) -> v == null ? null : v.substring(1));
    }

    private static String name(Kind kind, String what) {
        return "stream_stream_" + kind.label + '_' + what;
    }

    private static Case joining(Kind kind, String what, Shape shape) {
        Consumer<StreamsBuilder> body = b -> kind.of(left(b), right(b), shape.windows(), joined())
            .to("out", asWords());
        return sides(name(kind, what), body);
    }

    /** Both sides of each bound of a window and of its close: first the left record is there, then the right one. */
    private static Case bounds(Shape shape, Case test) {
        test.pipe("left", "a", "l", 100);
        for (long time : aroundEach(100 - shape.before, 100 + shape.after)) {
            test.pipe("right", "a", "r" + time, time);
        }
        test.pipe("right", "b", "r", 100);
        for (long time : aroundEach(100 - shape.after, 100 + shape.before)) {
            test.pipe("left", "b", "l" + time, time);
        }
        test.pipe("left", "c", "l", 200).pipe("right", "d", "r", 200);
        for (long time : aroundEach(200 + shape.before + shape.grace, 200 + shape.after + shape.grace)) {
            test.pipe("right", "z", "r" + time, time);
        }
        return test.pipe("left", "z", "l", 500).pipe("right", "z", "r", 1000);
    }

    private static TreeSet<Long> aroundEach(long... bounds) {
        TreeSet<Long> times = new TreeSet<>();
        LongStream.of(bounds).forEach(bound -> times.addAll(List.of(bound - 1, bound, bound + 1)));
        return times;
    }

    /** Pairs, several partners, records out of order, null keys, null values, headers. */
    private static Case mixed(Case test) {
        return test
            .pipe("left", "a", "l1", 10, "h", "1").pipe("right", "a", "r1", 12, "h", "2")
            .pipe("right", "a", "r2", 20).pipe("left", "a", "l2", 15, "h", "3").pipe("left", null, "l3", 16)
            .pipe("right", null, "r3", 17).pipe("left", "b", null, 18).pipe("right", "b", null, 18)
            .pipe("left", "b", "l4", 19, "h", "4").pipe("right", "b", "r4", 29).pipe("left", "b", "l5", 40)
            .pipe("right", "c", "r5", 35).pipe("left", "c", "l1", 30).pipe("right", "1", "r1", 31, "h", "5")
            .pipe("left", null, null, 32).pipe("left", "d", "l6", 60).pipe("right", "d", "r6", 75, "h", "6");
    }

    private static Case withHeaders(Case test) {
        return test
            .pipe("left", "a", "l1", 10, "h", "1").pipe("right", "b", "r1", 11, "h", "2")
            .pipe("left", "c", "l2", 30, "h", "3", "i", null).pipe("right", "c", "r2", 31).pipe("left", "c", "l3", 60);
    }
}
