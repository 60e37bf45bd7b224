package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.streams.kstream.KStream;

/** to: fixed topics, topics chosen per record, topics that are read again. */
final class SinkCases {
    private SinkCases() {}

    static List<Case> cases() {
        return List.of(
            dsl("sink_named", b -> words(b, "in").to("out", asWords().withName("target")))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 1).pipe("in", null, null, 2),
            dsl("sink_order_of_children", b -> {
                KStream<String, String> in = words(b, "in");
                in.mapValues(v -> v + "1").to("one", asWords());
                in.to("two");
                in.mapValues(v -> v + "3").to("three", asWords());
            })
                .input("in", STRING, STRING)
                .output("one", STRING, STRING).output("two", STRING, STRING).output("three", STRING, STRING)
                .pipe("in", "a", "x", 1).pipe("in", "a", "y", 2),
            dsl("two_sinks_to_one_topic", b -> {
                KStream<String, String> in = words(b, "in");
                in.to("out");
                in.mapValues(v -> v + "'").to("out", asWords());
            })
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 1).pipe("in", "a", "y", 2),
            dsl("sink_topic_is_read_again", b -> {
                words(b, "in").flatMapValues(v -> Arrays.asList(v.split(" "))).to("middle", asWords());
                words(b, "middle").mapValues(v -> v + "!").to("out", asWords());
            })
                .input("in", STRING, STRING).input("middle", STRING, STRING)
                .output("middle", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x y", 1, "h", "1").pipe("in", null, "z", 2).pipe("middle", "m", "direct", 0),
            dsl("sink_topic_is_read_again_as_table", b -> {
                words(b, "in").selectKey((k, v) -> v).to("middle", asWords());
                Dsl.wordTable(b, "middle", "latest").toStream().to("out");
            })
                .input("in", STRING, STRING).output("middle", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 4).pipe("in", "b", "x", 3).pipe("in", "c", null, 5),
            dsl("sink_topic_from_value", b -> words(b, "in").to(
                    new Route<>("by_value", (k, v, context) -> v == null ? "nulls" : "topic-" + v), asWords()))
                .input("in", STRING, STRING)
                .output("topic-x", STRING, STRING).output("topic-y", STRING, STRING).output("nulls", STRING, STRING)
                .pipe("in", "a", "x", 1).pipe("in", "a", "y", 2).pipe("in", null, "x", 3).pipe("in", "a", null, 4),
            dsl("sink_topic_from_context", b -> words(b, "in").mapValues(v -> v + "!")
                    .to(new Route<>("by_position", (k, v, context) ->
                            context.topic() + "-" + context.partition() + "-" + context.offset() + "-"
                                + context.timestamp()),
                        asWords().withName("routed")))
                .input("in", STRING, STRING)
                .output("in-0-0-7", STRING, STRING).output("in-0-1-3", STRING, STRING)
                .pipe("in", "a", "x", 7).pipe("in", "a", "x", 3),
            dsl("sink_topic_from_header", b -> words(b, "in").to(new Route<>("by_header", (k, v, context) ->
                    new String(context.headers().lastHeader("to").value(), StandardCharsets.UTF_8)), asWords()))
                .input("in", STRING, STRING).output("here", STRING, STRING).output("there", STRING, STRING)
                .pipe("in", "a", "x", 7, "to", "here").pipe("in", "a", "x", 3, "to", "here", "to", "there"),
            dsl("sink_of_counts_and_events", b -> {
                KStream<String, String> in = words(b, "in");
                in.groupByKey(byWord()).count(numberStore("counts")).toStream().to("counts-out", asNumbers());
                in.to("events");
            })
                .input("in", STRING, STRING).output("counts-out", STRING, INT64).output("events", STRING, STRING)
                .pipe("in", "a", "x", 7).pipe("in", "a", "y", 3).pipe("in", null, "z", 8));
    }
}
