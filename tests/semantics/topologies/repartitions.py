"""repartition(), and the repartition topics that operators insert by themselves."""

from __future__ import annotations

from tests.semantics.registry import dsl
from tests.semantics.shapes import NUMBERS, WORDS, each_value, number_store, text, word_store, words

from millstream import FixedKeyProcessorContext, FixedKeyRecord, StreamsBuilder


@dsl
def repartition(b: StreamsBuilder) -> None:
    words(b, "in").repartition().to("out")


@dsl
def repartition_named(b: StreamsBuilder) -> None:
    spread = words(b, "in").repartition(**WORDS, name="spread")
    spread.map_values(lambda v: text(v) + "!").to("out", **WORDS)


@dsl
def repartition_with_partitions(b: StreamsBuilder) -> None:
    words(b, "in").repartition(**WORDS, partitions=4).to("out")


@dsl
def repartition_of_rekeyed_stream(b: StreamsBuilder) -> None:
    words(b, "in").select_key(lambda k, v: v).repartition(**WORDS).to("out")


@dsl
def repartition_then_count(b: StreamsBuilder) -> None:
    spread = words(b, "in").select_key(lambda k, v: v).repartition(**WORDS, name="spread")
    counts = spread.group_by_key(**WORDS).count(store=number_store("counts"))
    counts.to_stream().to("out", **NUMBERS)


@dsl
def repartition_without_rekeying_then_count(b: StreamsBuilder) -> None:
    spread = words(b, "in").repartition(**WORDS)
    spread.group_by_key(**WORDS).count().to_stream().to("out", **NUMBERS)


@dsl
def repartition_then_rekey_then_count(b: StreamsBuilder) -> None:
    spread = words(b, "in").repartition(**WORDS, name="spread")
    grouped = spread.select_key(lambda k, v: v).group_by_key(**WORDS, name="again")
    grouped.count(store=number_store("counts")).to_stream().to("out", **NUMBERS)


@dsl
def repartition_twice(b: StreamsBuilder) -> None:
    one = words(b, "in").repartition(**WORDS, name="one").map_values(lambda v: text(v) + "1")
    two = one.repartition(**WORDS, name="two").map_values(lambda v: v + "2")
    two.to("out", **WORDS)


@dsl
def repartition_of_one_stream_twice(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.repartition(**WORDS, name="one").to("out")
    two = stream.repartition(**WORDS, name="two")
    two.map_values(lambda v: text(v) + "2").to("out2", **WORDS)


@dsl
def repartition_read_by_two(b: StreamsBuilder) -> None:
    spread = words(b, "in").repartition(**WORDS)
    spread.to("out")
    spread.map_values(lambda v: text(v) + "2").to("out2", **WORDS)


@dsl
def repartition_of_merge(b: StreamsBuilder) -> None:
    merged = words(b, "in").map_values(lambda v: text(v) + "1").merge(words(b, "other"))
    merged.repartition(**WORDS).to("out")


@dsl
def repartition_merged_with_its_input(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    moved = stream.repartition(**WORDS).map_values(lambda v: text(v) + " moved")
    moved.merge(stream).to("out", **WORDS)


@dsl
def repartition_then_to_table(b: StreamsBuilder) -> None:
    spread = words(b, "in").select_key(lambda k, v: v).repartition(**WORDS)
    spread.to_table(store=word_store("rows")).map_values(len).to_stream().to("out", **NUMBERS)


@dsl
def repartition_two_merged_in_order_of_time(b: StreamsBuilder) -> None:
    def one(context: FixedKeyProcessorContext[str, str], record: FixedKeyRecord[str, str]) -> None:
        context.forward(record.with_value("late").with_timestamp(record.timestamp + 100))

    def three(context: FixedKeyProcessorContext[str, str], record: FixedKeyRecord[str, str]) -> None:
        context.forward(record.with_value("early"))
        context.forward(record.with_value("later").with_timestamp(record.timestamp + 200))
        context.forward(record.with_value("behind").with_timestamp(record.timestamp + 1))

    stream = words(b, "in").filter(lambda k, v: k is not None)
    late = stream.process_values(each_value(one)).repartition(**WORDS, name="late")
    early = stream.process_values(each_value(three)).repartition(**WORDS, name="early")
    late.merge(early).to("out", **WORDS)


@dsl
def repartition_by_three_operators(b: StreamsBuilder) -> None:
    rekeyed = words(b, "in").select_key(lambda k, v: v, name="rekey")
    rekeyed.repartition(**WORDS, name="explicit").foreach(lambda k, v: None)
    counts = rekeyed.group_by_key(**WORDS, name="grouped").count(store=number_store("counts"))
    counts.to_stream().to("out", **NUMBERS)
    rekeyed.to_table(name="tabled", store=word_store("rows"))
