"""A punctuator may be scheduled while records are processed, and batching still does not show."""

from __future__ import annotations

import pytest
from tests.simulation.epochs import EpochRunner

from millstream import Processor, PunctuationType, Record, StreamsBuilder, serdes, stores
from millstream.task.records import RawBatch


class SchedulesAtThree(Processor[str, str, str, str]):
    """From the record with value "3" on, forwards the stream time every 2 ms; counts in a store."""

    def process(self, record: Record[str, str]) -> None:
        store = self.context.state_store("seen")
        store.put("n", (store.get("n") or 0) + 1)
        if record.value == "3":
            self.context.schedule(2, PunctuationType.STREAM_TIME, self._punctuate)
        self.context.forward(record)

    def _punctuate(self, timestamp: int) -> None:
        count = self.context.state_store("seen").get("n")
        self.context.forward(Record("tick", f"{count}@{timestamp}", timestamp))


def _run(max_rows: int | None) -> tuple[list[str], int]:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("seen", key=serdes.string, value=serdes.int64))
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.process(SchedulesAtThree, "seen").to("out", key=serdes.string, value=serdes.string)
    with EpochRunner(builder.build(), partitions={"in": 1}, max_rows=max_rows) as runner:
        values = [str(number).encode() for number in range(8)]
        raw = RawBatch("in", 0, tuple(range(8)), (b"k",) * 8, values, tuple(range(8)))
        runner.run_epoch([raw])
        counted = runner.metrics.get("KSTREAM-PROCESSOR-0000000001", "records-in")
        return [(row.value or b"").decode() for row in runner.outputs["out"]], counted


@pytest.mark.parametrize("max_rows", [None, 2, 5])
def test_a_punctuator_scheduled_inside_a_batch_fires_after_its_record(max_rows: int | None) -> None:
    expected = ["0", "1", "2", "3", "4@3", "4", "5@4", "5", "6", "7@6", "7"]
    assert _run(1)[0] == expected
    assert _run(max_rows)[0] == expected


def test_records_are_counted_once_though_the_batch_started_again() -> None:
    assert _run(None)[1] == 8


def test_rows_on_their_way_to_other_nodes_are_forgotten_when_the_batch_starts_again() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("seen", key=serdes.string, value=serdes.int64))
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    kept = stream.filter(lambda _, value: value != "0")
    stream.process(SchedulesAtThree, "seen").to("out", key=serdes.string, value=serdes.string)
    kept.to("kept", key=serdes.string, value=serdes.string)  # behind the processor, ahead of which rows wait
    with EpochRunner(builder.build(), partitions={"in": 1}) as runner:
        values = [str(number).encode() for number in range(8)]
        runner.run_epoch([RawBatch("in", 0, tuple(range(8)), (b"k",) * 8, values, tuple(range(8)))])
        assert [row.value for row in runner.outputs["kept"]] == values[1:]
