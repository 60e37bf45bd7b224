package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.List;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;

/** cogroup: several grouped streams into one table. */
final class CogroupCases {
    private static final Aggregator<String, String, String> WORD = (k, v, agg) -> agg + " " + v;
    private static final Aggregator<String, Long, String> NUMBER = (k, v, agg) -> v < 0 ? null : agg + " " + v;

    private CogroupCases() {}

    static List<Case> cases() {
        return List.of(
            wordScript(dsl("cogroup_one", b -> words(b, "words").groupByKey(byWord()).cogroup(WORD)
                .aggregate(() -> "", wordStore("all")).toStream().to("out"))),
            script(dsl("cogroup_two", b -> words(b, "words").groupByKey(byWord()).cogroup(WORD)
                .cogroup(numbers(b, "numbers").groupByKey(byNumber()), NUMBER)
                .aggregate(() -> "", wordStore("all")).toStream().to("out"))),
            script(dsl("cogroup_two_unnamed_store", b -> words(b, "words").groupByKey(byWord()).cogroup(WORD)
                .cogroup(numbers(b, "numbers").groupByKey(byNumber()), NUMBER)
                .aggregate(() -> "", Materialized.with(STRING, STRING)).toStream().to("out", asWords()))),
            script(dsl("cogroup_two_named", b -> words(b, "words").groupByKey(byWord()).cogroup(WORD)
                .cogroup(numbers(b, "numbers").groupByKey(byNumber()), NUMBER)
                .aggregate(() -> "", Named.as("together"), wordStore("all")).toStream().to("out"))),
            script(dsl("cogroup_two_uncached", b -> words(b, "words").groupByKey(byWord()).cogroup(WORD)
                .cogroup(numbers(b, "numbers").groupByKey(byNumber()), NUMBER)
                .aggregate(() -> "", wordStore("all").withCachingDisabled()).toStream().to("out"))),
            script(dsl("cogroup_three", b -> words(b, "words").groupByKey(byWord()).cogroup(WORD)
                .cogroup(numbers(b, "numbers").groupByKey(byNumber()), NUMBER)
                .cogroup(words(b, "more").groupByKey(byWord()), (k, v, agg) -> agg + " more " + v)
                .aggregate(() -> "", wordStore("all")).toStream().to("out")))
                .input("more", STRING, STRING)
                .pipe("more", "a", "z", 50).pipe("numbers", "a", 9L, 2).pipe("more", "b", "z", 1),
            wordScript(dsl("cogroup_of_one_stream_twice", b -> {
                KGroupedStream<String, String> grouped = words(b, "words").groupByKey(byWord());
                grouped.cogroup(WORD)
                    .cogroup(words(b, "words").groupByKey(byWord()), (k, v, agg) -> agg + " again " + v)
                    .aggregate(() -> "", wordStore("all")).toStream().to("out");
            })),
            script(dsl("cogroup_of_rekeyed_streams", b -> words(b, "words")
                .groupBy((k, v) -> v, Grouped.with("by-word", STRING, STRING)).cogroup(WORD)
                .cogroup(numbers(b, "numbers")
                .groupBy((k, v) -> k + v, Grouped.with("by-number", STRING, INT64)), NUMBER)
                .aggregate(() -> "", wordStore("all")).toStream().to("out"))),
            script(dsl("cogroup_of_rekeyed_and_plain", b -> words(b, "words")
                .groupBy((k, v) -> v, Grouped.with("by-word", STRING, STRING)).cogroup(WORD)
                .cogroup(numbers(b, "numbers").groupByKey(byNumber()), NUMBER)
                .aggregate(() -> "", wordStore("all")).toStream().to("out"))),
            script(dsl("cogroup_of_one_unnamed_rekeyed_stream", b -> words(b, "words").groupBy((k, v) -> v, byWord())
                .cogroup(WORD)
                .cogroup(numbers(b, "numbers").groupByKey(byNumber()), NUMBER)
                .aggregate(() -> "", wordStore("all")).toStream().to("out"))),
            script(dsl("cogroup_of_two_unnamed_rekeyed_streams", b -> words(b, "words").groupBy((k, v) -> v, byWord())
                .cogroup(WORD)
                .cogroup(numbers(b, "numbers").groupBy((k, v) -> k + v, byNumber()), NUMBER)
                .aggregate(() -> "", wordStore("all")).toStream().to("out"))),
            script(dsl("cogroup_then_table_operators", b -> words(b, "words").groupByKey(byWord()).cogroup(WORD)
                .cogroup(numbers(b, "numbers").groupByKey(byNumber()), NUMBER)
                .aggregate(() -> "", wordStore("all"))
                .filter((k, v) -> v.length() > 3).mapValues(v -> v.trim()).toStream().to("out", asWords()))),
            script(dsl("cogroup_beside_a_count", b -> {
                KStream<String, String> words = words(b, "words");
                KGroupedStream<String, String> grouped = words.groupByKey(byWord());
                grouped.cogroup(WORD).cogroup(numbers(b, "numbers").groupByKey(byNumber()), NUMBER)
                    .aggregate(() -> "", wordStore("all")).toStream().to("out");
                grouped.count().toStream().mapValues(v -> "count " + v).to("out", asWords());
            })));
    }

    private static Case script(Case test) {
        return wordScript(test).input("numbers", STRING, INT64)
            .pipe("numbers", "a", 1L, 7).pipe("numbers", "c", 2L, 30).pipe("numbers", null, 3L, 31)
            .pipe("numbers", "a", null, 32)
            .pipe("words", "a", "y", 33).pipe("numbers", "b", -1L, 34).pipe("words", "b", "x", 3)
            .pipe("numbers", "d", -1L, 35);
    }

    private static Case wordScript(Case test) {
        return test.input("words", STRING, STRING).output("out", STRING, STRING)
            .pipe("words", "a", "x", 10).pipe("words", "b", "y", 20).pipe("words", "a", "x", 5)
            .pipe("words", null, "z", 21).pipe("words", "c", null, 22).pipe("words", "b", "x", 21);
    }
}
