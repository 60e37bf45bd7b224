"""Sinks: serialize, choose topics and partitions, and put what several wrote into one order."""

from __future__ import annotations

from typing import Any

import pytest
from tests.processors.kit import batch_of

from millstream import Window, Windowed, serdes
from millstream.errors import ProductionError
from millstream.log.partitioner import partition_for_key
from millstream.processors.batch import Batch
from millstream.task.outputs import Outputs, Sink, SinkContext
from millstream.task.records import OutputBatch
from millstream.task.serde_book import SerdeBook
from millstream.topology.nodes import SinkNode


class Writing:
    """Some sinks of one task, and what they fail on."""

    def __init__(self) -> None:
        self.outputs = Outputs()
        self.book = SerdeBook()
        self.failures: list[tuple[int, str]] = []

    def sink(
        self,
        topic: Any = "out",
        *,
        partitioner: Any = None,
        changes: bool = False,
        key: Any = serdes.string,
        value: Any = serdes.int64,
    ) -> Sink:
        static = topic if isinstance(topic, str) else None
        extractor = None if static else topic
        node = SinkNode(
            "sink", (), static, extractor, key, value, partitioner, "here", carries_changes=changes
        )
        return Sink(
            node,
            self.book,
            self.outputs,
            self.failed,
            self.count,
            self.context,
            lambda _topic: 4,
            is_internal=lambda topic: topic == "moved",
        )

    def failed(self, batch: Batch, row: int, error: Exception) -> None:
        self.failures.append((batch.origins[row], str(error)))

    def count(self, name: str, count: int) -> None:
        """Nothing of interest here."""

    def context(self, batch: Batch, row: int) -> SinkContext:
        return SinkContext("in", 0, batch.origins[row], batch.timestamps[row], batch.headers_of(row))

    def written(self) -> list[OutputBatch]:
        self.outputs.end_pass()
        return self.outputs.take()


def rows_of(batch: OutputBatch) -> list[tuple[bytes | None, int | None]]:
    values = [None if value is None else serdes.int64.deserialize(value) for value in batch.values]
    return list(zip(batch.keys, values, strict=True))


def test_rows_become_bytes_and_none_stays_none() -> None:
    writing = Writing()
    writing.sink().write(batch_of(("a", 1), (None, None)))
    (out,) = writing.written()
    assert (out.topic, rows_of(out)) == ("out", [(b"a", 1), (None, None)])


def test_a_row_that_can_t_be_written_is_reported_and_the_others_are_written() -> None:
    writing = Writing()
    writing.sink().write(batch_of(("a", 1), ("b", "text"), (5, 2), ("d", 3)))
    (out,) = writing.written()
    assert rows_of(out) == [(b"a", 1), (b"d", 3)]
    assert [row for row, _ in writing.failures] == [1, 2]
    assert writing.failures[0][1].startswith("Cannot serialize the value of topic 'out' with serdes.int64: ")


def test_two_sinks_of_one_topic_are_written_in_the_order_of_their_rows() -> None:
    writing = Writing()
    whole = batch_of(("a", 0), ("b", 1), ("c", 2))
    writing.sink().write(whole.take([0, 2]).for_child(0))
    writing.sink().write(whole.for_child(1))
    (out,) = writing.written()
    assert [value for _, value in rows_of(out)] == [0, 0, 1, 2, 2]


def test_passes_are_written_one_after_the_other() -> None:
    writing = Writing()
    for value in (1, 0):
        writing.sink().write(batch_of(("a", value)))
        writing.outputs.end_pass()
    assert [rows_of(out) for out in writing.written()] == [[(b"a", 1)], [(b"a", 0)]]


def test_what_was_taken_is_not_taken_again() -> None:
    writing = Writing()
    writing.sink().write(batch_of(("a", 1)))
    assert len(writing.written()) == 1
    assert writing.written() == []


def test_an_extractor_chooses_the_topic_of_each_row() -> None:
    writing = Writing()
    writing.sink(lambda key, value, context: f"out-{value % 2}-{context.topic}").write(
        batch_of(("a", 1), ("b", 2), ("c", 3))
    )
    written = {out.topic: rows_of(out) for out in writing.written()}
    assert written == {"out-1-in": [(b"a", 1), (b"c", 3)], "out-0-in": [(b"b", 2)]}


@pytest.mark.parametrize("answer", [None, "", 5])
def test_an_extractor_must_answer_with_a_topic(answer: Any) -> None:
    writing = Writing()
    writing.sink(lambda key, value, context: answer).write(batch_of(("a", 1)))
    expected = f"the topic extractor of sink 'sink' answered {answer!r}, which is no topic"
    assert writing.failures == [(0, expected)]


def test_an_extractor_that_raises_is_reported_for_its_row_only() -> None:
    def extract(key: str, value: int, context: SinkContext) -> str:
        if value == 2:
            raise KeyError(key)
        return "out"

    writing = Writing()
    writing.sink(extract).write(batch_of(("a", 1), ("b", 2)))
    assert writing.failures == [(1, "'b'")]
    assert rows_of(writing.written()[0]) == [(b"a", 1)]


def test_a_partitioner_chooses_the_partition_or_leaves_it_to_the_key() -> None:
    writing = Writing()
    writing.sink(partitioner=lambda topic, key, value, count: None if key == "a" else count - 1).write(
        batch_of(("a", 1), ("b", 2))
    )
    assert writing.written()[0].partitions == [None, 3]


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    writing = Writing()
    writing.sink(partitioner=lambda topic, key, value, count: partition).write(batch_of(("a", 1)))
    expected = f"the partitioner of sink 'sink' chose partition {partition} of topic 'out', which has 4"
    assert writing.failures == [(0, expected)]
    assert writing.written() == []


def test_a_tables_sink_writes_both_values() -> None:
    writing = Writing()
    writing.sink(changes=True, value=serdes.string).write(
        batch_of(("a", "new"), ("b", None), olds=["old", "old"])
    )
    assert writing.written()[0].values == [b"\x03newold\x02", b"old\x00"]


def test_the_error_of_a_bad_partition_is_one_of_production() -> None:
    errors: list[Exception] = []
    writing = Writing()
    writing.failed = lambda batch, row, error: errors.append(error)  # type: ignore[method-assign]
    writing.sink(partitioner=lambda topic, key, value, count: 9).write(batch_of(("a", 1)))
    assert [type(error) for error in errors] == [ProductionError]


@pytest.mark.parametrize("repeated", [1, 100], ids=["few", "many"])
@pytest.mark.parametrize(
    "serde", [serdes.time_windowed(serdes.string, 10), serdes.session_windowed(serdes.string)]
)
def test_all_windows_of_a_key_go_where_the_key_goes(serde: Any, repeated: int) -> None:
    windows = [Windowed(key, Window(start, start + 10)) for key in "abcdefg" for start in (0, 10, 70)]
    rows = [(window, 1) for window in windows * repeated]
    writing = Writing()
    writing.sink(key=serde).write(batch_of(*rows, (None, 1)))
    expected = [partition_for_key(window.key.encode(), 4) for window, _ in rows]
    assert writing.written()[0].partitions == [*expected, None]


def test_in_a_repartition_windows_are_keys_like_others() -> None:
    writing = Writing()
    serde = serdes.time_windowed(serdes.string, 10)
    writing.sink("moved", key=serde).write(batch_of((Windowed("a", Window(0, 10)), 1)))
    assert writing.written()[0].partitions is None
