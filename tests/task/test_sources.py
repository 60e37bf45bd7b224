"""Reading a partition: decode, leave bad records out, extract timestamps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from millstream import serdes, timestamps
from millstream.errors import InvalidTimestampError
from millstream.processors.batch import OrderKey
from millstream.task.change_codec import encode_change
from millstream.task.records import DecodedPart, RawBatch
from millstream.task.serde_book import SerdeBook
from millstream.task.sources import SourceReader
from millstream.topology.nodes import SourceNode


class Reading:
    """A source, and what it says of bad records."""

    def __init__(
        self,
        extractor: Callable[[Any, int], int] | None = timestamps.fail_on_invalid_timestamp,
        *,
        value: Any = serdes.int64,
        changes: bool = False,
    ) -> None:
        node = SourceNode("source", ("in",), None, serdes.string, value, None, None, "here", changes)
        self.failures: list[tuple[int, str]] = []
        self.drops = 0
        self._reader = SourceReader(
            node, SerdeBook(), extractor, self._failed, self._count, clock=lambda: 777
        )

    def read(self, raw: RawBatch, partition_time: int = -1) -> DecodedPart:
        return self._reader.read(raw, partition_time)

    def _failed(self, raw: RawBatch, row: int, error: Exception, order: OrderKey) -> None:
        self.failures.append((row, str(error)))

    def _count(self, name: str, count: int) -> None:
        assert name == "records-dropped"
        self.drops += count


def raw_of(values: Sequence[bytes | None], times: Sequence[int] | None = None) -> RawBatch:
    rows = range(len(values))
    keys = [b"k%d" % row for row in rows]
    return RawBatch("in", 3, [10 + row for row in rows], keys, values, list(rows) if times is None else times)


def number(value: int) -> bytes:
    return serdes.int64.serialize(value)


def test_columns_are_decoded_and_none_stays_none() -> None:
    part = Reading().read(raw_of([number(5), None]))
    assert (list(part.keys), list(part.values), list(part.timestamps)) == (["k0", "k1"], [5, None], [0, 1])


def test_every_record_that_can_t_be_decoded_is_left_out_and_named() -> None:
    reading = Reading()
    part = reading.read(raw_of([number(5), b"bad", number(6), b"worse"]))
    assert (part.rows, list(part.keys)) == ([0, 2], ["k0", "k2"])
    assert (list(part.values), list(part.timestamps)) == ([5, 6], [0, 2])
    assert [row for row, _ in reading.failures] == [1, 3]
    assert reading.failures[0][1].startswith(
        "Cannot deserialize the value of topic 'in', partition 3, offset 11 with serdes.int64: "
    )


def test_a_bad_key_is_told_from_a_bad_value() -> None:
    reading = Reading()
    raw = RawBatch("in", 3, [10], [b"\xff\xfe"], [b"bad"], [0])
    assert len(reading.read(raw).rows) == 0
    assert [row for row, _ in reading.failures] == [0]
    assert reading.failures[0][1].startswith(
        "Cannot deserialize the key of topic 'in', partition 3, offset 10"
    )


def test_without_a_serde_a_topic_of_the_log_stays_bytes() -> None:
    assert Reading(value=None).read(raw_of([b"any"])).values == [b"any"]


def test_a_tables_repartition_carries_two_values() -> None:
    part = Reading(None, changes=True).read(
        raw_of([encode_change(number(2), number(1)), encode_change(None, number(1)), None])
    )
    assert (list(part.values), list(part.olds or ())) == ([2, None, None], [1, 1, None])


def test_a_broken_update_is_left_out() -> None:
    reading = Reading(None, changes=True)
    part = reading.read(raw_of([b"\x07", encode_change(number(2), None)]))
    assert (part.rows, list(part.values), list(part.olds or ())) == ([1], [2], [None])
    assert [row for row, _ in reading.failures] == [0]


def test_a_negative_timestamp_fails_and_the_record_is_named() -> None:
    with pytest.raises(InvalidTimestampError) as caught:
        Reading().read(raw_of([number(1), number(2)], times=[5, -1]))
    assert str(caught.value) == (
        "topic 'in', partition 3, offset 11: the timestamp is -1, which is negative. Likely cause: the "
        "producer set none. Remedy: choose another timestamp_extractor, such as "
        "timestamps.skip_invalid_timestamp or timestamps.use_partition_time_on_invalid_timestamp"
    )


def test_an_extractor_that_answers_a_negative_time_drops_the_record() -> None:
    reading = Reading(timestamps.skip_invalid_timestamp)
    part = reading.read(raw_of([number(1), number(2), number(3)], times=[5, -1, 6]))
    assert (list(part.values), list(part.timestamps), reading.drops) == ([1, 3], [5, 6], 1)


def test_an_extractor_is_told_the_time_of_the_partition_so_far() -> None:
    told: list[int] = []

    def extract(record: Any, partition_time: int) -> int:
        told.append(partition_time)
        return int(record.timestamp)

    Reading(extract).read(raw_of([number(1)] * 3, times=[5, 9, 4]), partition_time=7)
    assert told == [7, 7, 9]


def test_an_extractor_sees_the_whole_record() -> None:
    seen: list[Any] = []

    def extract(record: Any, partition_time: int) -> int:
        seen.append((record.topic, record.partition, record.offset, record.key, record.value, record.headers))
        return int(record.value)

    part = Reading(extract).read(raw_of([number(50)]))
    assert seen == [("in", 3, 10, "k0", 50, ())]
    assert part.timestamps == [50]


def test_partition_time_stands_in_for_a_missing_timestamp() -> None:
    reading = Reading(timestamps.use_partition_time_on_invalid_timestamp)
    part = reading.read(raw_of([number(1), number(2)], times=[-1, 8]), partition_time=6)
    assert part.timestamps == [6, 8]


def test_partition_time_can_t_stand_in_before_the_first_record() -> None:
    reading = Reading(timestamps.use_partition_time_on_invalid_timestamp)
    with pytest.raises(InvalidTimestampError) as caught:
        reading.read(raw_of([number(1)], times=[-1]))
    assert str(caught.value) == (
        "topic 'in', partition 3, offset 10: the timestamp is -1 and its partition has no earlier one to use "
        "instead. Remedy: choose another timestamp_extractor"
    )


def test_the_wall_clock_is_the_epochs_also_for_an_extractor_of_ones_own() -> None:
    raw = raw_of([number(1), number(2)], times=[5, -1])
    assert Reading(timestamps.wall_clock_timestamp).read(raw).timestamps == [777, 777]
    assert Reading(lambda record, _: record.wall_clock_ms + record.value).read(raw).timestamps == [778, 779]


@pytest.mark.parametrize(
    "extractor",
    [
        timestamps.fail_on_invalid_timestamp,
        timestamps.skip_invalid_timestamp,
        timestamps.use_partition_time_on_invalid_timestamp,
    ],
)
def test_a_valid_timestamp_stays_as_it_is(extractor: Callable[[Any, int], int]) -> None:
    part = Reading(extractor).read(raw_of([number(1)] * 3, times=[5, 0, 7]), partition_time=9)
    assert part.timestamps == [5, 0, 7]


def test_extracted_timestamps_stand_in_arrow_where_operators_work_on_columns() -> None:
    reading = Reading(lambda record, _: record.value)
    reading._reader.wants_columns = True
    part = reading.read(raw_of([number(7), number(-1), number(9)]))
    assert (part.timestamps.in_arrow, list(part.timestamps), list(part.keys)) == (True, [7, 9], ["k0", "k2"])


@pytest.mark.parametrize("answer", ["5", 5.0, None, True])
def test_an_extractor_that_answers_no_milliseconds_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidTimestampError) as caught:
        Reading(lambda *_: answer).read(raw_of([number(1)]))
    assert str(caught.value) == (
        f"topic 'in', partition 3, offset 10: the timestamp extractor answered {answer!r}. Remedy: return "
        "milliseconds as an int"
    )


def test_a_repartition_keeps_the_timestamps_it_was_given() -> None:
    assert Reading(None).read(raw_of([number(1)], times=[8])).timestamps == [8]
