package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Case.headers;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.wordTable;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Processes.eachValue;
import static millstream.oracle.Processes.toWords;
import static millstream.oracle.Processes.valuesToWords;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.List;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/** Whose headers an output carries. */
final class HeaderCases {
    private HeaderCases() {}

    static List<Case> cases() {
        return List.of(
            script(dsl("headers_of_stateless_operators", b -> words(b, "in").filter((k, v) -> v != null)
                .map((k, v) -> KeyValue.pair(v, k))
                .flatMapValues(v -> List.of("1", "2")).peek((k, v) -> {}).selectKey((k, v) -> v).to("out", asWords()))),
            dsl("headers_kept_exactly", b -> words(b, "in").to("out"))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 1, "h", "1", "g", "2", "h", "3")
                .pipe("in", "a", "x", 2, "empty", "", "none", null)
                .pipe("in", "a", "x", 3, "wide", "gr\u00fc\u00df \u20ac").pipe("in", "a", "x", 4),
            counting(dsl("headers_of_count", b -> words(b, "in").groupByKey(byWord()).count(numberStore("counts"))
                .toStream().to("out"))),
            counting(dsl("headers_of_uncached_count", b -> words(b, "in").groupByKey(byWord())
                .count(numberStore("counts").withCachingDisabled())
                .toStream().to("out"))),
            counting(dsl("headers_of_count_behind_repartition", b -> words(b, "in").groupBy((k, v) -> v, byWord())
                .count(numberStore("counts"))
                .toStream().to("out"))),
            script(dsl("headers_of_collapsed_updates", b -> words(b, "in")
                .processValues(valuesToWords((context, record) -> {
                    if (record.value() != null) {
                        context.forward(record.withHeaders(headers("update", "first")));
                        context.forward(record.withHeaders(headers("update", "second")));
                        context.forward(record);
                        context.forward(record.withHeaders(headers("update", "last"))
                            .withTimestamp(record.timestamp() - 1));
                    }
                })).groupByKey(byWord()).reduce((agg, v) -> agg + v, wordStore("joined")).toStream().to("out"))),
            dsl("headers_and_time_of_collapsed_tombstones", b -> words(b, "in")
                    .processValues(valuesToWords((context, record) -> {
                        context.forward(record.withTimestamp(record.timestamp() + 100)
                            .withHeaders(headers("update", "first")));
                        context.forward(record.withValue("delete").withTimestamp(record.timestamp() + 50)
                            .withHeaders(headers("update", "delete")));
                    })).groupByKey(byWord())
                        .aggregate(() -> "", (k, v, agg) -> v.equals("delete") ? null : agg + v, wordStore("joined"))
                    .toStream().to("out"))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 10).pipe("in", "a", "delete", 11).pipe("in", "b", "y", 12),
            dsl("headers_and_time_of_kept_row_then_tombstone", b -> words(b, "in")
                    .processValues(valuesToWords((context, record) ->
                        context.forward(record.withTimestamp(record.timestamp() + 100)
                            .withHeaders(headers("value", record.value())))))
                    .groupByKey(byWord())
                    .aggregate(() -> "", (k, v, agg) -> v.equals("delete") ? null : agg + v, wordStore("joined"))
                    .toStream().to("out"))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 10, "n", "1").pipe("in", "a", "delete", 5, "n", "2")
                .pipe("in", "a", "z", 1, "n", "3"),
            script(dsl("headers_of_table", b -> wordTable(b, "in").toStream().to("out"))),
            script(dsl("headers_of_stored_table", b -> wordTable(b, "in", "store").filter((k, v) -> !"x".equals(v))
                .mapValues(v -> v + "!")
                .toStream().to("out", asWords()))),
            script(dsl("headers_of_stored_table_operators", b -> wordTable(b, "in")
                .filter((k, v) -> !"x".equals(v), wordStore("kept"))
                .mapValues(v -> v + "!", wordStore("mapped")).toStream().to("out"))),
            counting(dsl("headers_of_table_group_by", b -> wordTable(b, "in")
                .groupBy((k, v) -> KeyValue.pair(v, k), byWord())
                .count(numberStore("counts")).toStream().to("out"))),
            script(dsl("headers_of_to_table", b -> words(b, "in").selectKey((k, v) -> v).toTable(wordStore("rows"))
                .toStream().to("out"))),
            script(dsl("headers_of_cogroup", b -> words(b, "in").groupByKey(byWord())
                .cogroup((String k, String v, String agg) -> agg + v)
                .cogroup(words(b, "other").groupByKey(byWord()), (k, v, agg) -> agg + "-" + v)
                .aggregate(() -> "", wordStore("all")).toStream().to("out")))
                .input("other", STRING, STRING)
                .pipe("other", "a", "z", 50, "from", "other").pipe("in", "a", "w", 1),
            script(dsl("headers_of_merge", b -> words(b, "in").merge(words(b, "other")).to("out", asWords())))
                .input("other", STRING, STRING)
                .pipe("other", "a", "z", 50, "from", "other"),
            script(dsl("headers_added_by_processor", b -> words(b, "in").process(toWords((context, record) -> {
                Headers more = new RecordHeaders(record.headers());
                more.add("seen", record.key().getBytes());
                context.forward(record.withHeaders(more));
            })).to("out", asWords()))),
            script(dsl("headers_removed_by_processor", b -> words(b, "in").process(toWords((context, record) ->
                context.forward(record.withHeaders(new RecordHeaders())))).to("out", asWords()))),
            script(dsl("headers_changed_for_one_branch", b -> {
                KStream<String, String> in = words(b, "in");
                in.processValues(valuesToWords((context, record) ->
                    context.forward(record.withHeaders(headers("changed", "yes"))))).to("out", asWords());
                in.to("other");
            }))
                .output("other", STRING, STRING),
            counting(dsl("headers_changed_before_count", b -> words(b, "in")
                .processValues(valuesToWords((context, record) ->
                    context.forward(record.withHeaders(headers("changed", "yes")))))
                .groupByKey(byWord()).count(numberStore("counts")).toStream().to("out"))),
            counting(dsl("headers_changed_before_uncached_count", b -> words(b, "in")
                .processValues(valuesToWords((context, record) ->
                    context.forward(record.withHeaders(headers("changed", "yes")))))
                .groupByKey(byWord()).count(numberStore("counts").withCachingDisabled()).toStream().to("out"))),
            counting(dsl("headers_changed_behind_count", b -> words(b, "in").groupByKey(byWord())
                .count(numberStore("counts")).toStream()
                .processValues(eachValue((FixedKeyProcessorContext<String, Long> context,
                    FixedKeyRecord<String, Long> record) -> {
                    Headers more = new RecordHeaders(record.headers());
                    more.add("count", ("" + record.value()).getBytes());
                    context.forward(record.withHeaders(more));
                })).to("out", asNumbers()))));
    }

    private static Case script(Case test) {
        return test.input("in", STRING, STRING).output("out", STRING, STRING)
            .pipe("in", "a", "x", 10, "n", "1").pipe("in", "b", "y", 20, "n", "2").pipe("in", "a", "y", 5, "n", "3")
            .pipe("in", "a", "x", 30).pipe("in", "b", null, 31, "n", "5", "last", "yes");
    }

    private static Case counting(Case test) {
        return script(test).output("out", STRING, INT64);
    }
}
