"""merge_repartition_topics: every topology before and after."""

from __future__ import annotations

from typing import Any

from tests.semantics.registry import before_and_after
from tests.semantics.shapes import NUMBERS, WORDS, number_store, text, word_store, words

from millstream import KStream, StreamsBuilder

Words = KStream[Any, Any]


both = before_and_after("merge_repartition_topics")


def count(stream: Words, store: str, topic: str = "out") -> None:
    stream.group_by_key(**WORDS).count(store=number_store(store)).to_stream().to(topic, **NUMBERS)


def by_value(builder: StreamsBuilder, topic: str = "in") -> Words:
    return words(builder, topic).select_key(lambda k, v: v)


@both
def merge_repartitions_of_two_counts(b: StreamsBuilder) -> None:
    rekeyed = by_value(b)
    count(rekeyed, "one")
    count(rekeyed, "two")


@both
def merge_repartitions_with_names(b: StreamsBuilder) -> None:
    rekeyed: Words = words(b, "in").select_key(lambda k, v: v, name="rekey")
    for name, store, topic in (("first", "one", "out"), ("second", "two", "out2")):
        counts = rekeyed.group_by_key(**WORDS, name=name).count(store=number_store(store))
        counts.to_stream().to(topic, **NUMBERS)


@both
def merge_repartitions_behind_filters(b: StreamsBuilder) -> None:
    rekeyed = by_value(b)
    count(rekeyed.filter(lambda k, v: v is not None), "one")
    count(rekeyed.peek(lambda k, v: None).filter_not(lambda k, v: v == "x"), "two")


@both
def merge_repartitions_not_behind_new_values(b: StreamsBuilder) -> None:
    rekeyed = by_value(b)
    count(rekeyed.map_values(lambda v: text(v) + "1"), "one")
    count(rekeyed, "two")
    count(rekeyed.filter(lambda k, v: True), "three")


@both
def merge_repartitions_moves_a_single_one(b: StreamsBuilder) -> None:
    count(by_value(b).filter(lambda k, v: v is not None), "one")


@both
def merge_repartitions_not_by_hand(b: StreamsBuilder) -> None:
    rekeyed = by_value(b)
    count(rekeyed.repartition(**WORDS), "one")
    count(rekeyed.repartition(**WORDS), "two")


@both
def merge_repartitions_of_map_and_table(b: StreamsBuilder) -> None:
    rekeyed: Words = words(b, "in").map(lambda k, v: (v, k))
    count(rekeyed, "one")
    rekeyed.to_table(store=word_store("rows"))


@both
def merge_repartitions_behind_a_merge(b: StreamsBuilder) -> None:
    one, other = by_value(b), by_value(b, "other")
    both = one.merge(other)
    count(both, "one")
    count(both.filter(lambda k, v: v is not None), "two")


@both
def merge_repartitions_of_two_keys(b: StreamsBuilder) -> None:
    once = by_value(b)
    count(once, "one")
    count(once, "two")
    again: Words = once.select_key(lambda k, v: text(v) * 2)
    count(again, "three", "out2")
    again.group_by_key(**WORDS).count(store=number_store("four"))


@both
def merge_repartitions_of_a_cogroup(b: StreamsBuilder) -> None:
    rekeyed = by_value(b)
    count(rekeyed, "one")
    first = rekeyed.group_by_key(**WORDS)
    second = rekeyed.filter(lambda k, v: v is not None).group_by_key(**WORDS)
    score = first.cogroup(lambda k, v, n: n + 1).cogroup(second, lambda k, v, n: n + 10)
    table = score.aggregate(lambda: 0, store=number_store("score"))
    table.to_stream().to("out2", **NUMBERS)
