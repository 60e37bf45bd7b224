"""A few records make the blocks that Arrow would make of them, and are refused where it would refuse them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import InvalidTimestampError
from millstream.log.blocks import (
    MAX_RECORD_BYTES,
    TARGET_BLOCK_BYTES,
    encode_blocks,
    record_batch,
    records_of,
)
from millstream.log.errors import RecordTooLargeError
from millstream.log.few_records import FEW_ROWS, FewRecords

BYTES = st.none() | st.binary(max_size=20)
ROWS = st.lists(st.tuples(BYTES, BYTES, st.integers(0, 2**63 - 1)), min_size=1, max_size=FEW_ROWS)


def both(*columns: Any) -> tuple[Any, Any]:
    """What is written of columns as they are, and of the same in Arrow."""
    few = records_of(*columns)
    assert isinstance(few, FewRecords)
    written, by_arrow = (encode_blocks(rows, 77) for rows in (few, record_batch(*columns)))
    return (b"".join(written[0]), written[1]), (b"".join(by_arrow[0]), by_arrow[1])


@settings(deadline=None, max_examples=200)
@given(ROWS)
def test_they_are_the_bytes_and_headers_that_arrow_writes(
    rows: list[tuple[bytes | None, bytes | None, int]],
) -> None:
    few, by_arrow = both(*(list(column) for column in zip(*rows, strict=True)))
    assert by_arrow == few


def test_arrow_reads_them() -> None:
    plain = record_batch([b"k", None], [None, b""], [7, 5]).select([0, 1, 2])
    body = FewRecords([b"k", None], [None, b""], [7, 5]).body()
    assert pa.ipc.read_record_batch(pa.py_buffer(body), plain.schema).equals(plain)


def test_large_ones_are_cut_as_ever() -> None:
    few, by_arrow = both([b"a", b"b"], [bytes(TARGET_BLOCK_BYTES), b"v"], [1, 2])
    assert by_arrow == few
    assert len(few[1]) == 2


def test_one_that_is_too_large_is_refused() -> None:
    with pytest.raises(RecordTooLargeError, match="Record 1 of the batch"):
        encode_blocks(records_of([b"", b"k"], [b"", bytes(MAX_RECORD_BYTES)], [1, 2]), 0)


def test_a_negative_timestamp_is_refused() -> None:
    with pytest.raises(InvalidTimestampError, match="timestamp is -3"):
        encode_blocks(records_of([b"k", b"l"], [b"v", b"w"], [4, -3]), 0)


def test_a_missing_timestamp_is_refused() -> None:
    with pytest.raises(InvalidTimestampError, match="no timestamp"):
        encode_blocks(records_of([b"k"], [b"v"], [None]), 0)


@pytest.mark.parametrize(
    "columns",
    [
        ([], [], []),
        ([b"k"] * (FEW_ROWS + 1), [b"v"] * (FEW_ROWS + 1), [1] * (FEW_ROWS + 1)),
        (pa.array([b"k"]), pa.array([b"v"]), pa.array([1])),
        ([b"k"], [b"v"], [1], [(("trace", b"7"),)]),
    ],
)
def test_none_many_columns_and_headers_stay_with_arrow(columns: tuple[Any, ...]) -> None:
    assert record_batch(*columns).equals(records_of(*columns))
