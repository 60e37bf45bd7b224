package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Processes.valuesToWords;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.List;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Repartitioned;

/** repartition(), and the repartition topics that operators insert by themselves. */
final class RepartitionCases {
    private RepartitionCases() {}

    static List<Case> cases() {
        return List.of(
            script(dsl("repartition", b -> words(b, "in").repartition().to("out"))),
            script(dsl("repartition_named", b -> words(b, "in")
                .repartition(Repartitioned.with(STRING, STRING).withName("spread"))
                .mapValues(v -> v + "!").to("out", asWords()))),
            script(dsl("repartition_with_partitions", b -> words(b, "in")
                .repartition(Repartitioned.<String, String>numberOfPartitions(4).withKeySerde(STRING)
                .withValueSerde(STRING)).to("out"))),
            script(dsl("repartition_of_rekeyed_stream", b -> words(b, "in").selectKey((k, v) -> v)
                .repartition(Repartitioned.with(STRING, STRING)).to("out"))),
            counting(dsl("repartition_then_count", b -> words(b, "in").selectKey((k, v) -> v)
                .repartition(Repartitioned.with(STRING, STRING).withName("spread"))
                .groupByKey(byWord()).count(numberStore("counts")).toStream().to("out", asNumbers()))),
            counting(dsl("repartition_without_rekeying_then_count", b -> words(b, "in")
                .repartition(Repartitioned.with(STRING, STRING))
                .groupByKey(byWord()).count().toStream().to("out", asNumbers()))),
            counting(dsl("repartition_then_rekey_then_count", b -> words(b, "in")
                .repartition(Repartitioned.with(STRING, STRING).withName("spread"))
                .selectKey((k, v) -> v).groupByKey(Grouped.with("again", STRING, STRING)).count(numberStore("counts"))
                .toStream().to("out", asNumbers()))),
            script(dsl("repartition_twice", b -> words(b, "in")
                .repartition(Repartitioned.with(STRING, STRING).withName("one"))
                .mapValues(v -> v + "1").repartition(Repartitioned.with(STRING, STRING).withName("two"))
                .mapValues(v -> v + "2").to("out", asWords()))),
            script(dsl("repartition_of_one_stream_twice", b -> {
                KStream<String, String> in = words(b, "in");
                in.repartition(Repartitioned.with(STRING, STRING).withName("one")).to("out");
                in.repartition(Repartitioned.with(STRING, STRING).withName("two")).mapValues(v -> v + "2")
                    .to("out2", asWords());
            }))
                .output("out2", STRING, STRING),
            script(dsl("repartition_read_by_two", b -> {
                KStream<String, String> spread = words(b, "in").repartition(Repartitioned.with(STRING, STRING));
                spread.to("out");
                spread.mapValues(v -> v + "2").to("out2", asWords());
            }))
                .output("out2", STRING, STRING),
            script(dsl("repartition_of_merge", b -> words(b, "in").mapValues(v -> v + "1").merge(words(b, "other"))
                    .repartition(Repartitioned.with(STRING, STRING)).to("out")))
                .input("other", STRING, STRING)
                .pipe("other", "o", "x", 40).pipe("other", null, "y", 41),
            script(dsl("repartition_merged_with_its_input", b -> {
                KStream<String, String> in = words(b, "in");
                in.repartition(Repartitioned.with(STRING, STRING)).mapValues(v -> v + " moved").merge(in)
                    .to("out", asWords());
            })),
            counting(dsl("repartition_then_to_table", b -> words(b, "in").selectKey((k, v) -> v)
                .repartition(Repartitioned.with(STRING, STRING)).toTable(Dsl.wordStore("rows"))
                .mapValues(v -> (long) v.length()).toStream().to("out", asNumbers()))),
            script(dsl("repartition_two_merged_in_order_of_time", b -> {
                KStream<String, String> in = words(b, "in").filter((k, v) -> k != null);
                KStream<String, String> late = in.processValues(valuesToWords((context, record) ->
                        context.forward(record.withValue("late").withTimestamp(record.timestamp() + 100))))
                    .repartition(Repartitioned.with(STRING, STRING).withName("late"));
                KStream<String, String> early = in.processValues(valuesToWords((context, record) -> {
                    context.forward(record.withValue("early"));
                    context.forward(record.withValue("later").withTimestamp(record.timestamp() + 200));
                    context.forward(record.withValue("behind").withTimestamp(record.timestamp() + 1));
                })).repartition(Repartitioned.with(STRING, STRING).withName("early"));
                late.merge(early).to("out", asWords());
            })),
            counting(dsl("repartition_by_three_operators", b -> {
                KStream<String, String> rekeyed = words(b, "in").selectKey((k, v) -> v, Named.as("rekey"));
                rekeyed.repartition(Repartitioned.with(STRING, STRING).withName("explicit")).foreach((k, v) -> {});
                rekeyed.groupByKey(Grouped.with("grouped", STRING, STRING)).count(numberStore("counts")).toStream()
                    .to("out", asNumbers());
                rekeyed.toTable(Named.as("tabled"), Dsl.wordStore("rows"));
            })));
    }

    private static Case script(Case test) {
        return test.input("in", STRING, STRING).output("out", STRING, STRING)
            .pipe("in", "a", "x", 10, "h", "1").pipe("in", "b", "y", 5).pipe("in", null, "x", 20)
            .pipe("in", "a", null, 21)
            .pipe("in", "b", "x", 5);
    }

    private static Case counting(Case test) {
        return script(test).output("out", STRING, INT64);
    }
}
