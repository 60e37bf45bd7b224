"""What window and session stores have in common: rows by key and time, and how they are found."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain
from typing import Any, ClassVar, Final, TypeVar

from millstream.serdes import Serde
from millstream.state.specs import StoreBuilder
from millstream.state.stores.cell_store import CellStore
from millstream.state.stores.overlay import Entry, Overlay
from millstream.state.stores.segmented import SegmentedStore
from millstream.state.stores.segments import UNKNOWN_TIME, segment_prefix
from millstream.state.stores.window_key_schema import (
    KeyBounds,
    Rows,
    RowsByKey,
    RowsByTime,
    Scan,
    WindowedRow,
)
from millstream.state.stores.written_columns import WrittenColumns

__all__ = ["Direction", "WindowedCellStore", "WindowedStore"]

K = TypeVar("K")

_TIME: Final = struct.Struct(">q")


class Direction(Enum):
    """In which order results come."""

    FORWARD = 1
    BACKWARD = -1


class WindowedStore(SegmentedStore[K]):
    """A store of rows that belong to a key and a window or session."""

    numbers: ClassVar[struct.Struct]
    """The two numbers of a row: see `window_key_schema`."""

    def __init__(self, spec: StoreBuilder, overlay: Overlay, key: Serde[K], value: Serde[Any]) -> None:
        super().__init__(spec, overlay, key, value)
        self._rows: Rows = RowsByTime(self.numbers) if spec.time_ordered else RowsByKey(self.numbers)

    def _put_row(self, key: bytes, numbers: tuple[int, int], data: bytes | None) -> None:
        """Write a row of a time that was observed; one that has expired is only counted."""
        if numbers[0] <= self._expired_until():
            self.expired_puts += 1
        else:
            for entry in self._rows.entries(self._segment(numbers[0]), key, numbers, data):
                self.overlay.put(*entry)

    def _row(self, key: K, numbers: tuple[int, int]) -> bytes | None:
        time = numbers[0]
        if not self._expired_until() < time <= self._note.observed:
            return None
        return self.overlay.get(self._rows.row_key(self._segment(time), self._key_bytes(key), numbers))

    def _rows_of_key(
        self, direction: Direction, key: K, time_from: int, time_to: int
    ) -> Iterator[WindowedRow]:
        first, last = self._visible(time_from, time_to)
        scan, data = self._scan(direction), self._key_bytes(key)
        return chain.from_iterable(
            [
                self._rows.of_key(self.overlay, scan, segment, data, first, last)
                for segment in self._segments(first, last)[:: direction.value]
            ]
        )

    def _rows_of_each(self, keys: Iterable[bytes], time_from: int, time_to: int) -> Iterator[WindowedRow]:
        """The rows of some keys between two times, those of each key by time, with few reads for all."""
        first, last = self._visible(time_from, time_to)
        return self._rows.of_each(self.overlay, self._segments(first, last), keys, first, last)

    def _rows_of_keys(
        self, direction: Direction, keys: KeyBounds, time_from: int, time_to: int
    ) -> Iterator[WindowedRow]:
        first, last = self._visible(time_from, time_to)
        scan = self._scan(direction)
        # All segments are asked now: an iterator sees the store as it was when it was made.
        return chain.from_iterable(
            [
                self._rows.of_keys(scan, segment, keys, first, last)
                for segment in self._segments(first, last)[:: direction.value]
            ]
        )

    def _scan(self, direction: Direction) -> Scan:
        return self.overlay.scan if direction is Direction.FORWARD else self.overlay.scan_reverse

    def _visible(self, time_from: int, time_to: int) -> tuple[int, int]:
        """The part of a stretch of time that can have rows, both ends inclusive."""
        return max(time_from, self._expired_until() + 1), min(time_to, self._note.observed)

    def _bounds(self, key_from: K | None, key_to: K | None) -> KeyBounds:
        return (
            None if key_from is None else self._key_bytes(key_from),
            None if key_to is None else self._key_bytes(key_to),
        )


class WindowedCellStore(WindowedStore[K], CellStore[K]):
    """A store of cells by key and window. A cell that has expired is not there, and is not written."""

    window_bytes: ClassVar[int]
    """How many bytes at the end of a cell's key tell its window, the time of its row first."""

    def load_encoded(self, keys: list[bytes]) -> list[bytes | None]:
        """See `CellStore.load_encoded`."""
        return list(self._read(keys).values())

    def save_columns(self, written: WrittenColumns) -> None:
        """See `CellStore.save_columns`."""
        self._write(written.entries())

    def _place(self, cell_key: bytes) -> tuple[bytes, tuple[int, int]]:
        """The bytes of the key alone, and the two numbers of the row."""
        raise NotImplementedError

    def gone_until(self, observed: int) -> int:
        """Cells of this time and before are not there any more, when a time has been observed."""
        return max(observed - self.retention_ms, UNKNOWN_TIME)

    def _read(self, keys: Iterable[bytes]) -> Mapping[bytes, bytes | None]:
        return self._by_cell(keys, self.gone_until(self._note.observed), super()._read)

    def _read_committed(self, keys: Iterable[bytes]) -> Mapping[bytes, bytes | None]:
        return self._by_cell(keys, self.gone_until(self._note_before.observed), super()._read_committed)

    def _by_cell(
        self,
        keys: Iterable[bytes],
        expired: int,
        read: Callable[[Iterable[bytes]], Mapping[bytes, bytes | None]],
    ) -> dict[bytes, bytes | None]:
        found: dict[bytes, bytes | None] = dict.fromkeys(keys)
        row_of, time_of = self._row_of(), self._time_of
        cells = {
            row_of(time, cell_key): cell_key for cell_key in found if (time := time_of(cell_key)) > expired
        }
        found.update((cells[row], data) for row, data in read(cells).items())
        return found

    def _write(self, cells: Iterable[Entry]) -> None:
        entries: list[Entry] = []
        row_of, time_of = self._row_of(), self._time_of
        by_key = isinstance(self._rows, RowsByKey)
        observed = self._note.observed
        gone = self.gone_until(observed)
        for cell_key, data in cells:
            time = self._checked_time(time_of(cell_key), "the time of a window")
            if time > observed:
                observed = time
                gone = self.gone_until(observed)
            if time <= gone:
                self.expired_puts += 1
            elif by_key:
                entries.append((row_of(time, cell_key), data))
            else:
                key, numbers = self._place(cell_key)
                entries += self._rows.entries(self._segment(time), key, numbers, data)
        self._observe(observed)
        self.overlay.put_many(entries)

    def _time_of(self, cell_key: bytes) -> int:
        """The time of a cell's row."""
        time: int = _TIME.unpack_from(cell_key, len(cell_key) - self.window_bytes)[0]
        return time

    def _row_of(self) -> Callable[[int, bytes], bytes]:
        """A function from the time and the key of a cell to the key of its row."""
        if not isinstance(self._rows, RowsByKey):
            return lambda time, cell_key: self._rows.row_key(self._segment(time), *self._place(cell_key))
        # Rows by key: the segment, the key of the cell, and of a window, that it is the first of its start.
        interval, rest = self._note.interval_ms, bytes(self.numbers.size - self.window_bytes)
        known: dict[int, bytes] = {}

        def row_of(time: int, cell_key: bytes) -> bytes:
            number = time // interval
            segment = known.get(number)
            if segment is None:
                segment = known[number] = segment_prefix(number)
            return segment + cell_key + rest

        return row_of
