"""Counters: records in and dropped per node, whatever the batches."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.epochs import EpochRunner
from tests.task.kit import STRINGS, rows_of

from millstream import StreamsBuilder
from millstream.task.metrics import Metrics


def counted(builder: StreamsBuilder, raw: Any, max_rows: int | None) -> Metrics:
    with EpochRunner(builder.build(), partitions={raw.topic: 1}, max_rows=max_rows) as runner:
        runner.run_epoch([raw])
        return runner.metrics


@pytest.mark.parametrize("max_rows", [1, None])
def test_every_node_counts_the_records_it_gets_and_hands_on(max_rows: int | None) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", name="source", **STRINGS)
    stream.filter(lambda key, value: value != "2", name="filter").to("out", name="sink")
    metrics = counted(builder, rows_of("in", ("a", "1"), ("b", "2"), ("c", "3")), max_rows)
    nodes = ("source", "filter", "sink")
    assert [metrics.get(node, "records-in") for node in nodes] == [3, 3, 2]
    assert [metrics.get(node, "records-out") for node in nodes] == [3, 2, 0]


@pytest.mark.parametrize("max_rows", [1, None])
def test_an_aggregation_counts_what_it_can_t_group(max_rows: int | None) -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).group_by_key().count(name="counts", store="counts")
    metrics = counted(builder, rows_of("in", (None, "1"), ("b", None), ("c", "3")), max_rows)
    assert metrics.get("counts", "records-dropped") == 2


def test_a_table_counts_records_without_a_key() -> None:
    builder = StreamsBuilder()
    builder.table("in", name="table", store="rows", **STRINGS)
    metrics = counted(builder, rows_of("in", (None, "1"), ("b", None)), None)
    assert metrics.get("table", "records-dropped") == 1


def test_a_split_counts_what_no_branch_took() -> None:
    builder = StreamsBuilder()
    split = builder.stream("in", **STRINGS).split(name="split-")
    split.branch(lambda key, value: value == "1").no_default_branch()
    metrics = counted(builder, rows_of("in", ("a", "1"), ("b", "2")), None)
    assert metrics.get("split-", "records-dropped") == 1


def test_counters_are_by_task_and_summed_over_tasks() -> None:
    metrics = Metrics()
    metrics.add("0_0", "node", "records-in", 2)
    metrics.add("0_1", "node", "records-in", 3)
    metrics.add("0_1", "node", "records-dropped", 0)
    assert metrics.get("node", "records-in") == 5
    assert metrics.as_dict() == {"0_0": {"node": {"records-in": 2}}, "0_1": {"node": {"records-in": 3}}}
