"""Digests of files, computed once.

A snapshot of RocksDB shares its sorted files with the store by hard links, and they never change. So a file
that is still the same (same store, name, inode, size and time of its last change) has the digest it had, and
a snapshot reads only what is new. This cache is kept beside the state and may be lost at any time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec

from millstream.durable import temporary_name
from millstream.state.snapshots.manifest import StoredFile


class _Known(msgspec.Struct, frozen=True, array_like=True):
    inode: int
    size: int
    changed_ns: int
    digest: str


class _Cache(msgspec.Struct):
    store_id: str
    files: dict[str, _Known]


class Digests:
    """The digests of one store's shared files."""

    def __init__(self, cache: Path, store_id: str) -> None:
        self._path = cache
        self._store_id = store_id
        self._known = self._read()
        self._seen: dict[str, _Known] = {}

    def of(self, file: Path) -> StoredFile:
        """The name, digest and size of a file."""
        status = file.stat()
        known = self._known.get(file.name)
        is_shared = status.st_nlink > 1
        is_same = known is not None and (known.inode, known.size, known.changed_ns) == (
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
        )
        if known is None or not is_shared or not is_same:
            known = _Known(status.st_ino, status.st_size, status.st_mtime_ns, _digest(file))
        if is_shared:
            self._seen[file.name] = known
        return StoredFile(file.name, known.digest, known.size)

    def keep(self) -> None:
        """Remember the digests of the files that were asked for. Nobody needs it to be durable."""
        temporary = temporary_name(self._path)
        temporary.write_bytes(msgspec.json.encode(_Cache(self._store_id, self._seen)))
        temporary.replace(self._path)

    def _read(self) -> dict[str, _Known]:
        with suppress(OSError, msgspec.DecodeError):
            cache = msgspec.json.decode(self._path.read_bytes(), type=_Cache)
            if cache.store_id == self._store_id:
                return cache.files
        return {}


def copied(chunks: Iterable[bytes], write: Callable[[bytes], object], most: int) -> tuple[str, int]:
    """Pass chunks on, up to a size; return the digest of what passed, and its size.

    The digest is computed beside the writing: each takes about as long as the other.
    """
    digest, size = hashlib.sha256(), 0
    with ThreadPoolExecutor(1) as beside:
        hashed = beside.submit(digest.update, b"")
        for chunk in chunks:
            size += len(chunk)
            if size > most:
                break
            hashed.result()
            hashed = beside.submit(digest.update, chunk)
            write(chunk)
    return digest.hexdigest(), size


def _digest(file: Path) -> str:
    """SHA-256: where the processor has instructions for it, it is as fast as a disk."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
