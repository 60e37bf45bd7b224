r"""Rows that are kept by time, and expire by the segment.

A store whose rows belong to a time (windows, sessions, old versions) cuts time into **segments** of one
length, and puts the number of the segment before every key::

    segment (8, big endian) | the store's own key

So all rows of a segment lie together, and a segment that is past the store's retention is dropped as one
range of keys, however many rows it has.

How far time has come is itself state, and what has expired is a function of it. Both are in the **note**,
the row with the empty key, which is the first changelog row of every epoch that moves it. Whoever applies
changes, the task itself, a restore, a standby or a replica, reads the note first and drops what it says
(:func:`apply_changes`). So no tombstone is ever written for an expired row, and a replay ends with the same
bytes as the store, at every version.

The length of the segments is in the note as well, and stays what it was when the store was made: another
retention needs no other layout.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from millstream.state.backends.api import Backend, KeyRange
from millstream.state.errors import DamagedStoreError
from millstream.state.stores.overlay import Entry
from millstream.state.stores.written_columns import WrittenColumns

SEGMENT_BYTES: Final = 8
NOTE_KEY: Final = b""
UNKNOWN_TIME: Final = -1
HIGHEST_NUMBER: Final = 0x7FFFFFFF
"""The last number by which equal rows are told apart; then they begin anew."""

_PREFIX: Final = struct.Struct(">Q")
_NOTE: Final = struct.Struct(">BqqqI")
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Note:
    """What a store by segments knows of itself."""

    interval_ms: int
    """How long a segment is."""
    observed: int = UNKNOWN_TIME
    """The latest time that was written."""
    first_live: int = 0
    """The number of the first segment that has not been dropped."""
    sequence: int = 0
    """How many rows were told from their equals by a number (see `retain_duplicates`)."""

    def encoded(self) -> bytes:
        """The note as it is stored.

        >>> Note(interval_ms=60_000, observed=5).encoded().hex()
        '01000000000000ea600000000000000005000000000000000000000000'
        """
        return _NOTE.pack(_FORMAT, self.interval_ms, self.observed, self.first_live, self.sequence)


def decode_note(data: bytes) -> Note:
    """Undo `Note.encoded`."""
    try:
        version, *fields = _NOTE.unpack(data)
    except struct.error:
        version, fields = 0, []
    if version != _FORMAT:
        raise DamagedStoreError(
            f"The first row of a store by segments is not a note of format {_FORMAT}: {data[:32]!r}. Likely "
            "cause: the store was written by another version of Millstream, or is damaged. Remedy: remove "
            "the folder; the store is then restored from its changelog."
        )
    return Note(*fields)


def segment_prefix(number: int) -> bytes:
    """The first bytes of all keys of a segment.

    >>> segment_prefix(258).hex()
    '0000000000000102'
    """
    return _PREFIX.pack(number)


def with_note(note: Note, rows: Sequence[Entry]) -> Sequence[Entry]:
    """Sorted changes: the note, and those rows whose segments are not gone."""
    if isinstance(rows, WrittenColumns):
        return rows.behind(segment_prefix(note.first_live), (NOTE_KEY, note.encoded()))
    cut = bisect_left(rows, segment_prefix(note.first_live), key=itemgetter(0))
    return [(NOTE_KEY, note.encoded()), *rows[cut:]]


def dropped_by(note: bytes) -> KeyRange | None:
    """The keys that are gone, according to a note: a changelog need not keep them, either."""
    first_live = decode_note(note).first_live
    # From the first key on: a restore that begins anew may hold rows from before its first note.
    return (b"\0", segment_prefix(first_live)) if first_live else None


def apply_changes(
    backend: Backend,
    entries: Sequence[Entry],
    marker: bytes,
    *,
    segmented: bool,
    bulk: bool = False,
    between: bytes | None = None,
) -> None:
    """Write sorted changes and a marker to a backend, and drop the segments that have expired with them.

    The changes may be those of one epoch, or of any number of epochs folded into one. With ``between`` they
    need not be written all at once (:meth:`Backend.write`).
    """
    drop = None
    if segmented and entries and entries[0][0] == NOTE_KEY and entries[0][1] is not None:
        note = decode_note(entries[0][1])
        drop = _newly_expired(backend, note)
        entries = with_note(note, entries[1:])
    (backend.bulk_load if bulk else backend.write)(entries, marker=marker, drop=drop, between=between)


def _newly_expired(backend: Backend, note: Note) -> KeyRange | None:
    """The keys that have to go; None on most writes, so that these stay as cheap as they are."""
    data = backend.get_many([NOTE_KEY])[0]
    before = 0 if data is None else decode_note(data).first_live
    return dropped_by(note.encoded()) if before < note.first_live else None
