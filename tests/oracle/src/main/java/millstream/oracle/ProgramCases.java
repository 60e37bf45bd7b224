package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Dsl.wordStore;
import static millstream.oracle.Dsl.wordTable;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.List;
import java.util.Map;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Repartitioned;

/** Whole programs of many operators: mostly for the description of their topologies. */
final class ProgramCases {
    private ProgramCases() {}

    static List<Case> cases() {
        return List.of(
            dsl("program_shop", ProgramCases::shop)
                .input("orders", STRING, INT64).input("refunds", STRING, INT64).input("customers", STRING, STRING)
                .output("large", STRING, INT64).output("balance", STRING, INT64).output("cities", STRING, INT64)
                .output("sizes", STRING, INT64).output("log", STRING, STRING)
                .pipe("customers", "ann", "Rome", 1).pipe("customers", "bob", "Oslo", 2).pipe("orders", "ann", 120L, 3)
                .pipe("orders", "bob", 7L, 4).pipe("refunds", "ann", 20L, 5).pipe("customers", "ann", "Oslo", 6)
                .pipe("orders", "ann", 8L, 2).pipe("customers", "bob", null, 7).pipe("refunds", null, 5L, 8),
            dsl("program_of_many_subtopologies", ProgramCases::manySubtopologies)
                .input("a", STRING, STRING).input("b", STRING, STRING).input("c", STRING, STRING)
                .output("out1", STRING, INT64).output("out2", STRING, STRING).output("out3", STRING, INT64)
                .pipe("a", "k", "x", 1).pipe("b", "k", "x", 2).pipe("c", "k", "y", 3).pipe("a", "l", "x", 4)
                .pipe("c", "k", null, 5));
    }

    private static void shop(StreamsBuilder b) {
        KStream<String, Long> orders = numbers(b, "orders");
        KStream<String, Long> refunds = numbers(b, "refunds");
        KTable<String, String> customers = wordTable(b, "customers", "customers-store");

        Map<String, KStream<String, Long>> bySize = orders.split(Named.as("size-"))
            .branch((k, v) -> v >= 100, Branched.as("large"))
            .defaultBranch(Branched.as("small"));
        bySize.get("size-large").to("large");
        bySize.get("size-small").mapValues(v -> "small " + v).to("log", asWords());

        orders.groupByKey(byNumber()).<Long>cogroup((k, v, balance) -> balance + v)
            .cogroup(refunds.groupByKey(byNumber()), (k, v, balance) -> balance - v)
            .aggregate(() -> 0L, Named.as("balance"), numberStore("balances"))
            .toStream().to("balance");

        customers.filter((k, v) -> !v.isEmpty()).mapValues(v -> v.toUpperCase())
            .groupBy((k, v) -> KeyValue.pair(v, k), Grouped.with("by-city", STRING, STRING))
            .count(numberStore("cities-store")).toStream().to("cities");

        orders.merge(refunds).map((k, v) -> KeyValue.pair(v < 10 ? "small" : "large", v))
            .repartition(Repartitioned.with(STRING, INT64).withName("by-size"))
            .groupByKey(byNumber()).count().toStream().to("sizes", asNumbers());
    }

    private static void manySubtopologies(StreamsBuilder b) {
        KStream<String, String> a = words(b, "a");
        KStream<String, String> both = a.merge(words(b, "b"));
        KTable<String, Long> counts = both.groupBy((k, v) -> v, byWord()).count();
        counts.toStream().to("out1", asNumbers());
        KTable<String, String> rows = words(b, "c").selectKey((k, v) -> k + k).toTable(wordStore("rows"));
        rows.toStream().to("out2");
        rows.groupBy((k, v) -> KeyValue.pair(v, k), byWord()).count().filter((k, v) -> v > 0)
            .toStream((k, v) -> k + "-group").groupByKey(byNumber()).count(Named.as("last")).toStream()
            .to("out3", asNumbers());
        a.selectKey((k, v) -> v).groupByKey(Grouped.with("a-by-value", STRING, STRING))
            .reduce((agg, v) -> v, wordStore("latest"));
    }
}
