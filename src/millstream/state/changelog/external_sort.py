"""Rows by key, however many: sorted in runs that fit into memory, which are then read side by side.

A changelog has its rows in the order of time. To put them into a store in that order is slow once the store
is large: a B+ tree touches a page per row, an LSM tree merges again and again. In the order of their keys
each batch lies behind the one before, which is what all backends load fastest.

The runs are files in a folder that belongs to nobody else, memory-mapped when they are read, so what is held
in memory is one run's worth of rows, and one key per block. Nothing in the folder is worth keeping.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.durable import disk_errors_named, ensure_private_folder
from millstream.state.changelog.rows import last_of_each_key, sorted_as_columns
from millstream.state.stores.overlay import Entry

_BLOCK_ROWS: Final = 4096
_BLOCK_BYTES: Final = 1 << 20
"""A block of a run ends with whichever of the two it reaches first."""


@dataclass(frozen=True, slots=True)
class _Run:
    file: Path
    first_keys: list[bytes]
    """Of each block."""

    def between(self, start: bytes, end: bytes | None) -> Iterator[pa.RecordBatch]:
        """Rows from one key (inclusive) to another (exclusive)."""
        first = max(0, bisect_right(self.first_keys, start) - 1)
        last = len(self.first_keys) if end is None else bisect_left(self.first_keys, end)
        if first >= last:
            return
        with pa.memory_map(str(self.file)) as mapped:
            blocks = pa.ipc.open_file(mapped)
            for number in range(first, last):
                block = blocks.get_batch(number)
                if number in (first, last - 1):
                    block = block.filter(_are_between(block.column(0), start, end))
                yield block


@dataclass(frozen=True, slots=True)
class SortedRuns:
    """All rows, to be had in ascending order."""

    runs: list[_Run]
    rows: int
    """How many, if some keys are in several runs: at most."""

    def batches(self, batch_rows: int) -> Iterator[list[Entry]]:
        """The last row of each key: ascending batches of about so many rows."""
        fences = sorted(key for run in self.runs for key in run.first_keys)
        step = max(1, batch_rows // _BLOCK_ROWS)
        starts = sorted({b"", *fences[step::step]})
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            parts = [block for run in self.runs for block in run.between(start, end) if len(block)]
            if parts:
                yield last_of_each_key(parts)


@contextmanager
def sorted_runs(rows: Iterable[list[pa.RecordBatch]], folder: Path) -> Iterator[SortedRuns]:
    """Sort each of several parts, which are in the order of time, into a run. The folder goes afterwards."""
    shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
    try:
        with disk_errors_named(folder):
            ensure_private_folder(folder)
            runs: list[_Run] = []
            count = 0
            for part in rows:
                ordered = sorted_as_columns(pa.Table.from_batches(part).select([0, 1]))
                count += len(ordered)
                runs.append(_written(ordered, folder / f"{len(runs)}.run"))
        yield SortedRuns(runs, count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written(rows: pa.Table, file: Path) -> _Run:
    block_rows = max(1, min(_BLOCK_ROWS, len(rows) * _BLOCK_BYTES // max(1, rows.nbytes)))
    with pa.OSFile(str(file), "wb") as opened, pa.ipc.new_file(opened, rows.schema) as writer:
        for at in range(0, len(rows), block_rows):
            writer.write_table(rows.slice(at, block_rows).combine_chunks())
    keys = rows.column(0)
    return _Run(file, [keys[at].as_py() for at in range(0, len(rows), block_rows)])


def _are_between(keys: pa.Array, start: bytes, end: bytes | None) -> pa.Array:
    inside = pc.greater_equal(keys, pa.scalar(start, keys.type))
    return inside if end is None else pc.and_(inside, pc.less(keys, pa.scalar(end, keys.type)))
