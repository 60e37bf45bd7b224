"""State in LMDB: a B+ tree in one memory-mapped file. Opens in a fraction of a millisecond.

Three named tables: ``data`` and ``nodes`` for the rows (:mod:`.long_keys`), ``meta`` for the marker. A
transaction covers all three, so a write is atomic with its marker.

Nothing is synced by :meth:`write`: a transaction is handed to the operating system, which still has it after
a ``kill -9``; the changelog is what survives a power cut. Without syncs a power cut may also tear the file,
so a store that was not synced since the last boot must be removed
(:meth:`millstream.state.directory.TaskDirectory.lost_in_a_power_cut`). The file is written by system calls,
not through the map: a full disk is then an error and not the end of the process.

The map (what LMDB may address, not what it takes on disk) starts small, because a process may be limited in
address space, and grows by doubling when a write does not fit. Transactions are short and no cursor outlives
one, so that it can grow, and so that freed pages are used again. Other processes may have the store open:
they learn of the growth at their next transaction.

LMDB keeps no checksums: damage inside a page can go unnoticed by it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import lmdb

from millstream.durable.layer import FILE_MODE, FOLDER_MODE
from millstream.errors import StoreError
from millstream.state.backends.api import Entry, Row, StoreSize
from millstream.state.backends.base import CheckedBackend
from millstream.state.backends.folder import StoreFolder, restored_folder, store_folder
from millstream.state.backends.long_keys import LongKeyTree, short_key_bytes
from millstream.state.backends.zero_keys import lift, lift_entries, lift_keys, lower_page
from millstream.state.errors import DamagedStoreError, StoreDiskFullError, StoreInUseError

__all__ = ["LmdbBackend", "LmdbSupplier"]

T = TypeVar("T")

_NAME: Final = "lmdb"
_FORMAT: Final = 1
_MAX_KEY_BYTES: Final = 511
"""Part of the format: what LMDB takes where it was not compiled otherwise."""
_SHORT_KEY_BYTES: Final = short_key_bytes(_MAX_KEY_BYTES)
_TABLES: Final = (b"data", b"nodes", b"meta")
_MARKER: Final = b"marker"
_DATA_FILE: Final = "data.mdb"
_DAMAGE: Final = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.NotFoundError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)


class LmdbBackend(CheckedBackend):
    """A store in an LMDB environment of its own."""

    def __init__(self, folder: StoreFolder, path: Path, map_bytes: int) -> None:
        self._path = path
        with _errors_named(path):
            self._env = _open_environment(path, map_bytes)
            try:
                _check_whole(self._env, path)
                self._data, self._nodes, self._meta = _open_tables(self._env)
            except BaseException:
                self._env.close()
                raise
        super().__init__(folder)

    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        def read(txn: lmdb.Transaction[bytes]) -> list[bytes | None]:
            # Twice as fast as getmulti, which answers with pairs and leaves missing keys out.
            get: Callable[[bytes], bytes | None] = txn.cursor(self._data).get
            # Where no long key was ever put there are no links that one could be mistaken for.
            if not txn.stat(self._nodes)["entries"] or max(map(len, keys)) <= _SHORT_KEY_BYTES:
                return list(map(get, lift_keys(keys)))
            tree = self._tree(txn)
            return [get(lift(key)) if len(key) <= _SHORT_KEY_BYTES else tree.get(key) for key in keys]

        return self._reading(read)

    def _write(self, entries: list[Entry], marker: bytes) -> None:
        while True:
            try:
                with _errors_named(self._path), self._begin(write=True) as txn:
                    self._apply(txn, entries)
                    txn.put(_MARKER, marker, db=self._meta)
            except lmdb.MapFullError:
                self._grow()
            else:
                return

    def _marker(self) -> bytes | None:
        return self._reading(lambda txn: txn.get(_MARKER, db=self._meta))

    def _page(self, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        def read(txn: lmdb.Transaction[bytes]) -> list[Row]:
            cursor = txn.cursor(self._data)
            if _is_long(start, end):
                rows = None
            elif cursor.set_range(lift(start)):
                behind = None if end is None else lift(end)
                rows = _without_links(list(islice(cursor.iternext(), limit)))
                while rows and behind is not None and rows[-1][0] >= behind:
                    rows.pop()
            else:
                return []
            if rows is not None:
                return lower_page(rows)
            walk = self._tree(txn).ascend(start)
            return list(islice(_until(walk, lambda key: end is not None and key >= end), limit))

        return self._reading(read)

    def _page_reverse(self, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        def read(txn: lmdb.Transaction[bytes]) -> list[Row]:
            cursor = txn.cursor(self._data)
            if _is_long(start, end):
                rows = None
            elif cursor.prev() if end is not None and cursor.set_range(lift(end)) else cursor.last():
                first = lift(start)
                rows = _without_links(list(islice(cursor.iterprev(), limit)))
                while rows and rows[-1][0] < first:
                    rows.pop()
            else:
                return []
            if rows is not None:
                return lower_page(rows)
            walk = self._tree(txn).descend(end)
            return list(islice(_until(walk, lambda key: key < start), limit))

        return self._reading(read)

    def _size(self) -> StoreSize:
        def read(txn: lmdb.Transaction[bytes]) -> int:
            return int(txn.stat(self._data)["entries"]) + int(txn.stat(self._nodes)["entries"])

        return StoreSize(self._reading(read), (self._path / _DATA_FILE).stat().st_size)

    def _copy_to(self, folder: Path) -> None:
        folder.mkdir(FOLDER_MODE)
        with _errors_named(self._path):
            self._env.copy(str(folder), compact=True)

    def _sync(self) -> None:
        with _errors_named(self._path):
            self._env.sync(True)

    def _close(self) -> None:
        self._env.close()

    def _reading(self, read: Callable[[lmdb.Transaction[bytes]], T]) -> T:
        with _errors_named(self._path), self._begin(write=False) as txn:
            return read(txn)

    def _begin(self, *, write: bool) -> lmdb.Transaction[bytes]:
        try:
            return self._env.begin(write=write)
        except lmdb.MapResizedError:
            self._env.set_mapsize(0)  # another process has made it larger: take what it says
            return self._env.begin(write=write)

    def _grow(self) -> None:
        larger = 2 * int(self._env.info()["map_size"])
        try:
            self._env.set_mapsize(larger)
        except (lmdb.Error, MemoryError, OverflowError) as error:
            raise StoreError(
                f"The store {self._path} needs a map of {larger} bytes and cannot get it ({error}). Likely "
                "cause: the process is limited in address space (ulimit -v, spark.executor.pyspark.memory). "
                "Remedy: raise that limit, or use the rocksdb backend."
            ) from error

    def _apply(self, txn: lmdb.Transaction[bytes], entries: list[Entry]) -> None:
        short = entries
        if entries and max(map(len, map(itemgetter(0), entries))) > _SHORT_KEY_BYTES:
            short = [entry for entry in entries if len(entry[0]) <= _SHORT_KEY_BYTES]
            self._apply_long(txn, [entry for entry in entries if len(entry[0]) > _SHORT_KEY_BYTES])
        puts: Any = lift_entries(short)
        if not all(map(itemgetter(1), puts)):  # some values are None, or empty
            for key, value in puts:
                if value is None:
                    txn.delete(key, db=self._data)
            puts = [entry for entry in puts if entry[1] is not None]
        if puts:
            cursor = txn.cursor(self._data)
            behind_all = not cursor.last() or cursor.key() < puts[0][0]
            cursor.putmulti(puts, append=behind_all)

    def _apply_long(self, txn: lmdb.Transaction[bytes], entries: list[Entry]) -> None:
        tree = self._tree(txn)
        for key, value in entries:
            if value is None:
                tree.delete(key)
            else:
                tree.put(key, value)

    def _tree(self, txn: lmdb.Transaction[bytes]) -> LongKeyTree:
        return LongKeyTree(_TxnTable(txn, self._data), _TxnTable(txn, self._nodes), _MAX_KEY_BYTES)


@dataclass(frozen=True, slots=True)
class LmdbSupplier:
    """Opens LMDB stores."""

    name: ClassVar[str] = _NAME
    persistent: ClassVar[bool] = True

    map_bytes: int = 16 << 20
    """How large the map of a new store is; it grows as needed."""

    def open(self, path: Path) -> LmdbBackend:
        """Open the store; about 0.5 ms."""
        folder = store_folder(path, _NAME, _FORMAT)
        return LmdbBackend(folder, path, self.map_bytes)

    def restore(self, snapshot: Path, path: Path) -> LmdbBackend:
        """Make a store from a snapshot: a copy of its file."""
        restored_folder(snapshot, path, _NAME, _FORMAT, shareable=lambda _: False)
        return self.open(path)


@dataclass(frozen=True, slots=True)
class _TxnTable:
    """One table as a transaction sees it."""

    txn: lmdb.Transaction[bytes]
    table: lmdb._Database

    def get(self, key: bytes, /) -> bytes | None:
        found: bytes | None = self.txn.get(key, db=self.table)
        return found

    def put(self, key: bytes, value: bytes, /) -> None:
        self.txn.put(key, value, db=self.table)

    def delete(self, key: bytes, /) -> None:
        self.txn.delete(key, db=self.table)

    def cursor(self) -> lmdb.Cursor[bytes]:
        return self.txn.cursor(self.table)


def _open_environment(path: Path, map_bytes: int) -> lmdb.Environment:
    """Open or make the file; clear the reader slots of processes that were killed."""
    file = path / _DATA_FILE
    used = file.stat().st_size if file.exists() else 0
    env = lmdb.open(
        str(path), map_size=max(map_bytes, used + used // 2), max_dbs=len(_TABLES), sync=False, mode=FILE_MODE
    )
    env.reader_check()
    return env


def _open_tables(env: lmdb.Environment) -> list[lmdb._Database]:
    """Open the tables; make them in an environment that was never written to."""
    new = env.info()["last_txnid"] == 0
    with env.begin(write=True) as txn:  # handles that a read transaction opened would end with it
        return [env.open_db(name, txn=txn, create=new) for name in _TABLES]


def _check_whole(env: lmdb.Environment, path: Path) -> None:
    """Refuse a file that is shorter than it says: to read behind its end would kill the process (SIGBUS)."""
    expected = (int(env.info()["last_pgno"]) + 1) * int(env.stat()["psize"])
    size = (path / _DATA_FILE).stat().st_size
    if size < expected:
        raise _damaged(path, f"the file has {size} of {expected} bytes")


def _is_long(*keys: bytes | None) -> bool:
    return any(key is not None and len(key) > _SHORT_KEY_BYTES for key in keys)


def _without_links(rows: list[Row]) -> list[Row] | None:
    """Return the rows, or None if they are not all rows: the slower walk has to be taken."""
    return rows if not rows or max(map(len, map(itemgetter(0), rows))) < _MAX_KEY_BYTES else None


def _until(rows: Iterator[Row], is_behind: Callable[[bytes], bool]) -> Iterator[Row]:
    for row in rows:
        if is_behind(row[0]):
            return
        yield row


@contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    """Turn LMDB's errors into ours, except those that are handled here."""
    try:
        yield
    except (lmdb.MapFullError, lmdb.MapResizedError):
        raise
    except lmdb.Error as error:
        raise _named(path, error) from error


def _named(path: Path, error: lmdb.Error) -> StoreError:
    if any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT)):
        return StoreDiskFullError(
            f"The disk is full: the store {path} could not be written ({error}). The write is not visible. "
            "Likely cause: the volume or the user's quota has no space left. Remedy: free space or move the "
            "state directory to a larger volume, then start again; no repair is needed."
        )
    if "already open in this process" in str(error):
        return StoreInUseError(f"The store {path} is open already in this process. Remedy: close it first.")
    if isinstance(error, _DAMAGE):
        return _damaged(path, str(error))
    return StoreError(
        f"LMDB could not work on the store {path}: {error}. Remedy: if it says no more to you than to us, "
        "remove the folder; the store is then restored from its changelog."
    )


def _damaged(path: Path, how: str) -> DamagedStoreError:
    return DamagedStoreError(
        f"The store {path} is damaged ({how}). Likely cause: its file was changed or cut, or a fault of the "
        "disk. Remedy: remove the folder; the store is then restored from its changelog."
    )
