"""Repartitions are put in where a changed key meets an operator that needs keys together, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream import FixedKeyProcessor, KStream, Processor, StreamsBuilder, serdes

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}

REKEYING: dict[str, Callable[[KStream[str, str]], KStream[Any, Any]]] = {
    "map": lambda stream: stream.map(lambda key, value: (value, key)),
    "flat_map": lambda stream: stream.flat_map(lambda key, value: [(value, key)]),
    "select_key": lambda stream: stream.select_key(lambda key, value: value),
    "process": lambda stream: stream.process(Processor),
    "to_stream": lambda stream: stream.to_table().to_stream(lambda key, value: value),
}
KEEPING: dict[str, Callable[[KStream[str, str]], KStream[Any, Any]]] = {
    "filter": lambda stream: stream.filter(lambda key, value: True),
    "filter_not": lambda stream: stream.filter_not(lambda key, value: True),
    "map_values": lambda stream: stream.map_values(str),
    "map_values_with_key": lambda stream: stream.map_values_with_key(lambda key, value: value),
    "flat_map_values": lambda stream: stream.flat_map_values(lambda value: [value]),
    "flat_map_values_with_key": lambda stream: stream.flat_map_values_with_key(lambda key, value: [value]),
    "peek": lambda stream: stream.peek(lambda key, value: None),
    "process_values": lambda stream: stream.process_values(FixedKeyProcessor),
    "branch": lambda stream: stream.split(name="s-").default_branch()["s-0"],
    "merge": lambda stream: stream.merge(stream),
}


def repartitions(use: Callable[[StreamsBuilder, KStream[str, str]], Any]) -> list[str]:
    builder = StreamsBuilder()
    use(builder, builder.stream("in", **STRINGS))
    return sorted(builder.build().plan().repartition_topics)


@pytest.mark.parametrize("name", REKEYING)
def test_an_operator_that_may_change_the_key_is_repartitioned_before_an_aggregation(name: str) -> None:
    topics = repartitions(lambda _, stream: REKEYING[name](stream).group_by_key(**STRINGS).count(store="n"))
    assert topics == ["n-repartition"]


@pytest.mark.parametrize("name", REKEYING)
def test_without_an_aggregation_nothing_is_repartitioned(name: str) -> None:
    assert repartitions(lambda _, stream: REKEYING[name](stream).to("out")) == []


@pytest.mark.parametrize("name", KEEPING)
def test_an_operator_that_keeps_the_key_needs_no_repartition(name: str) -> None:
    assert repartitions(lambda _, stream: KEEPING[name](stream).group_by_key(**STRINGS).count()) == []


@pytest.mark.parametrize("name", KEEPING)
def test_a_changed_key_is_remembered_through_operators_that_keep_it(name: str) -> None:
    def use(_: StreamsBuilder, stream: KStream[str, str]) -> None:
        KEEPING[name](stream.select_key(lambda key, value: value)).group_by_key(**STRINGS).count(store="n")

    assert repartitions(use) == ["n-repartition"]


def test_to_table_repartitions_a_changed_key() -> None:
    topics = repartitions(
        lambda _, stream: stream.select_key(lambda key, value: value).to_table(name="table", **STRINGS)
    )
    assert topics == ["table-repartition"]


def test_an_explicit_repartition_clears_the_need_for_another() -> None:
    def use(_: StreamsBuilder, stream: KStream[str, str]) -> None:
        moved = stream.select_key(lambda key, value: value).repartition(name="moved", **STRINGS)
        moved.group_by_key().count()

    assert repartitions(use) == ["moved-repartition"]


def test_aggregations_of_a_named_group_share_a_repartition() -> None:
    def use(_: StreamsBuilder, stream: KStream[str, str]) -> None:
        group = stream.group_by(lambda key, value: value, name="group", **STRINGS)
        group.count(store="n")
        group.reduce(max, store="most")

    assert repartitions(use) == ["group-repartition"]


def test_aggregations_of_an_unnamed_group_have_one_each() -> None:
    def use(_: StreamsBuilder, stream: KStream[str, str]) -> None:
        group = stream.group_by(lambda key, value: value, **STRINGS)
        group.count(store="n")
        group.reduce(max, store="most")

    assert repartitions(use) == ["most-repartition", "n-repartition"]


def test_a_merge_needs_a_repartition_if_either_side_does() -> None:
    def use(builder: StreamsBuilder, stream: KStream[str, str]) -> None:
        other = builder.stream("other", **STRINGS).select_key(lambda key, value: value)
        stream.merge(other).group_by_key(**STRINGS).count(store="n")

    assert repartitions(use) == ["n-repartition"]


def test_grouping_a_table_always_repartitions() -> None:
    def use(builder: StreamsBuilder, _: KStream[str, str]) -> None:
        table = builder.table("rows", **STRINGS)
        table.group_by(lambda key, value: (key, value), **STRINGS).count(store="n")

    assert repartitions(use) == ["n-repartition"]
