"""Mistakes in programs of the DSL: found at `build()`, with the user's lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import currentframe
from typing import Any

import pytest

from millstream import KStream, Processor, StreamsBuilder, serdes, stores
from millstream.errors import TopologyError

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def line_below(count: int = 1) -> str:
    """File and line so far below the caller's."""
    frame = currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + count}"


def refused(builder: StreamsBuilder) -> str:
    with pytest.raises(TopologyError) as caught:
        builder.build()
    return str(caught.value)


def test_an_unknown_store_names_the_line_of_the_operator_and_the_stores_there_are() -> None:
    builder = StreamsBuilder().add_state_store(stores.key_value("seen"))
    line = line_below()
    _: KStream[Any, Any] = builder.stream("in", **STRINGS).process(Processor, "sene", name="mill")
    assert refused(builder) == (
        f"processor 'mill' asks for the state store 'sene', which is unknown.\n  at {line}\n"
        "  Remedy: add it with add_state_store first; there are: seen."
    )


def test_two_operators_of_one_name_name_both_lines() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **STRINGS)
    first, second = line_below(1), line_below(2)
    stream.map_values(len, name="mill")
    stream.map_values(len, name="mill")
    assert refused(builder) == (
        f"two operators have the name 'mill'.\n  at {first}\n  at {second}\n"
        "  Remedy: names are the identity of state: give each operator its own."
    )


def test_two_tables_in_one_store_name_both_lines() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **STRINGS)
    first, second = line_below(1), line_below(2)
    stream.group_by_key().count(store="counts")
    stream.group_by_key().count(store="counts")
    message = refused(builder)
    assert message.startswith("a ")
    assert "'counts'" in message
    assert f"\n  at {first}\n  at {second}\n" in message


def test_a_topic_as_stream_and_as_table_names_both_lines() -> None:
    builder = StreamsBuilder()
    first, second = line_below(1), line_below(2)
    builder.stream("in", **STRINGS)
    builder.table("in", **STRINGS)
    message = refused(builder)
    assert message.startswith("topic 'in' is read by source ")
    assert f"\n  at {first}\n  at {second}\n" in message


def test_overlapping_lists_of_topics_are_refused() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"], **STRINGS)
    builder.stream(["b", "c"], **STRINGS)
    message = refused(builder)
    assert message.startswith("two streams read the same topics, and their subscriptions overlap")
    assert "Remedy: read each topic by itself and merge() the streams." in message


def test_two_offset_resets_for_one_topic_are_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("a", offset_reset="earliest", **STRINGS)
    builder.stream("a", offset_reset="latest", **STRINGS)
    assert refused(builder).startswith(
        "two streams read the same topics, and their subscriptions differ in offset_reset."
    )


def test_a_pattern_that_matches_a_topic_of_another_source_is_refused() -> None:
    builder = StreamsBuilder()
    builder.table("orders-north", **STRINGS)
    builder.stream(re.compile("orders-.*"), **STRINGS)
    assert refused(builder).startswith("topic 'orders-north' is read by source ")


def test_a_bad_name_is_refused() -> None:
    builder = StreamsBuilder()
    line = line_below()
    builder.stream("in", **STRINGS).map_values(len, name="two words")
    message = refused(builder)
    assert message.startswith(f"'two words' can't be a name.\n  at {line}\n")


def test_a_bad_name_of_a_store_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).group_by_key().count(store="two words")
    assert refused(builder).startswith("'two words' can't be the name of a state store")


def test_an_instance_of_a_processor_is_refused_where_it_is_passed() -> None:
    instance: Any = Processor()
    with pytest.raises(TopologyError):
        StreamsBuilder().stream("in", **STRINGS).process(instance)


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_repartition_has_at_least_one_partition(partitions: int) -> None:
    with pytest.raises(TopologyError) as caught:
        StreamsBuilder().stream("in", **STRINGS).repartition(partitions=partitions)
    assert str(caught.value) == f"repartition(partitions={partitions}): a topic has at least one partition"


def test_a_branch_takes_a_function_or_a_consumer() -> None:
    split = StreamsBuilder().stream("in", **STRINGS).split()
    with pytest.raises(TopologyError) as caught:
        split.branch(lambda key, value: True, function=lambda branch: branch, consumer=lambda branch: None)
    assert str(caught.value) == "a branch takes a function or a consumer, not both"


def merged(one: Any, other: Any) -> None:
    one.merge(other)


def cogrouped(one: Any, other: Any) -> None:
    one.group_by_key().cogroup(lambda k, v, n: n).cogroup(other.group_by_key(), lambda k, v, n: n)


@pytest.mark.parametrize("combine", [merged, cogrouped])
def test_streams_of_two_builders_can_t_be_combined(combine: Callable[[Any, Any], None]) -> None:
    one, other = StreamsBuilder().stream("a", **STRINGS), StreamsBuilder().stream("b", **STRINGS)
    with pytest.raises(TopologyError) as caught:
        combine(one, other)
    assert str(caught.value).endswith("from two StreamsBuilders: build both with the same one")


def test_a_program_can_be_built_twice() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).group_by_key().count(store="counts").to_stream().to("out")
    assert builder.build().describe() == builder.build().describe()
