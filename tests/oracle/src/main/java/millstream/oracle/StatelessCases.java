package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.numbers;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Type.BOOLEAN;
import static millstream.oracle.Type.BYTES;
import static millstream.oracle.Type.DOUBLE;
import static millstream.oracle.Type.INT32;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.Type.UUIDS;

import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Printed;
import org.apache.kafka.streams.kstream.Produced;

/** filter, map, flatMap, selectKey, peek, foreach, print, merge: one record in, some records out, no state. */
final class StatelessCases {
    private StatelessCases() {}

    static List<Case> cases() {
        return List.of(
            dsl("filter_records", b -> numbers(b, "in").filter((k, v) -> v == null || v > 2).to("out"))
                .input("in", STRING, INT64).output("out", STRING, INT64)
                .pipe("in", "a", 1L, 10).pipe("in", "a", 3L, 11).pipe("in", null, 5L, 12).pipe("in", "b", null, 13)
                .pipe("in", null, null, 14).pipe("in", "a", 4L, 3).pipe("in", "a", 4L, 3),
            dsl("filter_named", b -> numbers(b, "in").filter((k, v) -> v > 2, Named.as("big")).to("out"))
                .input("in", STRING, INT64).output("out", STRING, INT64)
                .pipe("in", "a", 1L, 10).pipe("in", "a", 3L, 11),
            dsl("filter_not", b -> words(b, "in").filterNot((k, v) -> "x".equals(v)).to("out"))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 1).pipe("in", "a", "y", 2).pipe("in", "a", null, 3).pipe("in", null, "x", 4),
            dsl("filter_not_named", b -> words(b, "in").filterNot((k, v) -> k == null, Named.as("keyed")).to("out"))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 1).pipe("in", null, "y", 2),
            dsl("filter_raising_fails", b -> numbers(b, "in").filter((k, v) -> 10 / v > 1).to("out"))
                .input("in", STRING, INT64).output("out", STRING, INT64)
                .pipe("in", "a", 1L, 10).pipe("in", "a", 0L, 11),
            dsl("map_records", b -> numbers(b, "in")
                    .map((k, v) -> KeyValue.pair(k + "!", v == null ? null : v * 2)).to("out", asNumbers()))
                .input("in", STRING, INT64).output("out", STRING, INT64)
                .pipe("in", "a", 1L, 10).pipe("in", "b", null, 9).pipe("in", "", -4L, 11),
            dsl("map_swaps_key_and_value", b -> b.stream("in", Consumed.with(STRING, INT32))
                    .map((k, v) -> KeyValue.pair(v, k), Named.as("swap")).to("out", Produced.with(INT32, STRING)))
                .input("in", STRING, INT32).output("out", INT32, STRING)
                .pipe("in", "a", 1, 10).pipe("in", null, 2, 11).pipe("in", "c", null, 12).pipe("in", null, null, 12),
            dsl("map_returning_null_fails", b -> words(b, "in")
                    .map((k, v) -> "x".equals(v) ? null : KeyValue.pair(k, v)).to("out"))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "y", 1).pipe("in", "a", "x", 2),
            dsl("map_values", b -> numbers(b, "in").mapValues(v -> v == null ? -1 : v + 100).to("out", asNumbers()))
                .input("in", STRING, INT64).output("out", STRING, INT64)
                .pipe("in", "a", 1L, 10).pipe("in", "a", null, 11).pipe("in", null, 7L, 5),
            dsl("map_values_to_null", b -> words(b, "in")
                    .mapValues(v -> (String) null, Named.as("forget")).to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 1).pipe("in", null, "x", 1).pipe("in", "a", null, 2),
            dsl("map_values_with_key", b -> words(b, "in").mapValues((k, v) -> k + "=" + v).to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 1).pipe("in", "b", "y", 1),
            dsl("flat_map", b -> words(b, "in")
                    .flatMap((k, v) -> Arrays.stream(v.split(" ")).filter(w -> !w.isEmpty())
                        .map(w -> KeyValue.pair(w, k)).toList())
                    .to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "one two one", 5, "h", "1").pipe("in", "k", "", 6).pipe("in", null, "three", 4),
            dsl("flat_map_named", b -> words(b, "in")
                    .flatMap((k, v) -> List.of(KeyValue.pair(v, 1L), KeyValue.pair(v, 2L)), Named.as("twice"))
                    .to("out", asNumbers()))
                .input("in", STRING, STRING).output("out", STRING, INT64)
                .pipe("in", "k", "x", 5).pipe("in", "k", null, 6),
            dsl("flat_map_returning_null_fails", b -> words(b, "in")
                    .flatMap((k, v) -> v == null ? null : List.of(KeyValue.pair(k, v))).to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5).pipe("in", "k", null, 6),
            dsl("flat_map_values", b -> words(b, "in")
                    .flatMapValues(v -> v == null ? List.of() : Arrays.asList(v.split(" "))).to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "b a b", 5).pipe("in", "k", null, 6).pipe("in", null, "c d", 1),
            dsl("flat_map_values_with_key", b -> words(b, "in")
                    .flatMapValues((k, v) -> List.of(k, v, k + v), Named.as("three")).to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5).pipe("in", "l", "y", 5),
            dsl("flat_map_values_with_null_elements", b -> words(b, "in")
                    .flatMapValues(v -> Arrays.asList(v, null)).to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5).pipe("in", null, null, 6),
            dsl("flat_map_values_returning_null_fails", b -> words(b, "in")
                    .flatMapValues(v -> (List<String>) null).to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5),
            dsl("select_key", b -> words(b, "in").selectKey((k, v) -> v).to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5).pipe("in", "k", null, 6).pipe("in", null, "y", 1),
            dsl("select_key_named", b -> words(b, "in")
                    .selectKey((k, v) -> (long) v.length(), Named.as("by-length"))
                    .to("out", Produced.with(INT64, STRING)))
                .input("in", STRING, STRING).output("out", INT64, STRING)
                .pipe("in", "k", "xyz", 5).pipe("in", "k", "", 6),
            dsl("peek", b -> words(b, "in").peek((k, v) -> {}).peek((k, v) -> {}, Named.as("look")).to("out"))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5).pipe("in", null, null, 6),
            dsl("foreach", b -> {
                KStream<String, String> in = words(b, "in");
                in.foreach((k, v) -> {});
                in.foreach((k, v) -> {}, Named.as("each"));
                in.to("out");
            })
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5),
            dsl("print_records", b -> {
                KStream<String, String> in = words(b, "in");
                in.print(printed());
                in.print(printed().withLabel("words").withKeyValueMapper((k, v) -> k + "-" + v).withName("show"));
                in.to("out");
            })
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5).pipe("in", null, null, 6),
            dsl("merge", b -> words(b, "left").merge(words(b, "right")).to("out"))
                .input("left", STRING, STRING).input("right", STRING, STRING).output("out", STRING, STRING)
                .pipe("left", "k", "x", 5).pipe("right", "k", "y", 4).pipe("left", null, "z", 4)
                .pipe("right", "k", null, 9),
            dsl("merge_named", b -> words(b, "left").merge(words(b, "right"), Named.as("both")).to("out"))
                .input("left", STRING, STRING).input("right", STRING, STRING).output("out", STRING, STRING)
                .pipe("left", "k", "x", 5).pipe("right", "k", "y", 4),
            dsl("merge_three", b -> {
                KStream<String, String> one = words(b, "one");
                KStream<String, String> two = words(b, "two");
                KStream<String, String> three = words(b, "three");
                one.mapValues(v -> "1" + v).merge(two.mapValues(v -> "2" + v)).merge(three.filter((k, v) -> v != null))
                    .to("out", asWords());
            })
                .input("one", STRING, STRING).input("two", STRING, STRING).input("three", STRING, STRING)
                .output("out", STRING, STRING)
                .pipe("three", "k", "x", 5).pipe("one", "k", "x", 5).pipe("two", "k", "x", 5)
                .pipe("three", "k", null, 5),
            dsl("merge_with_itself", b -> {
                KStream<String, String> in = words(b, "in");
                in.merge(in).to("out");
            })
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5).pipe("in", "k", "y", 6),
            dsl("merge_with_own_descendant", b -> {
                KStream<String, String> in = words(b, "in");
                in.merge(in.mapValues(v -> v + "'")).to("out");
            })
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5).pipe("in", "k", "y", 6),
            dsl("diamond", b -> {
                KStream<String, String> in = words(b, "in");
                KStream<String, String> left = in.mapValues(v -> "left " + v);
                KStream<String, String> right = in.mapValues(v -> "right " + v);
                left.merge(right).to("out", asWords());
            })
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5).pipe("in", "k", "y", 6),
            dsl("diamond_merged_in_reverse", b -> {
                KStream<String, String> in = words(b, "in");
                KStream<String, String> left = in.mapValues(v -> "left " + v);
                KStream<String, String> right = in.mapValues(v -> "right " + v);
                right.merge(left).to("out", asWords());
            })
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "x", 5).pipe("in", "k", "y", 6),
            dsl("fan_out_then_merge", b -> {
                KStream<String, String> each = words(b, "in").flatMapValues(v -> Arrays.asList(v.split(" ")));
                KStream<String, String> loud = each.mapValues(v -> v.toUpperCase());
                each.merge(loud).to("out", asWords());
            })
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "k", "a b c", 5).pipe("in", "k", "d e", 4),
            dsl("nested_fan_out", b -> {
                KStream<String, String> outer = words(b, "in").flatMapValues(v -> List.of(v + "1", v + "2"));
                KStream<String, String> inner = outer.flatMapValues(v -> List.of(v + "a", v + "b"));
                inner.to("inner", asWords());
                outer.merge(inner).to("all", asWords());
                outer.to("outer", asWords());
            })
                .input("in", STRING, STRING)
                .output("inner", STRING, STRING).output("outer", STRING, STRING).output("all", STRING, STRING)
                .pipe("in", "k", "x", 5).pipe("in", "k", "y", 5),
            dsl("stateless_chain", b -> numbers(b, "in")
                    .filter((k, v) -> v != null, Named.as("valued"))
                    .map((k, v) -> KeyValue.pair("k" + v % 2, v))
                    .flatMapValues(v -> List.of(v, v + 1))
                    .peek((k, v) -> {})
                    .selectKey((k, v) -> k + v, Named.as("rekey"))
                    .mapValues((k, v) -> k + ":" + v)
                    .filterNot((k, v) -> k.endsWith("4"))
                    .to("out", asWords()))
                .input("in", STRING, INT64).output("out", STRING, STRING)
                .pipe("in", "a", 3L, 7).pipe("in", null, 8L, 2).pipe("in", "c", null, 9),
            dsl("two_independent_streams", b -> {
                words(b, "one").mapValues(v -> v + "!").to("out1", asWords());
                numbers(b, "two").filter((k, v) -> v > 0).to("out2");
            })
                .input("one", STRING, STRING).input("two", STRING, INT64)
                .output("out1", STRING, STRING).output("out2", STRING, INT64)
                .pipe("one", "k", "x", 5).pipe("two", "k", 1L, 5).pipe("two", "k", -1L, 6),
            dsl("every_serde", b -> {
                b.stream("doubles", Consumed.with(INT32, DOUBLE)).mapValues(v -> v == null ? null : v / 2)
                    .to("halves", Produced.with(INT32, DOUBLE));
                b.stream("flags", Consumed.with(UUIDS, BOOLEAN)).mapValues(v -> v == null ? null : !v)
                    .to("opposites", Produced.with(UUIDS, BOOLEAN));
                b.stream("raw", Consumed.with(BYTES, BYTES)).to("copies");
                b.stream("small", Consumed.with(INT64, INT32)).mapValues(v -> v == null ? null : v.longValue())
                    .to("large", Produced.with(INT64, INT64));
            })
                .input("doubles", INT32, DOUBLE).input("flags", UUIDS, BOOLEAN).input("raw", BYTES, BYTES)
                .input("small", INT64, INT32)
                .output("halves", INT32, DOUBLE).output("opposites", UUIDS, BOOLEAN).output("copies", BYTES, BYTES)
                .output("large", INT64, INT64)
                .pipe("doubles", -1, 2.5, 1).pipe("doubles", null, null, 1)
                .pipe("flags", new UUID(1, 2), true, 1).pipe("flags", new UUID(-1, -2), null, 1)
                .pipe("raw", new byte[] {0, 127, -1}, new byte[] {}, 1).pipe("raw", null, new byte[] {1}, 1)
                .pipe("small", Long.MIN_VALUE, Integer.MAX_VALUE, 1).pipe("small", Long.MAX_VALUE, -5, 1));
    }

    private static Printed<String, String> printed() {
        return Printed.toFile("/dev/null");
    }
}
