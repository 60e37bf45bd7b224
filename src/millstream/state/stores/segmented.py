"""What stores by segments have in common: how far time has come, what is still to be seen, what has expired.

A row is visible as long as its time is later than the latest time that was written less the retention; that
rule is exact, whatever is still on disk. A write that would be invisible at once is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from millstream.errors import StoreError
from millstream.serdes import Serde
from millstream.state.specs import StoreBuilder
from millstream.state.stores.overlay import Entry, Overlay
from millstream.state.stores.segments import (
    HIGHEST_NUMBER,
    NOTE_KEY,
    UNKNOWN_TIME,
    Note,
    decode_note,
    segment_prefix,
    with_note,
)
from millstream.state.stores.store import StateStore

K = TypeVar("K")


class SegmentedStore(StateStore[K]):
    """A store whose rows belong to a time and expire."""

    def __init__(self, spec: StoreBuilder, overlay: Overlay, key: Serde[K], value: Serde[Any]) -> None:
        super().__init__(spec, overlay, key, value)
        self.retention_ms = spec.retention_ms or 0
        self.expired_puts = 0
        """How many writes came too late to be kept."""
        self._interval_ms = spec.segment_ms
        self._note = self._note_before = self._committed_note()

    @property
    def observed_time(self) -> int:
        """The latest time that was written; -1 before the first."""
        return self._note.observed

    def advance(self, time: int) -> None:
        """A time was written of which nothing is left to be kept."""
        self._observe(time)

    def _observe(self, time: int) -> None:
        if time > self._note.observed:
            self._note = replace(self._note, observed=time)

    def _next_number(self) -> int:
        """A number that tells a row from others with the same key and time."""
        number = (self._note.sequence + 1) & HIGHEST_NUMBER
        self._note = replace(self._note, sequence=number)
        return number

    def _expired_until(self) -> int:
        """Rows of this time and before are not to be seen any more."""
        return max(self._note.observed - self.retention_ms, UNKNOWN_TIME)

    def _segment(self, time: int) -> bytes:
        return segment_prefix(time // self._note.interval_ms)

    def _segments(self, first: int, last: int) -> list[bytes]:
        """The segments of all rows between two times, both inclusive, ascending."""
        if first > last:
            return []
        interval = self._note.interval_ms
        return [segment_prefix(number) for number in range(first // interval, last // interval + 1)]

    def _checked_time(self, time: int, what: str) -> int:
        if time < 0:
            raise StoreError(f"store {self.name!r}: {what} is {time}, but time begins at 0")
        return time

    def _changes(self) -> Sequence[Entry]:
        entries = self.overlay.sorted_entries()
        expired = (self._note.observed - self.retention_ms) // self._note.interval_ms
        if expired > self._note.first_live:
            self._note = replace(self._note, first_live=expired)
        if self._note == self._note_before:
            return entries
        return with_note(self._note, entries)

    def _take(self, entries: Sequence[Entry]) -> None:
        if entries and entries[0][0] == NOTE_KEY and entries[0][1] is not None:
            self._note = decode_note(entries[0][1])
            entries = entries[1:]
        super()._take(entries)

    def _committed(self) -> None:
        super()._committed()
        self._note_before = self._note

    def _forget(self) -> None:
        super()._forget()
        self._note = self._note_before = self._committed_note()

    def _committed_note(self) -> Note:
        data = self.overlay.committed.get_many((NOTE_KEY,))[0]
        return Note(self._interval_ms) if data is None else decode_note(data)
