"""Rows through a repartition: each gets to its partition, in the task's order, however they are cut."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.log.partitioner import partition_for_key
from millstream.processors.columns.column import Column
from millstream.record import Headers
from millstream.task import shuffle_block
from millstream.task.inputs import TaskInput
from millstream.task.records import DecodedPart, OutputBatch
from millstream.task.shuffle_block import Shuffle, ShuffleBlock, one_slot, rows_for
from millstream.types import Attempt, Partition

NO_HEADERS: Headers = ()


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = NO_HEADERS


def output_of(rows: Sequence[Row], partitions: Sequence[int | None] | None = None) -> OutputBatch:
    headers = [row.headers for row in rows] if any(row.headers for row in rows) else None
    keys, values, times = ([row[at] for row in rows] for at in range(3))
    return OutputBatch("t", Column(keys), Column(values), Column(times), headers, partitions)


def sent(
    sender: str, rows: Sequence[Row], partitions: int, slots: int = 1, batches: int = 1
) -> list[ShuffleBlock]:
    shuffle = Shuffle(sender, Attempt(1), 0, lambda _, count: [number % slots for number in range(count)], ())
    cuts = [round(at * len(rows) / batches) for at in range(batches + 1)]
    outputs = [output_of(rows[start:end]) for start, end in pairwise(cuts)]
    return shuffle.blocks("t", outputs, partitions)


def taken(blocks: Sequence[ShuffleBlock], partition: int, first_offset: int = 0) -> list[tuple[Row, int]]:
    """As a task takes them."""
    mine = [block for block in blocks if partition in dict(block.counts)]
    if not mine:
        return []
    raw = rows_for("t", Partition(partition), mine, first_offset)
    part = DecodedPart(raw, "source", range(len(raw)), raw.keys, raw.values, None, raw.timestamps)
    rows = TaskInput([part], 0)
    found: list[tuple[Row, int]] = []
    for origin in range(len(rows)):
        of, at = rows.raw_record(origin)
        row = Row(of.keys[at], of.values[at], of.timestamps[at], of.headers_of(at))
        assert rows.timestamps[origin] == row.timestamp
        found.append((row, rows.metadata(origin).offset))
    return found


def naive(senders: Sequence[Sequence[Row]], partitions: int, partition: int) -> list[tuple[Row, int]]:
    """Offsets by sender; always the sender whose next row is the oldest by the largest time so far."""
    offset = 0
    waiting: list[list[tuple[int, Row, int]]] = []
    for rows in senders:
        mine = [row for row in rows if partition_for_key(row.key or b"", partitions) == partition]
        times = accumulate((row.timestamp for row in mine), max)
        waiting.append(
            [(time, row, offset + at) for at, (row, time) in enumerate(zip(mine, times, strict=True))]
        )
        offset += len(mine)
    found: list[tuple[Row, int]] = []
    while any(waiting):
        first = min((queue for queue in waiting if queue), key=lambda queue: queue[0][0])
        _, row, at = first.pop(0)
        found.append((row, at))
    return found


ROWS = st.lists(
    st.builds(
        Row,
        st.binary(min_size=1, max_size=2),
        st.none() | st.binary(max_size=3),
        st.integers(0, 6),
        st.just(NO_HEADERS) | st.just((("trace", b"7"),)),
    ),
    max_size=12,
)


def test_rows_that_are_left_out_have_no_say_in_the_order() -> None:
    senders = [[Row(b"k", b"bad", 100), Row(b"k", b"early", 5)], [Row(b"k", b"middle", 50)]]
    blocks = [block for number, rows in enumerate(senders) for block in sent(f"0_{number}", rows, 1)]
    raw = rows_for("t", Partition(0), blocks, 0)
    part = DecodedPart(raw, "source", range(3), raw.keys, raw.values, None, raw.timestamps)
    good = TaskInput([part.take(Column([1, 2]))], 0)
    assert [good.metadata(origin).offset for origin in range(2)] == [1, 2]
    assert [raw.row_of_sender(row) for row in range(3)] == [0, 1, 0]


@given(
    senders=st.lists(ROWS, min_size=1, max_size=4),
    partitions=st.integers(1, 5),
    slots=st.integers(1, 3),
    batches=st.integers(1, 3),
)
def test_rows_get_where_they_belong_in_the_order_of_their_time(
    senders: list[list[Row]], partitions: int, slots: int, batches: int
) -> None:
    blocks = [
        block
        for number, rows in enumerate(senders)
        for block in sent(f"0_{number}", rows, partitions, slots, batches)
    ]
    for partition in range(partitions):
        mine = [block for block in blocks if block.slot == partition % slots]
        assert taken(mine, partition) == naive(senders, partitions, partition)


def test_many_rows_are_as_few() -> None:
    rows = [Row(b"%d" % (at * 7919 % 501), b"%d" % at, at % 97) for at in range(3_000)]
    senders = [rows[0::3], rows[1::3], rows[2::3]]
    blocks = [block for number, part in enumerate(senders) for block in sent(f"0_{number}", part, 300, 7)]
    assert len(blocks) == 3 * 7, "a block for each sender and slot, whatever the number of partitions"
    for partition in (0, 1, 150, 299):
        assert taken(blocks, partition) == naive(senders, 300, partition)


def test_more_places_than_two_bytes_can_tell() -> None:
    rows = [Row(b"%d" % at, b"%d" % at, 1) for at in range(2_000)]
    blocks = sent("0_0", rows, 1_000, 100)
    found = {
        row.value: partition
        for partition in range(1_000)
        for row, _ in taken([block for block in blocks if block.slot == partition % 100], partition)
    }
    assert found == {row.value: partition_for_key(row.key or b"", 1_000) for row in rows}


def test_rows_of_several_log_blocks_are_cut_where_a_partition_ends() -> None:
    rows = [Row(b"%d" % (at % 3), bytes(900_000), at) for at in range(24)]
    (block,) = sent("0_0", rows, 3)
    assert len(block._parts) > 1
    for partition in {partition_for_key(b"%d" % key, 3) for key in range(3)}:
        assert taken([block], partition) == naive([rows], 3, partition)


def test_more_rows_than_an_array_of_arrow_holds_stay_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row(b"%d" % (at % 5), b"%d" % at, at % 7, (("at", b"%d" % at),)) for at in range(40)]
    senders = [rows[:13], rows[13:20], rows[20:]]
    blocks = [block for number, part in enumerate(senders) for block in sent(f"0_{number}", part, 2)]
    monkeypatch.setattr(shuffle_block, "MAX_JOINED_BYTES", 100)
    for partition in range(2):
        assert taken(blocks, partition) == naive(senders, 2, partition)
    raw = rows_for("t", Partition(0), blocks, 0)
    assert len(raw.values.pieces()) == len(senders)


def test_a_partitioner_of_the_users_own_is_obeyed_and_rows_without_a_key_stay_with_their_task() -> None:
    rows = [Row(None, b"a", 1), Row(None, b"b", 2), Row(b"k", b"c", 3)]
    shuffle = Shuffle("0_2", Attempt(1), 2, one_slot, ())
    blocks = shuffle.blocks("t", [output_of(rows, [None, 0, 1])], 4)
    assert [block.counts for block in blocks] == [((0, 1), (1, 1), (2, 1))]
    assert [taken(blocks, partition)[0][0].value for partition in range(3)] == [b"b", b"c", b"a"]


def test_nothing_is_sent_if_there_is_nothing() -> None:
    assert sent("0_0", [], 4) == []


def test_offsets_go_on() -> None:
    blocks = sent("0_0", [Row(b"k", b"1", 5), Row(b"k", b"2", 6)], 1)
    assert [offset for _, offset in taken(blocks, 0, first_offset=40)] == [40, 41]


def test_equal_rows_have_equal_digests_whoever_reads_them() -> None:
    rows = [Row(b"%d" % at, b"v", at) for at in range(9)]
    first, again = sent("0_0", rows, 4), sent("0_0", rows, 4)
    received = pickle.loads(pickle.dumps(first[0]))  # noqa: S301 - our own
    assert first[0].digest == again[0].digest == received.digest
    assert sent("0_0", rows[1:], 4)[0].digest != first[0].digest


def test_what_a_sender_computed_does_not_travel() -> None:
    block = sent("0_0", [Row(b"k", b"v", 1)], 1)[0]
    assert block.consumed.digest == block.digest
    received = pickle.loads(pickle.dumps(block))  # noqa: S301 - our own
    assert "digest" in vars(block)
    assert "digest" not in vars(received)


def test_rows_that_stand_for_another_partition_have_another_digest() -> None:
    block = sent("0_0", [Row(b"k", b"v", 1), Row(b"k", b"w", 1)], 1)[0]
    moved = ShuffleBlock("t", 0, "0_0", Attempt(1), block.payload, ((Partition(0), 1), (Partition(1), 1)), ())
    assert moved.digest != block.digest


def test_a_partition_that_gets_nothing_is_not_named() -> None:
    block = sent("0_0", [Row(b"k", b"v", 1)], 64)[0]
    assert [partition for partition, _ in block.counts] == [partition_for_key(b"k", 64)]
    assert block.sent().partitions == (partition_for_key(b"k", 64),)
    with pytest.raises(KeyError):
        block.rows(Partition((partition_for_key(b"k", 64) + 1) % 64))
