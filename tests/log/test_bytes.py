"""How many records fit into so many bytes: never too many, never none."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.conftest import Kit

from millstream.log import FileLog, TopicPartition, blocks, record_batch
from millstream.log.embedded import reader
from millstream.types import Offset, Partition

WHERE = TopicPartition("t", Partition(0))
TIMESTAMP = 8


@contextmanager
def filled(batches: list[list[int]]) -> Iterator[FileLog]:
    """A log with one entry per batch; the numbers are the lengths of its values."""
    with tempfile.TemporaryDirectory() as folder:
        log = FileLog(folder)
        log.create_topic("t")
        for sizes in batches:
            values = [b"v" * size for size in sizes]
            log.append(WHERE, record_batch([None] * len(sizes), values, [1] * len(sizes)))
        yield log


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([0, 5, 300, 4_000]), min_size=1, max_size=6), min_size=1, max_size=5),
    st.sampled_from([1, 20, 400, 1_000, 5_000, 1 << 20]),
)
def test_what_is_chosen_fits_and_is_never_nothing(batches: list[list[int]], max_bytes: int) -> None:
    sizes = list(itertools.chain(*batches))
    with filled(batches) as log:
        for start, end in itertools.combinations(range(len(sizes) + 1), 2):
            found = log.end_within(WHERE, Offset(start), Offset(end), max_bytes)
            assert start < found <= end
            assert found == start + 1 or sum(size + TIMESTAMP for size in sizes[start:found]) <= max_bytes


def test_all_is_taken_that_fits_as_a_whole() -> None:
    with filled([[10], [20, 30], [40]]) as log:
        assert log.end_within(WHERE, Offset(0), Offset(4), 1 << 20) == 4
        assert log.end_within(WHERE, Offset(1), Offset(3), 1 << 20) == 3


def test_a_block_that_does_not_fit_is_cut_between_its_records() -> None:
    with filled([[1_000] * 100]) as log:
        assert log.end_within(WHERE, Offset(0), Offset(100), 10 * 1_008) == 10
        assert log.end_within(WHERE, Offset(7), Offset(100), 10 * 1_008 - 1) == 16


def test_an_empty_range_stays_empty() -> None:
    with filled([[1]]) as log:
        assert log.end_within(WHERE, Offset(1), Offset(1), 1) == 1


def test_the_answer_comes_from_the_index_without_opening_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object) -> pa.RecordBatch:
        pytest.fail("a block was opened")

    monkeypatch.setattr(reader, "decode_rows", opened)
    monkeypatch.setattr(blocks, "TARGET_BLOCK_BYTES", 3_000)
    with filled([[500] * 4, [500] * 40]) as log:
        found = log.end_within(WHERE, Offset(0), Offset(44), 12_000)
    assert 4 < found <= 4 + 20, "whole blocks of the second entry"


def test_sealed_rows_count_like_appended_ones(kit: Kit, log: FileLog) -> None:
    for epoch in range(1, 12):
        log.publish_sealed(kit.orders, kit.seal("a" * 500, "b" * 500, epoch=epoch))
    assert kit.open().end_within(kit.orders, Offset(3), Offset(22), 5_000) == 8
