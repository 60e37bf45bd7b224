package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;

/** split().branch().defaultBranch() and noDefaultBranch(). */
final class SplittingCases {
    private SplittingCases() {}

    static List<Case> cases() {
        return List.of(
            script(dsl("split_with_default", b -> tag(numbers(b, "in").split()
                .branch((k, v) -> v < 10)
                .branch((k, v) -> v < 100)
                .defaultBranch()))),
            script(dsl("split_without_default", b -> tag(numbers(b, "in").split()
                .branch((k, v) -> v < 10)
                .branch((k, v) -> v < 100)
                .noDefaultBranch()))),
            script(dsl("split_named", b -> tag(numbers(b, "in").split(Named.as("size-"))
                .branch((k, v) -> v < 10, Branched.as("small"))
                .branch((k, v) -> v < 100)
                .defaultBranch(Branched.as("large"))))),
            script(dsl("split_named_with_unnamed_branches", b -> tag(numbers(b, "in").split(Named.as("size-"))
                .branch((k, v) -> v < 10)
                .branch((k, v) -> v < 100)
                .defaultBranch()))),
            script(dsl("split_unnamed_with_named_branches", b -> tag(numbers(b, "in").split()
                .branch((k, v) -> v < 10, Branched.as("-small"))
                .branch((k, v) -> v < 100, Branched.as("-middle"))
                .noDefaultBranch()))),
            script(dsl("split_with_function", b -> tag(numbers(b, "in").split(Named.as("size-"))
                .branch((k, v) -> v < 10, Branched.withFunction(s -> s.mapValues(v -> -v)))
                .branch((k, v) -> v < 100, Branched.withFunction(s -> s.filter((k, v) -> v != 50L), "middle"))
                .defaultBranch(Branched.withFunction(s -> s.mapValues(v -> v + 1), "large"))))),
            script(dsl("split_with_function_returning_null", b -> tag(numbers(b, "in").split(Named.as("size-"))
                .branch((k, v) -> v < 10, Branched.withFunction(s -> null, "small"))
                .branch((k, v) -> v < 100, Branched.as("middle"))
                .noDefaultBranch()))),
            script(dsl("split_with_consumer", b -> tag(numbers(b, "in").split(Named.as("size-"))
                .branch((k, v) ->
                    v < 10, Branched.withConsumer(s -> s.mapValues(v -> "consumed " + v).to("out", asWords())))
                .branch((k, v) -> v < 100, Branched.as("middle"))
                .defaultBranch(Branched.withConsumer(s -> s.foreach((k, v) -> {}), "large"))))),
            script(dsl("split_with_default_only", b -> tag(numbers(b, "in").split().defaultBranch()))),
            script(dsl("split_first_match_wins", b -> tag(numbers(b, "in").split(Named.as("p-"))
                .branch((k, v) -> v > 0, Branched.as("first"))
                .branch((k, v) -> v > 0, Branched.as("second"))
                .defaultBranch(Branched.as("third"))))),
            dsl("split_sees_nulls", b -> {
                Map<String, KStream<String, String>> parts = words(b, "in").split(Named.as("null-"))
                    .branch((k, v) -> k == null, Branched.as("key"))
                    .branch((k, v) -> v == null, Branched.as("value"))
                    .defaultBranch(Branched.as("neither"));
                parts.get("null-key").to("keyless");
                parts.get("null-value").to("tombstones");
                parts.get("null-neither").to("out");
            })
                .input("in", STRING, STRING)
                .output("keyless", STRING, STRING).output("tombstones", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 1).pipe("in", null, "x", 1).pipe("in", "a", null, 1).pipe("in", null, null, 1),
            dsl("split_nested_and_merged", b -> {
                Map<String, KStream<String, Long>> outer = numbers(b, "in").split(Named.as("sign-"))
                    .branch((k, v) -> v < 0, Branched.as("minus"))
                    .defaultBranch(Branched.as("plus"));
                Map<String, KStream<String, Long>> inner = outer.get("sign-plus").split(Named.as("parity-"))
                    .branch((k, v) -> v % 2 == 0, Branched.as("even"))
                    .noDefaultBranch();
                outer.get("sign-minus").merge(inner.get("parity-even")).to("out", asNumbers());
            })
                .input("in", STRING, INT64).output("out", STRING, INT64)
                .pipe("in", "a", -1L, 4).pipe("in", "a", 1L, 3).pipe("in", "a", 2L, 2).pipe("in", "b", 0L, 1),
            dsl("split_branch_raising_fails", b ->
                tag(numbers(b, "in").split().branch((k, v) -> 1 / v > 0).noDefaultBranch()))
                .input("in", STRING, INT64).output("out", STRING, STRING)
                .pipe("in", "a", 1L, 1).pipe("in", "a", 0L, 2));
    }

    /** Sends all branches to one topic, each value with the name under which its branch is known. */
    private static void tag(Map<String, KStream<String, Long>> branches) {
        new TreeMap<>(branches).forEach((name, branch) ->
            branch.mapValues(v -> name + " " + v).to("out", asWords()));
    }

    private static Case script(Case test) {
        return test.input("in", STRING, INT64).output("out", STRING, STRING)
            .pipe("in", "a", 5L, 1).pipe("in", "a", 50L, 2).pipe("in", "b", 500L, 1).pipe("in", null, 6L, 3);
    }
}
