"""filter, map, flat_map, select_key, peek, foreach, print, merge: one record in, some out, no state."""

from __future__ import annotations

from io import StringIO

from tests.semantics.registry import dsl
from tests.semantics.shapes import NULL, NUMBERS, WORDS, numbers, words

from millstream import StreamsBuilder, serdes


@dsl
def filter_records(b: StreamsBuilder) -> None:
    numbers(b, "in").filter(lambda k, v: v is None or v > 2).to("out")


@dsl
def filter_named(b: StreamsBuilder) -> None:
    numbers(b, "in").filter(lambda k, v: v > 2, name="big").to("out")


@dsl
def filter_not(b: StreamsBuilder) -> None:
    words(b, "in").filter_not(lambda k, v: v == "x").to("out")


@dsl
def filter_not_named(b: StreamsBuilder) -> None:
    words(b, "in").filter_not(lambda k, v: k is None, name="keyed").to("out")


@dsl
def filter_raising_fails(b: StreamsBuilder) -> None:
    numbers(b, "in").filter(lambda k, v: 10 // v > 1).to("out")


@dsl
def map_records(b: StreamsBuilder) -> None:
    numbers(b, "in").map(lambda k, v: (k + "!", None if v is None else v * 2)).to("out", **NUMBERS)


@dsl
def map_swaps_key_and_value(b: StreamsBuilder) -> None:
    (
        b.stream("in", key=serdes.string, value=serdes.int32)
        .map(lambda k, v: (v, k), name="swap")
        .to("out", key=serdes.int32, value=serdes.string)
    )


@dsl
def map_returning_null_fails(b: StreamsBuilder) -> None:
    words(b, "in").map(lambda k, v: NULL if v == "x" else (k, v)).to("out")


@dsl
def map_values(b: StreamsBuilder) -> None:
    numbers(b, "in").map_values(lambda v: -1 if v is None else v + 100).to("out", **NUMBERS)


@dsl
def map_values_to_null(b: StreamsBuilder) -> None:
    words(b, "in").map_values(lambda v: NULL, name="forget").to("out", **WORDS)


@dsl
def map_values_with_key(b: StreamsBuilder) -> None:
    words(b, "in").map_values_with_key(lambda k, v: f"{k}={v}").to("out", **WORDS)


@dsl
def flat_map(b: StreamsBuilder) -> None:
    words(b, "in").flat_map(lambda k, v: [(word, k) for word in v.split()]).to("out", **WORDS)


@dsl
def flat_map_named(b: StreamsBuilder) -> None:
    words(b, "in").flat_map(lambda k, v: [(v, 1), (v, 2)], name="twice").to("out", **NUMBERS)


@dsl
def flat_map_returning_null_fails(b: StreamsBuilder) -> None:
    words(b, "in").flat_map(lambda k, v: NULL if v is None else [(k, v)]).to("out", **WORDS)


@dsl
def flat_map_values(b: StreamsBuilder) -> None:
    words(b, "in").flat_map_values(lambda v: [] if v is None else v.split()).to("out", **WORDS)


@dsl
def flat_map_values_with_key(b: StreamsBuilder) -> None:
    words(b, "in").flat_map_values_with_key(lambda k, v: [k, v, k + v], name="three").to("out", **WORDS)


@dsl
def flat_map_values_with_null_elements(b: StreamsBuilder) -> None:
    words(b, "in").flat_map_values(lambda v: [v, NULL]).to("out", **WORDS)


@dsl
def flat_map_values_returning_null_fails(b: StreamsBuilder) -> None:
    words(b, "in").flat_map_values(lambda v: NULL).to("out", **WORDS)


@dsl
def select_key(b: StreamsBuilder) -> None:
    words(b, "in").select_key(lambda k, v: v).to("out", **WORDS)


@dsl
def select_key_named(b: StreamsBuilder) -> None:
    (
        words(b, "in")
        .select_key(lambda k, v: len(v), name="by-length")
        .to("out", key=serdes.int64, value=serdes.string)
    )


@dsl
def peek(b: StreamsBuilder) -> None:
    words(b, "in").peek(lambda k, v: None).peek(lambda k, v: None, name="look").to("out")


@dsl
def foreach(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.foreach(lambda k, v: None)
    stream.foreach(lambda k, v: None, name="each")
    stream.to("out")


@dsl
def print_records(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.print(file=StringIO())
    stream.print(label="words", mapper=lambda k, v: f"{k}-{v}", file=StringIO(), name="show")
    stream.to("out")


@dsl
def merge(b: StreamsBuilder) -> None:
    words(b, "left").merge(words(b, "right")).to("out")


@dsl
def merge_named(b: StreamsBuilder) -> None:
    words(b, "left").merge(words(b, "right"), name="both").to("out")


@dsl
def merge_three(b: StreamsBuilder) -> None:
    one, two, three = words(b, "one"), words(b, "two"), words(b, "three")
    (
        one.map_values(lambda v: "1" + v)
        .merge(two.map_values(lambda v: "2" + v))
        .merge(three.filter(lambda k, v: v is not None))
        .to("out", **WORDS)
    )


@dsl
def merge_with_itself(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.merge(stream).to("out")


@dsl
def merge_with_own_descendant(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.merge(stream.map_values(lambda v: v + "'")).to("out")


@dsl
def diamond(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    left = stream.map_values(lambda v: "left " + v)
    right = stream.map_values(lambda v: "right " + v)
    left.merge(right).to("out", **WORDS)


@dsl
def diamond_merged_in_reverse(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    left = stream.map_values(lambda v: "left " + v)
    right = stream.map_values(lambda v: "right " + v)
    right.merge(left).to("out", **WORDS)


@dsl
def fan_out_then_merge(b: StreamsBuilder) -> None:
    each = words(b, "in").flat_map_values(str.split)
    loud = each.map_values(str.upper)
    each.merge(loud).to("out", **WORDS)


@dsl
def nested_fan_out(b: StreamsBuilder) -> None:
    outer = words(b, "in").flat_map_values(lambda v: [v + "1", v + "2"])
    inner = outer.flat_map_values(lambda v: [v + "a", v + "b"])
    inner.to("inner", **WORDS)
    outer.merge(inner).to("all", **WORDS)
    outer.to("outer", **WORDS)


@dsl
def stateless_chain(b: StreamsBuilder) -> None:
    (
        numbers(b, "in")
        .filter(lambda k, v: v is not None, name="valued")
        .map(lambda k, v: (f"k{v % 2}", v))
        .flat_map_values(lambda v: [v, v + 1])
        .peek(lambda k, v: None)
        .select_key(lambda k, v: f"{k}{v}", name="rekey")
        .map_values_with_key(lambda k, v: f"{k}:{v}")
        .filter_not(lambda k, v: k.endswith("4"))
        .to("out", **WORDS)
    )


@dsl
def two_independent_streams(b: StreamsBuilder) -> None:
    words(b, "one").map_values(lambda v: v + "!").to("out1", **WORDS)
    numbers(b, "two").filter(lambda k, v: v > 0).to("out2")


@dsl
def every_serde(b: StreamsBuilder) -> None:
    (
        b.stream("doubles", key=serdes.int32, value=serdes.double)
        .map_values(lambda v: None if v is None else v / 2)
        .to("halves", key=serdes.int32, value=serdes.double)
    )
    (
        b.stream("flags", key=serdes.uuid, value=serdes.boolean)
        .map_values(lambda v: None if v is None else not v)
        .to("opposites", key=serdes.uuid, value=serdes.boolean)
    )
    b.stream("raw", key=serdes.bytes, value=serdes.bytes).to("copies")
    (
        b.stream("small", key=serdes.int64, value=serdes.int32)
        .map_values(lambda v: v)
        .to("large", key=serdes.int64, value=serdes.int64)
    )
