"""A few records as the body of a block, without Arrow, which has a fixed price of some ten calls.

The bytes are those that Arrow writes for the columns key, value and timestamp: the message that describes a
record batch (Arrow's IPC format, version 5; a flatbuffer whose fields all have their places), and the buffers
of the columns, each padded to eight bytes. Whoever reads it need not know who wrote it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

__all__ = ["FEW_ROWS", "FewRecords"]

FEW_ROWS: Final = 16
_ALIGNMENT: Final = 8
_MESSAGE: Final = struct.Struct("<40sq24sq8s16q8s6q")
"""The length of all buffers, the number of rows, where each buffer is, and rows and nulls of each column."""
_START: Final = bytes.fromhex(
    "ffffffff0801000014000000000000000c0016000600050008000c000c0000000003040018000000"
)
_BATCH: Final = bytes.fromhex("00000a0018000c00040008000a0000009c00000010000000")
_BUFFERS: Final = bytes.fromhex("0000000008000000")
_COLUMNS: Final = bytes.fromhex("0000000003000000")


@dataclass(frozen=True, slots=True)
class FewRecords:
    """Records without headers, at least one."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]

    def __len__(self) -> int:
        return len(self.timestamps)

    def taken(self, rows: Sequence[int]) -> FewRecords:
        """Some of them, in the given order."""
        return FewRecords(
            [self.keys[row] for row in rows],
            [self.values[row] for row in rows],
            [self.timestamps[row] for row in rows],
        )

    def body(self) -> bytes:
        """The records as Arrow writes them. Raises what Arrow would not take as it is.

        >>> from millstream.log.blocks import record_batch
        >>> records = record_batch([b"k"], [None], [5]).select(["key", "value", "timestamp"])
        >>> FewRecords([b"k"], [None], [5]).body() == bytes(records.serialize())
        True
        """
        rows = len(self.timestamps)
        key_nulls, *key_buffers = _described(self.keys)
        value_nulls, *value_buffers = _described(self.values)
        times = struct.pack(f"<{rows}q", *self.timestamps)
        places: list[int] = []
        padded: list[bytes] = []
        end = 0
        for buffer in (*key_buffers, *value_buffers, b"", times):
            length = len(buffer)
            places += (end, length)
            padded += (buffer, bytes(-length % _ALIGNMENT))
            end += length + -length % _ALIGNMENT
        columns = (rows, key_nulls, rows, value_nulls, rows, 0)
        message = _MESSAGE.pack(_START, end, _BATCH, rows, _BUFFERS, *places, _COLUMNS, *columns)
        return b"".join((message, *padded))


def _described(column: Sequence[bytes | None]) -> tuple[int, bytes, bytes, bytes]:
    """How many entries are null; which are not (nothing if all), where they end, and their bytes."""
    nulls, valid = column.count(None), b""
    there = [b"" if entry is None else entry for entry in column]
    if nulls:
        bits = sum(1 << row for row, entry in enumerate(column) if entry is not None)
        valid = bits.to_bytes(-(-len(column) // 8), "little")
    ends = struct.pack(f"<{len(there) + 1}i", 0, *accumulate(map(len, there)))
    return nulls, valid, ends, b"".join(there)
