"""State in memory: a dictionary, and its keys in order when somebody scans.

It is the oracle of the other backends, the store of the test driver, and a cache over the changelog: what a
process has closed it finds again when it opens the store again, so that the next epoch has only the writes
of the last to apply. Another process starts empty (marker None), and so does this one when its folder was
removed. It promises no bound: all of the state is in the process.

What a process has closed it finds again also after an error. So a write that an exception ends half-way (an
interrupt, no memory) leaves a store that is damaged, and says so, rather than one between two versions.

The rows of each segment have a dictionary of their own, so that a segment is dropped by letting go of it. To
free a million rows takes a while, even so: that is done a little at a time, by the writes that follow.

Opened with a path, its folder holds a ``FORMAT`` file and nothing else. A snapshot is one file of frames.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Final

from millstream.durable import DamagedFileError, FrameKind, create_exclusive
from millstream.durable.layer import FOLDER_MODE
from millstream.state.backends.base import Backend, Entry, KeyRange, Row, StoreSize
from millstream.state.backends.folder import (
    FORMAT_FILE,
    Format,
    StoreFolder,
    check_snapshot,
    refuse_if_not_empty,
    store_folder,
)
from millstream.state.backends.segment_parts import UNNAMED, grouped, is_dropped_whole, ranges_of_parts
from millstream.state.errors import DamagedStoreError

_NAME: Final = "memory"
_FORMAT: Final = 1
_FEW: Final = 64
"""Up to so many new or deleted keys are moved into place one by one; more, and the keys are sorted again."""
_FREED: Final = 10_000
"""So many dropped rows, at least, are freed by each write: a few milliseconds."""
_SAMPLED: Final = 1_000
"""Of so many rows the size is counted; of more it is estimated from these, for it is asked every epoch."""

_SNAPSHOT_FILE: Final = "rows"
_FRAME: Final = FrameKind(b"MSMR", version=1, max_bytes=(1 << 32) - 1)
_FRAME_BYTES: Final = 1 << 20
_LENGTHS: Final = struct.Struct("<II")
_END: Final = struct.Struct("<Q?")


@dataclass(slots=True)
class _Part:
    """Rows, and their keys in order when somebody asks: all of a store, or those of one segment."""

    rows: dict[bytes, bytes] = field(default_factory=dict)
    ordered: list[bytes] | None = field(default_factory=list)
    """None: they must be sorted again."""

    def apply(self, entries: list[Entry]) -> None:
        rows = self.rows
        deleted = [key for key, value in entries if value is None]
        put: Any = entries if not deleted else [entry for entry in entries if entry[1] is not None]
        if self.ordered is not None and len(entries) <= _FEW:
            _reorder(self.ordered, rows, deleted, put)
        for key in deleted:
            rows.pop(key, None)
        before = len(rows)
        rows.update(put)
        if len(entries) > _FEW and (deleted or not _is_in_order(self.ordered, put, len(rows) - before)):
            self.ordered = None

    def page(self, start: bytes, end: bytes | None, limit: int, *, reverse: bool) -> list[Row]:
        keys, rows = self.keys(), self.rows
        first = bisect_left(keys, start)
        last = len(keys) if end is None else bisect_left(keys, end)
        found = (
            keys[max(first, last - limit) : last][::-1] if reverse else keys[first : min(last, first + limit)]
        )
        return [(key, rows[key]) for key in found]

    def drop(self, start: bytes, end: bytes) -> None:
        keys = self.keys()
        gone = slice(bisect_left(keys, start), bisect_left(keys, end))
        for key in keys[gone]:
            del self.rows[key]
        del keys[gone]

    def keys(self) -> list[bytes]:
        if self.ordered is None:
            # Python's sort takes runs that are in order as they are, and batches come in order.
            self.ordered = sorted(self.rows)
        return self.ordered

    def free(self, rows: int) -> bool:
        """Free the memory of so many rows of a part that is not needed any more; whether that was all."""
        if self.ordered:
            del self.ordered[-rows:]
        for _ in range(min(rows, len(self.rows))):
            self.rows.popitem()
        return not self.rows and not self.ordered


@dataclass(slots=True)
class _Content:
    """A store's rows; outlives the backend that is open on them."""

    parts: dict[bytes, _Part] = field(default_factory=lambda: {UNNAMED: _Part()})
    marker: bytes | None = None
    is_torn: bool = False
    """Whether a write has begun and not ended."""
    dropped: list[_Part] = field(default_factory=list)
    """Segments that have expired, and whose memory is not free yet."""

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self.parts.values())

    def apply(self, entries: list[Entry], segment_bytes: int) -> None:
        keys = [key for key, _ in entries] if segment_bytes else []
        for name, group in grouped(entries, keys, segment_bytes):
            self.parts.setdefault(name, _Part()).apply(group)

    def drop(self, dropped: KeyRange) -> None:
        for name in list(self.parts):
            if is_dropped_whole(name, dropped):
                self.dropped.append(self.parts.pop(name))
            else:
                self.parts[name].drop(*dropped)

    def free(self, rows: int) -> None:
        """Free the memory of so many dropped rows, of one segment or of several."""
        while self.dropped and rows > 0:
            held = len(self.dropped[-1].rows)
            if not self.dropped[-1].free(rows):
                return
            self.dropped.pop()
            rows -= held


class MemoryBackend(Backend):
    """A store in this process's memory.

    >>> with MemoryBackend() as store:
    ...     store.write([(b"a", b"1"), (b"b", None)], marker=b"v1")
    ...     store.get_many([b"a", b"b"]), store.marker(), list(store.scan())
    ([b'1', None], b'v1', [(b'a', b'1')])
    """

    def __init__(
        self, folder: StoreFolder | None = None, content: _Content | None = None, segment_bytes: int = 0
    ) -> None:
        super().__init__(folder or StoreFolder(None, Format(_NAME, _FORMAT, "store", "")))
        self._content = _Content() if content is None else content
        # A tool that does not know what it opens need not say it.
        self._segment_bytes = segment_bytes or max(map(len, self._content.parts))

    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        parts = self._content.parts
        values: list[bytes | None] = []
        for name, group in grouped(keys, keys, self._segment_bytes):
            values += map(parts[name].rows.get, group) if name in parts else [None] * len(group)
        return values

    def _write(self, entries: list[Entry], marker: bytes, drop: KeyRange | None) -> None:
        content = self._content
        content.is_torn = True
        content.free(max(_FREED, 2 * len(entries)))  # faster than rows can come
        if drop is not None:
            content.drop(drop)
        content.apply(entries, self._segment_bytes)
        content.marker = marker
        content.is_torn = False

    def _marker(self) -> bytes | None:
        if self._content.is_torn:
            raise DamagedStoreError(
                f"The store {self._folder} is damaged: a write to it ended half-way. Likely cause: the "
                "process was interrupted, or out of memory. Remedy: remove the folder; the store is then "
                "restored from its changelog."
            )
        return self._content.marker

    def _page(self, start: bytes, end: bytes | None, limit: int, *, reverse: bool) -> list[Row]:
        rows: list[Row] = []
        for name, first, behind in ranges_of_parts(self._content.parts, start, end, reverse=reverse):
            rows += self._content.parts[name].page(first, behind, limit - len(rows), reverse=reverse)
            if len(rows) == limit:
                break
        return rows

    def _size(self) -> StoreSize:
        count = len(self._content)
        each = (part.rows.items() for part in self._content.parts.values())
        sampled = sum(len(key) + len(value) for key, value in islice(chain.from_iterable(each), _SAMPLED))
        return StoreSize(count, sampled * count // min(count or 1, _SAMPLED))

    def _copy_to(self, folder: Path) -> None:
        folder.mkdir(FOLDER_MODE)
        create_exclusive(folder / _SNAPSHOT_FILE, _frames(self._content, self.scan()))

    def _sync(self) -> None:
        """Nothing survives anyway."""

    def _close(self) -> None:
        self._content = _Content()  # what the supplier has kept, it still has


_kept: dict[str, tuple[Path, _Content]] = {}
"""What this process holds, by the id in the store's FORMAT file."""


@dataclass(frozen=True, slots=True)
class MemorySupplier:
    """Opens stores in memory."""

    name: ClassVar[str] = _NAME
    persistent: ClassVar[bool] = False

    def open(self, path: Path, *, segment_bytes: int = 0) -> MemoryBackend:
        """Open the store; what this process knew of it is there again."""
        folder = store_folder(path, _NAME, _FORMAT)
        _forget_removed()
        _, content = _kept.setdefault(folder.format.id, (path, _Content()))
        return MemoryBackend(folder, content, segment_bytes)

    def open_read_only(self, path: Path, *, segment_bytes: int = 0) -> MemoryBackend:
        """Open the store: every process has its own."""
        return self.open(path, segment_bytes=segment_bytes)

    def restore(self, snapshot: Path, path: Path, *, segment_bytes: int = 0) -> MemoryBackend:
        """Make a store from a snapshot."""
        check_snapshot(snapshot, _NAME, _FORMAT)
        refuse_if_not_empty(path)
        content = _read_snapshot(snapshot / _SNAPSHOT_FILE, segment_bytes)
        folder = store_folder(path, _NAME, _FORMAT)
        _kept[folder.format.id] = (path, content)
        return MemoryBackend(folder, content, segment_bytes)


def _reorder(ordered: list[bytes], rows: dict[bytes, bytes], deleted: list[bytes], put: list[Row]) -> None:
    """Move the few keys of a small batch into place, or out."""
    for key in deleted:
        if key in rows:
            del ordered[bisect_left(ordered, key)]
    for key, _ in put:
        if key not in rows:
            insort(ordered, key)


def _is_in_order(ordered: list[bytes] | None, put: list[Row], added: int) -> bool:
    """Tell whether the keys are in order after a large batch: it added none, or all behind the others.

    The latter is how a restore goes.
    """
    if ordered is None or not added:
        return True
    if added < len(put) or (ordered and put[0][0] < ordered[-1]):
        return False
    ordered.extend([key for key, _ in put])
    return True


def _forget_removed() -> None:
    for identity, (path, _) in list(_kept.items()):
        if not (path / FORMAT_FILE).exists():
            del _kept[identity]


def _frames(content: _Content, rows: Iterable[Row]) -> Iterator[bytes]:
    batch: list[bytes] = []
    held = 0
    for key, value in rows:
        batch += (_LENGTHS.pack(len(key), len(value)), key, value)
        held += len(key) + len(value)
        if held >= _FRAME_BYTES:
            yield _FRAME.wrap(b"".join(batch))
            batch, held = [], 0
    yield _FRAME.wrap(b"".join(batch))
    yield _FRAME.wrap(_END.pack(len(content), content.marker is not None) + (content.marker or b""))


def _read_snapshot(file: Path, segment_bytes: int) -> _Content:
    try:
        return _parse(file.read_bytes(), str(file), segment_bytes)
    except (OSError, DamagedFileError, struct.error) as error:
        raise DamagedStoreError(
            f"The snapshot {file} cannot be read ({error}). Likely cause: a fault of the disk, or a copy "
            "that was not finished. Remedy: use an older snapshot, or restore from the changelog."
        ) from error


def _parse(data: bytes, where: str, segment_bytes: int) -> _Content:
    """Read frames of rows, the last of which is the end: how many rows, and the marker."""
    content = _Content()
    position = 0
    payload = b""
    while position < len(data):
        content.apply(_rows_in(payload), segment_bytes)
        payload, position = _FRAME.unwrap_at(data, position, where)
    count, marked = _END.unpack_from(payload)
    if count != len(content):
        raise DamagedFileError(f"{where} should have {count} rows and has {len(content)}")
    content.marker = payload[_END.size :] if marked else None
    return content


def _rows_in(payload: bytes) -> list[Entry]:
    rows: list[Entry] = []
    position = 0
    while position < len(payload):
        key_length, value_length = _LENGTHS.unpack_from(payload, position)
        key_at = position + _LENGTHS.size
        value_at = key_at + key_length
        position = value_at + value_length
        rows.append((payload[key_at:value_at], payload[value_at:position]))
    return rows
