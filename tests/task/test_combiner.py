"""Rows that are combined in front of a repartition: fewer travel, and nobody can tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.processors.kit import batch_of
from tests.simulation.epochs import EpochRunner, Shuffle

from millstream import KGroupedStream, Processor, Record, Store, StreamsBuilder, Topology, serdes
from millstream.processors.aggregations.aggregation import PartialAggregate
from millstream.processors.aggregations.count import COUNT
from millstream.processors.columns import column
from millstream.processors.columns.column import Column
from millstream.task.combiner import combined_rows, decode_marked, mark_single
from millstream.task.records import RawBatch
from millstream.topology.nodes import SinkNode

Grouped = KGroupedStream[str, int]


def regrouped(aggregate: Callable[[Grouped], Any], *, caching: bool = True) -> Topology:
    """Whole numbers by their last digit, behind a repartition."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.int64)
    table = aggregate(stream.group_by(lambda _key, value: str((value or 0) % 3), key=serdes.string))
    table.to_stream().to("out")
    return builder.build()


def keep_first(so_far: int, _new: int) -> int:
    return so_far


TABLE = Store("table")
AGGREGATES: dict[str, Callable[[Grouped], Any]] = {
    "count": lambda grouped: grouped.count(store=TABLE),
    "sum": lambda grouped: grouped.sum(store=TABLE),
    "min": lambda grouped: grouped.min(store=TABLE),
    "max of": lambda grouped: grouped.max(lambda value: -value, store=TABLE),
    "touchy sum": lambda grouped: grouped.sum(
        lambda value: 7 // (value - 4) if value != 4 else 0, store=TABLE
    ),
    "declared": lambda grouped: grouped.reduce(lambda one, other: one + other, store=TABLE, commutative=True),
    "keep first": lambda grouped: grouped.reduce(keep_first, store=TABLE),
    "not cached": lambda grouped: grouped.count(store=Store("table", caching=False)),
}
COMBINED = {"count", "sum", "min", "max of", "touchy sum", "declared"}


def sinks(topology: Topology) -> list[SinkNode]:
    return [
        sink
        for sub in topology.plan().subtopologies
        for sink in sub.sinks
        if sink.topic in topology.plan().repartition_topics
    ]


def is_combined(topology: Topology) -> bool:
    return any(sink.combine is not None for sink in sinks(topology))


@pytest.mark.parametrize("name", AGGREGATES)
def test_only_what_does_not_depend_on_order_and_grouping_is_combined(name: str) -> None:
    assert is_combined(regrouped(AGGREGATES[name])) is (name in COMBINED)


def outcome(topology: Topology, epochs: Sequence[Sequence[tuple[int, int | None, int]]]) -> Any:
    """Outputs, stores, stream times: everything that can be told. A record is (partition, value, time)."""
    with EpochRunner(topology, partitions={"in": 2}) as runner:
        offset = 0
        for records in epochs:
            raws = []
            for partition in (0, 1):
                mine = [(value, time) for where, value, time in records if where == partition]
                values = [None if value is None else serdes.int64.serialize(value) for value, _ in mine]
                times = [time for _, time in mine]
                offsets = range(offset, offset + len(mine))
                raws.append(RawBatch("in", partition, offsets, [b"k"] * len(mine), values, times))
            offset += len(records)
            runner.run_epoch([raw for raw in raws if len(raw)])
        states = {task.task_id: task.state for task in runner.tasks}
        stored = [list(store.all()) for store in runner.stores("table")]
        return runner.outputs, stored, {name: state.stream_time for name, state in states.items()}


RECORDS = st.lists(
    st.tuples(st.integers(0, 1), st.one_of(st.integers(0, 9), st.none()), st.integers(0, 20)), max_size=12
)
IN_ORDER = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), max_size=12).map(
    lambda rows: [(partition, value, time) for time, (partition, value) in enumerate(rows)]
)


@pytest.mark.parametrize("name", AGGREGATES)
@settings(deadline=None)  # a busy machine is no failure
@given(epochs=st.lists(st.one_of(RECORDS, IN_ORDER), max_size=3))
def test_combined_rows_give_what_all_rows_give(name: str, epochs: Any) -> None:
    combined = outcome(regrouped(AGGREGATES[name]), epochs)
    with patch("millstream.topology.plan.with_combiners", lambda _topology, _groups: {}):
        plain = outcome(regrouped(AGGREGATES[name]), epochs)
    assert combined == plain


def test_one_row_per_key_and_sender_travels() -> None:
    moved: list[int] = []
    add = Shuffle.add

    def counting(self: Shuffle, task: Any, outputs: Any) -> None:
        outputs = list(outputs)
        moved.extend(len(batch) for batch in outputs)
        add(self, task, outputs)

    with patch.object(Shuffle, "add", counting):
        outcome(regrouped(AGGREGATES["count"]), [[(0, number % 6, number) for number in range(100)]])
    assert sum(moved) == 3


def test_a_first_value_is_kept_wherever_it_came_from() -> None:
    _, stored, _ = outcome(regrouped(AGGREGATES["keep first"]), [[(0, 9, 5), (1, 3, 1), (0, 6, 6)]])
    assert [(key, cell.value) for store in stored for key, cell in store] == [("0", 3)]


class Idle(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        """Nothing."""


def with_processor_behind() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.int64)
    stream.group_by(lambda _key, value: str(value)).count(store="table").to_stream().process(Idle)
    return builder.build()


def with_store_shared() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.int64)
    counts = stream.group_by(lambda _key, value: str(value)).count(store="table")
    counts.to_stream().process(Idle, "table")
    return builder.build()


def with_repartition_shared() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.int64)
    grouped = stream.group_by(lambda _key, value: str(value), name="by-value")
    grouped.count(store="counts").to_stream().to("counts")
    grouped.sum(store="sums").to_stream().to("sums")
    return builder.build()


def with_topics_chosen() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.int64)
    counts = stream.group_by(lambda _key, value: str(value)).count(store="table")
    counts.to_stream().to(lambda _key, _value, context: f"to-{context.offset}")
    return builder.build()


@pytest.mark.parametrize(
    "build", [with_processor_behind, with_store_shared, with_repartition_shared, with_topics_chosen]
)
def test_where_somebody_could_tell_all_rows_travel(build: Callable[[], Topology]) -> None:
    assert not is_combined(build())


@pytest.fixture(params=["few", "many"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Batches are too small for columns, or are taken for large ones."""
    if request.param == "many":
        monkeypatch.setattr(column, "MANY_ROWS", 0)
    name: str = request.param
    return name


@pytest.mark.usefixtures("size")
def test_values_are_marked_as_single_or_combined() -> None:
    batch = batch_of(("a", "x"), ("b", "y"), ("a", "z"))
    combined = combined_rows(batch, serdes.string, serdes.string, COUNT)
    assert combined is not None
    rows, values = combined
    assert (list(rows.keys), list(rows.timestamps)) == (["b", "a"], [1, 2])
    marked = [*values, *mark_single([b"v", None])]
    assert decode_marked(
        Column(marked), lambda data: [None if one is None else one.decode() for one in data]
    ) == [
        PartialAggregate(1),
        PartialAggregate(2),
        "v",
        None,
    ]


@pytest.mark.parametrize(
    "batch",
    [
        batch_of(("a", "x"), ("a", None)),
        batch_of(("a", "x"), ("a", "y"), timestamps=[2, 1]),
        batch_of(("a", "x"), ("a", 7)),  # can't be written, and that must be told
        batch_of((1, "x"), (True, "x")),
        batch_of(),
    ],
)
@pytest.mark.usefixtures("size")
def test_rows_go_one_by_one_where_there_is_any_doubt(batch: Any) -> None:
    assert combined_rows(batch, serdes.auto.bind("keys"), serdes.string, COUNT) is None


def test_counts_of_many_rows_travel_as_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column, "MANY_ROWS", 0)
    monkeypatch.setattr(column, "FEW_ROWS", 0)
    batch = batch_of(("a", "x"), ("b", "y"), ("a", "z"))
    combined = combined_rows(batch, serdes.string, serdes.string, COUNT)
    assert combined is not None
    values = combined[1]
    assert values.in_arrow
    assert list(values) == [b"\x02" + number.to_bytes(8) for number in (1, 2)]
    read = decode_marked(values, lambda _: [])
    assert read.in_arrow
    assert list(read) == [PartialAggregate(1), PartialAggregate(2)]
