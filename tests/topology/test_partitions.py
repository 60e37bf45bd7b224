"""How many partitions a repartition has."""

from __future__ import annotations

import re
from typing import Any

import pytest

from millstream import StreamsBuilder, serdes
from millstream.errors import TopologyError

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def joined(key: str, value: str, so_far: str) -> str:
    return so_far + value


def cogrouped(left: Any, right: Any) -> None:
    left.cogroup(joined).cogroup(right, joined).aggregate(str, store="joined")


def test_a_repartition_is_as_wide_as_what_feeds_it() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"], **STRINGS).repartition(name="moved").to("x")
    counts = builder.build().plan().partitions({"a": 2, "b": 5})
    assert counts["moved-repartition"] == 5


def test_the_number_that_was_asked_for_wins() -> None:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).repartition(name="moved", partitions=3).to("x")
    assert builder.build().plan().partitions({"a": 8})["moved-repartition"] == 3


def test_width_goes_down_the_levels() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("a", **STRINGS).repartition(name="first", partitions=3)
    stream.repartition(name="second").to("x")
    assert builder.build().plan().partitions({"a": 8})["second-repartition"] == 3


def test_streams_that_are_grouped_together_are_equally_wide() -> None:
    builder = StreamsBuilder()
    left = builder.stream("a", **STRINGS).group_by(lambda key, value: value, name="left", **STRINGS)
    right = builder.stream("b", **STRINGS).group_by(lambda key, value: value, name="right", **STRINGS)
    cogrouped(left, right)
    counts = builder.build().plan().partitions({"a": 2, "b": 6})
    assert (counts["left-repartition"], counts["right-repartition"]) == (6, 6)


def test_a_topic_of_the_log_decides_for_its_group() -> None:
    builder = StreamsBuilder()
    left = builder.stream("a", **STRINGS).group_by_key()
    right = builder.stream("b", **STRINGS).group_by(lambda key, value: value, name="right", **STRINGS)
    cogrouped(left, right)
    assert builder.build().plan().partitions({"a": 2, "b": 6})["right-repartition"] == 2


def test_an_explicit_number_decides_for_its_group() -> None:
    builder = StreamsBuilder()
    left = builder.stream("a", **STRINGS).repartition(name="left", partitions=4).group_by_key()
    right = builder.stream("b", **STRINGS).group_by(lambda key, value: value, name="right", **STRINGS)
    cogrouped(left, right)
    assert builder.build().plan().partitions({"a": 2, "b": 6})["right-repartition"] == 4


def test_two_explicit_numbers_in_a_group_are_refused_at_build_with_both_lines() -> None:
    builder = StreamsBuilder()
    left = builder.stream("a", **STRINGS).repartition(name="left", partitions=4).group_by_key()
    right = builder.stream("b", **STRINGS).repartition(name="right", partitions=5).group_by_key()
    cogrouped(left, right)
    with pytest.raises(TopologyError) as caught:
        builder.build()
    message = str(caught.value)
    assert message.startswith("streams that are grouped or joined together ask for different numbers of")
    assert f"\n  left-repartition: 4 partitions, at {__file__}:" in message
    assert f"\n  right-repartition: 5 partitions, at {__file__}:" in message


def test_topics_of_different_width_can_t_be_grouped_together() -> None:
    builder = StreamsBuilder()
    cogrouped(builder.stream("a", **STRINGS).group_by_key(), builder.stream("b", **STRINGS).group_by_key())
    with pytest.raises(TopologyError) as caught:
        builder.build().plan().partitions({"a": 2, "b": 6})
    assert str(caught.value) == (
        "topics that are grouped or joined together differ in their number of partitions: a has 2, b has 6.\n"
        "  Remedy: repartition() one of the streams to the number of the others."
    )


def test_an_explicit_number_must_be_that_of_the_topics_beside_it() -> None:
    builder = StreamsBuilder()
    left = builder.stream("a", **STRINGS).repartition(name="left", partitions=4).group_by_key()
    cogrouped(left, builder.stream("b", **STRINGS).group_by_key())
    with pytest.raises(TopologyError) as caught:
        builder.build().plan().partitions({"a": 2, "b": 6})
    assert "differ in their number of partitions: b has 6, left-repartition has 4." in str(caught.value)


def test_a_topic_that_is_read_twice_is_compared_like_any_other() -> None:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).to("x")
    again = builder.stream("a", **STRINGS).group_by_key()
    cogrouped(again, builder.stream("b", **STRINGS).group_by_key())
    with pytest.raises(TopologyError) as caught:
        builder.build().plan().partitions({"a": 2, "b": 6})
    assert "differ in their number of partitions: a has 2, b has 6." in str(caught.value)


def test_a_topic_that_does_not_exist_is_named_with_the_users_line() -> None:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).to("x")
    with pytest.raises(TopologyError) as caught:
        builder.build().plan().partitions({"b": 1, "c": 1})
    message = str(caught.value)
    assert message.startswith(
        "source 'KSTREAM-SOURCE-0000000000' reads the topic 'a', which does not exist.\n"
    )
    assert f"\n  at {__file__}:" in message
    assert message.endswith("Remedy: create it first; topics are: b, c.")


def test_a_sub_topology_has_as_many_tasks_as_its_widest_topic_has_partitions() -> None:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).merge(builder.stream("b", **STRINGS)).to("x")
    plan = builder.build().plan()
    (sub,) = plan.subtopologies
    assert plan.task_count(sub, plan.partitions({"a": 2, "b": 3})) == 3


def test_the_widest_source_counts_also_when_it_is_read_by_pattern() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("a-.*"), **STRINGS).to("x")
    plan = builder.build().plan()
    (sub,) = plan.subtopologies
    assert plan.task_count(sub, plan.partitions({"a-1": 2, "a-2": 4, "b": 9})) == 4
