r"""Versioned key-value stores: the value of a key as of a time.

A version is valid from its own timestamp up to that of the next one. The latest version of a key never
expires; older ones stay for the history retention after they were replaced. So does the knowledge that a key
was deleted: it is a version, too. A write that is older than the history retention is refused.

::

    ff ff ff ff ff ff ff ff | key              -> valid from (8) | value             the latest version
    segment of valid to | 00 | key | from (8)  -> valid to (8) | 01 | value          an older version
                                               -> valid to (8) | 00                  a deletion since undone
    segment of from | 01 | key                 -> valid from (8)                     the key is deleted

All numbers are big endian. A version is in the segment in which it was replaced, so that it expires with it;
a deletion is in that of its own time, because after the retention nobody can write anything before it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from millstream.record import VersionedRecord
from millstream.state.backends.api import KeyRange
from millstream.state.backends.key_ranges import after_prefix
from millstream.state.stores.cell_store import Cell, CellStore
from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.state.stores.read_only import ReadOnlyVersionedKeyValueStore
from millstream.state.stores.segmented import SegmentedStore
from millstream.state.stores.segments import SEGMENT_BYTES, Note

K = TypeVar("K")
V = TypeVar("V")

_LATEST: Final = b"\xff" * SEGMENT_BYTES
_VERSION: Final = b"\0"
_DELETED: Final = b"\1"
_TIME: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">q?")


@dataclass(frozen=True, slots=True)
class _Version:
    """A version that was replaced; a deletion has no data."""

    valid_from: int
    valid_to: int
    data: bytes | None


class VersionedKeyValueStore(SegmentedStore[K], CellStore[K], ReadOnlyVersionedKeyValueStore[K, V]):
    """Values by key and time. As a store of cells it reads the latest versions.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> spec = stores.versioned_key_value("prices", history_retention_ms=100)
    >>> store = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
    >>> store.put("bread", 3, timestamp=10) == store.VALID_TO_UNDEFINED
    True
    >>> store.put("bread", 4, timestamp=30) == store.VALID_TO_UNDEFINED
    True
    >>> store.put("bread", 5, timestamp=20)
    30
    >>> store.delete("bread", 40)
    VersionedRecord(value=4, timestamp=30, valid_to=None)
    >>> store.get("bread") is None, store.get("bread", as_of=39).value
    (True, 4)
    >>> _ = store.put("bread", 6, 200)
    >>> store.put("bread", 2, 99) == store.NOT_PUT, store.expired_puts
    (True, 1)
    """

    VALID_TO_UNDEFINED: ClassVar[int] = -1
    """What `put` gives for a version that is the latest."""
    NOT_PUT: ClassVar[int] = -(2**63)
    """What `put` gives for a version that was too old to be kept."""

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Write a version; None deletes the key from that time on. Until when the version is valid.

        That is `VALID_TO_UNDEFINED` if it is the latest, and `NOT_PUT` if it is older than the history
        retention, and was not kept.
        """
        self._checked_time(timestamp, "the timestamp of a version")
        return self.put_versions((self._key_bytes(key),), (self._encode(value),), (timestamp,))[0]

    def put_versions(
        self, rows: Sequence[bytes], data: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> list[int]:
        """Write versions that are encoded already, one after the other; what `put` gives, for each.

        >>> from millstream import serdes, stores
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> from millstream.state.stores.factory import open_store
        >>> spec = stores.versioned_key_value("prices", history_retention_ms=100)
        >>> store = open_store(spec, MemoryBackend(), serdes.string, serdes.string)
        >>> store.put_versions([b"bread", b"bread"], [b"dear", b"cheap"], [20, 10])
        [-1, 20]
        """
        latest = self._read(rows)
        times = {row: None if found is None else _time_of(found) for row, found in latest.items()}
        newest = self._newest(times)
        valid_to: list[int] = []
        for row, value, timestamp in zip(rows, data, timestamps, strict=True):
            if not newest.accepts(timestamp):
                self.expired_puts += 1
                valid_to.append(self.NOT_PUT)
                continue
            self._observe(timestamp)
            since = newest.since(row)
            if since is not None and timestamp < since:
                valid_to.append(self._insert(row, since, timestamp, value))
                continue
            before = latest[row]
            self._replace_latest(row, before, since if before is None else None, timestamp, value)
            newest.replace(row, timestamp, is_deletion=value is None)
            latest[row] = None if value is None else _TIME.pack(timestamp) + value
            valid_to.append(self.VALID_TO_UNDEFINED)
        return valid_to

    def delete(self, key: K, timestamp: int) -> VersionedRecord[V] | None:
        """Delete a key from a time on. The version that was valid then, or None.

        None, too, if the time is older than the history retention: then nothing is deleted.
        """
        found = self.get(key, timestamp)
        return None if self.put(key, None, timestamp) == self.NOT_PUT else found

    def get(self, key: K, as_of: int | None = None) -> VersionedRecord[V] | None:
        row = self._key_bytes(key)
        latest = self.overlay.get(_LATEST + row)
        if latest is not None and (as_of is None or _time_of(latest) <= as_of):
            return VersionedRecord(self._decode(latest[_TIME.size :]), _time_of(latest))
        if as_of is None or as_of < self._horizon():
            return None
        version, _ = self._locate(row, as_of)
        return None if version is None or version.data is None else self._record(version, version.data)

    def versions(self, key: K, time_from: int, time_to: int) -> list[VersionedRecord[V]]:
        row = self._key_bytes(key)
        first = max(time_from, self._horizon())
        found = [
            self._record(version, version.data)
            for segment in self._segments(first, self._note.observed)
            for version in self._history(segment, row)
            if version.valid_from <= time_to and version.valid_to > first and version.data is not None
        ]
        latest = self.get(key)
        return found if latest is None or latest.timestamp > time_to else [*found, latest]

    def all(self) -> KeyValueIterator[K, VersionedRecord[V]]:
        rows = self.overlay.scan(_LATEST, after_prefix(_LATEST))
        return KeyValueIterator(
            (
                self.key_serde.deserialize(row[SEGMENT_BYTES:]),
                VersionedRecord(self._decode(data[_TIME.size :]), _time_of(data)),
            )
            for row, data in rows
        )

    def _replace_latest(
        self, row: bytes, latest: bytes | None, deleted: int | None, timestamp: int, data: bytes | None
    ) -> None:
        """Write a version that is as late as the latest one, or later."""
        if latest is not None and (since := _time_of(latest)) < timestamp:
            self._put_version(row, _Version(since, timestamp, latest[_TIME.size :]))
        if deleted is not None:
            self.overlay.put(self._segment(deleted) + _DELETED + row, None)
            if deleted < timestamp:
                self._put_version(row, _Version(deleted, timestamp, None))
        if data is not None:
            self.overlay.put(_LATEST + row, _TIME.pack(timestamp) + data)
            return
        if latest is not None:
            self.overlay.put(_LATEST + row, None)
        self.overlay.put(self._segment(timestamp) + _DELETED + row, _TIME.pack(timestamp))

    def _insert(self, row: bytes, newest: int, timestamp: int, data: bytes | None) -> int:
        """Write a version that is older than the latest one. Until when it is valid."""
        current, following = self._locate(row, timestamp)
        if current is None:
            valid_to = newest if following is None else following
        else:
            valid_to = current.valid_to
            if current.valid_from < timestamp:
                self._remove_version(row, current)
                self._put_version(row, _Version(current.valid_from, timestamp, current.data))
        self._put_version(row, _Version(timestamp, valid_to, data))
        return valid_to

    def _locate(self, row: bytes, time: int) -> tuple[_Version | None, int | None]:
        """The replaced version that was valid at a time; if there is none, when the next one begins."""
        for segment in self._segments(time, self._note.observed):
            start = segment + _VERSION + row
            length = len(start) + _TIME.size
            upto = start + _TIME.pack(time) + b"\0"
            for found, data in self.overlay.scan_reverse(start + _TIME.pack(0), upto):
                if len(found) == length:
                    version = _version(found, data)
                    if version.valid_to > time:
                        return version, None
                    break
            for found, _ in self.overlay.scan(upto, start + _TIME.pack(self._note.observed) + b"\0"):
                if len(found) == length:
                    return None, _TIME.unpack_from(found, len(start))[0]
        return None, None

    def _history(self, segment: bytes, row: bytes) -> Iterator[_Version]:
        start = segment + _VERSION + row
        length = len(start) + _TIME.size
        for found, data in self.overlay.scan(
            start + _TIME.pack(0), start + _TIME.pack(self._note.observed) + b"\0"
        ):
            if len(found) == length:
                yield _version(found, data)

    def _newest(self, latest: Mapping[bytes, int | None]) -> _Newest:
        """How far keys have come that have their latest versions since then; None: none, or it is deleted."""
        segments = self._segments(self._horizon(), self._note.observed)
        gone = [row for row, since in latest.items() if since is None]
        places = {segment + _DELETED + row: row for row in gone for segment in segments}
        found = self.overlay.get_many(places) if places else {}
        deletions = {places[place]: _time_of(data) for place, data in found.items() if data is not None}
        return _Newest(self._note, self.retention_ms, {**latest, **deletions}, set(deletions))

    def timelines(self, keys: Iterable[bytes]) -> dict[bytes, dict[int, bytes | None]]:
        """All versions of some keys that can be asked for, by the times from which on they are valid.

        None is a deletion. Few reads for all keys.

        >>> from millstream import serdes, stores
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> from millstream.state.stores.factory import open_store
        >>> spec = stores.versioned_key_value("prices", history_retention_ms=100)
        >>> store = open_store(spec, MemoryBackend(), serdes.string, serdes.string)
        >>> _ = store.put_versions([b"bread", b"bread", b"salt"], [b"dear", None, b"cheap"], [20, 30, 10])
        >>> store.timelines([b"bread", b"salt", b"oil"])
        {b'bread': {30: None, 20: b'dear'}, b'salt': {10: b'cheap'}, b'oil': {}}
        """
        found: dict[bytes, dict[int, bytes | None]] = {key: {} for key in keys}
        if not found:
            return found
        for row, data in self._read(found).items():
            if data is not None:
                found[row][_time_of(data)] = data[_TIME.size :]
        segments = self._segments(self._horizon(), self._note.observed)
        gone = {
            segment + _DELETED + row: row for row, line in found.items() if not line for segment in segments
        }
        for place, data in self.overlay.get_many(gone).items() if gone else ():
            if data is not None:
                found[gone[place]][_time_of(data)] = None
        for row, data in self.overlay.scan_ranges(self._history_ranges(segments, sorted(found))):
            line = found.get(row[SEGMENT_BYTES + len(_VERSION) : -_TIME.size])
            if line is not None:
                version = _version(row, data)
                line[version.valid_from] = version.data
        return found

    def _history_ranges(self, segments: Sequence[bytes], keys: Sequence[bytes]) -> list[KeyRange]:
        """Where replaced versions of keys in ascending order are: ascending, and they do not overlap."""
        last = _TIME.pack(self._note.observed) + b"\0"
        ranges: list[KeyRange] = []
        for segment in segments:
            for key in keys:
                start = segment + _VERSION + key
                end = start + last
                # A key that begins with another one may be among its times.
                if ranges and ranges[-1][1] > start + _TIME.pack(0):
                    ranges[-1] = (ranges[-1][0], max(ranges[-1][1], end))
                else:
                    ranges.append((start + _TIME.pack(0), end))
        return ranges

    # As a store of cells.

    has_versions: ClassVar[bool] = True

    @property
    def exact_types(self) -> frozenset[type]:
        """See `CellStore.exact_types`: none, so a value that can't be kept is found at its own record."""
        return frozenset()

    def deleted(self, timestamp: int) -> Cell:
        """See `CellStore.deleted`: a deletion, too, has a time."""
        return None, timestamp

    def load_frozen(self, keys: Iterable[bytes]) -> dict[bytes, Cell]:
        """See `CellStore.load_frozen`: only what becomes the latest version of its key changes the answer."""
        found = super().load_frozen(keys)
        return _LatestCells(found, self._newest({row: cell and cell[1] for row, cell in found.items()}))

    def _read(self, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
        found = self.overlay.get_many([_LATEST + key for key in keys])
        return {row[SEGMENT_BYTES:]: data for row, data in found.items()}

    def _put_version(self, row: bytes, version: _Version) -> None:
        head = _HEAD.pack(version.valid_to, version.data is not None)
        self.overlay.put(self._version_key(row, version), head + (version.data or b""))

    def _remove_version(self, row: bytes, version: _Version) -> None:
        self.overlay.put(self._version_key(row, version), None)

    def _version_key(self, row: bytes, version: _Version) -> bytes:
        return self._segment(version.valid_to) + _VERSION + row + _TIME.pack(version.valid_from)

    def _horizon(self) -> int:
        """The first time of which the history is known."""
        return max(self._note.observed - self.retention_ms, 0)

    def _record(self, version: _Version, data: bytes) -> VersionedRecord[V]:
        return VersionedRecord(self._decode(data), version.valid_from, version.valid_to)


class _Newest:
    """How far time and some keys have come, while versions are written one after the other."""

    __slots__ = ("_deleted", "_interval_ms", "_observed", "_retention_ms", "_since")

    def __init__(
        self, note: Note, retention_ms: int, since: dict[bytes, int | None], deleted: set[bytes]
    ) -> None:
        self._observed = note.observed
        self._interval_ms = note.interval_ms
        self._retention_ms = retention_ms
        self._since = since
        self._deleted = deleted

    def accepts(self, timestamp: int) -> bool:
        """Whether a version is new enough to be kept. If it is, time has come as far."""
        if timestamp < self._horizon():
            return False
        self._observed = max(self._observed, timestamp)
        return True

    def since(self, row: bytes) -> int | None:
        """When the latest version of a key began, or its deletion; None if nothing is known of it."""
        since = self._since[row]
        if since is None or row not in self._deleted:
            return since
        # A deletion expires with its segment.
        is_forgotten = since // self._interval_ms < self._horizon() // self._interval_ms
        return None if is_forgotten else since

    def replace(self, row: bytes, timestamp: int, *, is_deletion: bool) -> None:
        """A key has a new latest version."""
        self._since[row] = timestamp
        (self._deleted.add if is_deletion else self._deleted.discard)(row)

    def _horizon(self) -> int:
        return max(self._observed - self._retention_ms, 0)


class _LatestCells(dict[bytes, Cell]):
    """The latest version of some keys, as a batch changes them in memory before it is written."""

    def __init__(self, cells: Mapping[bytes, Cell], newest: _Newest) -> None:
        super().__init__(cells)
        self._newest = newest

    def __setitem__(self, row: bytes, cell: Cell) -> None:
        assert cell is not None  # a deletion has a time, too
        value, timestamp = cell
        if not self._newest.accepts(timestamp):
            return
        since = self._newest.since(row)
        if since is None or timestamp >= since:
            self._newest.replace(row, timestamp, is_deletion=value is None)
            super().__setitem__(row, None if value is None else cell)


def _time_of(data: bytes) -> int:
    time: int = _TIME.unpack_from(data)[0]
    return time


def _version(row: bytes, data: bytes) -> _Version:
    valid_to, is_value = _HEAD.unpack_from(data)
    (valid_from,) = _TIME.unpack_from(row, len(row) - _TIME.size)
    return _Version(valid_from, valid_to, data[_HEAD.size :] if is_value else None)
