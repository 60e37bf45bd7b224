"""State in memory: a dictionary, and its keys in order when somebody scans.

It is the oracle of the other backends, the store of the test driver, and a cache over the changelog: what a
process has closed it finds again when it opens the store again, so that the next epoch has only the last
segment to apply. Another process starts empty (marker None), and so does this one when the store's folder was
removed. It promises no bound: all of the state is in the process.

Opened with a path, its folder holds a ``FORMAT`` file and nothing else. A snapshot is one file of frames.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

from millstream.durable import DamagedFileError, FrameKind, create_exclusive
from millstream.durable.layer import FOLDER_MODE
from millstream.state.backends.api import Entry, KeyRange, Row, StoreSize
from millstream.state.backends.base import CheckedBackend
from millstream.state.backends.folder import FORMAT_FILE, Format, StoreFolder, check_snapshot, store_folder
from millstream.state.errors import DamagedStoreError, StoreFormatError

__all__ = ["MemoryBackend", "MemorySupplier"]

_NAME: Final = "memory"
_FORMAT: Final = 1
_FEW: Final = 64
"""Up to so many new or deleted keys are moved into place one by one; more, and the keys are sorted again."""
_SAMPLED: Final = 1_000
"""Of so many rows the size is counted; of more it is estimated from these, for it is asked every epoch."""

_SNAPSHOT_FILE: Final = "rows"
_FRAME: Final = FrameKind(b"MSMR", version=1, max_bytes=(1 << 32) - 1)
_FRAME_BYTES: Final = 1 << 20
_LENGTHS: Final = struct.Struct("<II")
_END: Final = struct.Struct("<Q?")


@dataclass(slots=True)
class _Content:
    """A store's rows; outlives the backend that is open on them."""

    rows: dict[bytes, bytes] = field(default_factory=dict)
    marker: bytes | None = None
    ordered: list[bytes] | None = field(default_factory=list)
    """The keys in order; None if they must be sorted again."""


class MemoryBackend(CheckedBackend):
    """A store in this process's memory.

    >>> with MemoryBackend() as store:
    ...     store.write([(b"a", b"1"), (b"b", None)], marker=b"v1")
    ...     store.get_many([b"a", b"b"]), store.marker(), list(store.scan())
    ([b'1', None], b'v1', [(b'a', b'1')])
    """

    def __init__(self, folder: StoreFolder | None = None, content: _Content | None = None) -> None:
        super().__init__(folder or StoreFolder(None, Format(_NAME, _FORMAT, "store", "")))
        self._content = content or _Content()

    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return list(map(self._content.rows.get, keys))

    def _write(self, entries: list[Entry], marker: bytes, drop: KeyRange | None) -> None:
        content = self._content
        if drop is not None:
            ordered = self._ordered()
            gone = slice(bisect_left(ordered, drop[0]), bisect_left(ordered, drop[1]))
            for key in ordered[gone]:
                del content.rows[key]
            del ordered[gone]
        rows = content.rows
        deleted = [key for key, value in entries if value is None]
        put: Any = entries if not deleted else [entry for entry in entries if entry[1] is not None]
        if content.ordered is not None and len(entries) <= _FEW:
            _reorder(content.ordered, rows, deleted, put)
        for key in deleted:
            rows.pop(key, None)
        before = len(rows)
        rows.update(put)
        if len(entries) > _FEW and (deleted or not _is_in_order(content.ordered, put, len(rows) - before)):
            content.ordered = None
        content.marker = marker

    def _marker(self) -> bytes | None:
        return self._content.marker

    def _page(self, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        keys = self._ordered()
        first = bisect_left(keys, start)
        last = len(keys) if end is None else bisect_left(keys, end)
        return self._rows(keys[first : min(last, first + limit)])

    def _page_reverse(self, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        keys = self._ordered()
        first = bisect_left(keys, start)
        last = len(keys) if end is None else bisect_left(keys, end)
        return self._rows(keys[max(first, last - limit) : last][::-1])

    def _size(self) -> StoreSize:
        rows = self._content.rows
        sampled = sum(len(key) + len(value) for key, value in islice(rows.items(), _SAMPLED))
        return StoreSize(len(rows), sampled * len(rows) // min(len(rows) or 1, _SAMPLED))

    def _copy_to(self, folder: Path) -> None:
        folder.mkdir(FOLDER_MODE)
        create_exclusive(folder / _SNAPSHOT_FILE, _frames(self._content, self._ordered()))

    def _sync(self) -> None:
        """Nothing survives anyway."""

    def _close(self) -> None:
        self._content = _Content()  # what the supplier has kept, it still has

    def _ordered(self) -> list[bytes]:
        if self._content.ordered is None:
            # Python's sort takes runs that are in order as they are, and batches come in order.
            self._content.ordered = sorted(self._content.rows)
        return self._content.ordered

    def _rows(self, keys: list[bytes]) -> list[Row]:
        rows = self._content.rows
        return [(key, rows[key]) for key in keys]


_kept: dict[str, tuple[Path, _Content]] = {}
"""What this process holds, by the id in the store's FORMAT file."""


@dataclass(frozen=True, slots=True)
class MemorySupplier:
    """Opens stores in memory."""

    name: ClassVar[str] = _NAME
    persistent: ClassVar[bool] = False

    def open(self, path: Path, *, segment_bytes: int = 0) -> MemoryBackend:
        """Open the store; what this process knew of it is there again."""
        del segment_bytes  # a range is dropped quickly anyway
        folder = store_folder(path, _NAME, _FORMAT)
        _forget_removed()
        _, content = _kept.setdefault(folder.format.id, (path, _Content()))
        return MemoryBackend(folder, content)

    def restore(self, snapshot: Path, path: Path, *, segment_bytes: int = 0) -> MemoryBackend:
        """Make a store from a snapshot."""
        del segment_bytes
        check_snapshot(snapshot, _NAME, _FORMAT)
        if path.exists() and any(path.iterdir()):
            raise StoreFormatError(
                f"{path} is not empty, so nothing is restored there. Likely cause: the store exists already. "
                "Remedy: remove it first."
            )
        content = _read_snapshot(snapshot / _SNAPSHOT_FILE)
        folder = store_folder(path, _NAME, _FORMAT)
        _kept[folder.format.id] = (path, content)
        return MemoryBackend(folder, content)


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


def _frames(content: _Content, keys: list[bytes]) -> Iterator[bytes]:
    batch: list[bytes] = []
    held = 0
    for key in keys:
        value = content.rows[key]
        batch += (_LENGTHS.pack(len(key), len(value)), key, value)
        held += len(key) + len(value)
        if held >= _FRAME_BYTES:
            yield _FRAME.wrap(b"".join(batch))
            batch, held = [], 0
    yield _FRAME.wrap(b"".join(batch))
    yield _FRAME.wrap(_END.pack(len(keys), content.marker is not None) + (content.marker or b""))


def _read_snapshot(file: Path) -> _Content:
    try:
        return _parse(file.read_bytes(), str(file))
    except (OSError, DamagedFileError, struct.error) as error:
        raise DamagedStoreError(
            f"The snapshot {file} cannot be read ({error}). Likely cause: a fault of the disk, or a copy "
            "that was not finished. Remedy: use an older snapshot, or restore from the changelog."
        ) from error


def _parse(data: bytes, where: str) -> _Content:
    """Read frames of rows, the last of which is the end: how many rows, and the marker."""
    content = _Content(ordered=None)
    position = 0
    payload = b""
    while position < len(data):
        _add_rows(content.rows, payload)
        payload, position = _FRAME.unwrap_at(data, position, where)
    count, marked = _END.unpack_from(payload)
    if count != len(content.rows):
        raise DamagedFileError(f"{where} should have {count} rows and has {len(content.rows)}")
    content.marker = payload[_END.size :] if marked else None
    return content


def _add_rows(rows: dict[bytes, bytes], payload: bytes) -> None:
    position = 0
    while position < len(payload):
        key_length, value_length = _LENGTHS.unpack_from(payload, position)
        key_at = position + _LENGTHS.size
        value_at = key_at + key_length
        position = value_at + value_length
        rows[payload[key_at:value_at]] = payload[value_at:position]
