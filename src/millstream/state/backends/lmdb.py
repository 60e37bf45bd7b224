"""State in LMDB: a B+ tree in one memory-mapped file. Opens in a fraction of a millisecond.

Three named tables: ``data`` and ``nodes`` for the rows (:mod:`.long_keys`), ``meta`` for the marker. A
transaction covers all three, so a write is atomic with its marker.

LMDB can empty a table in no time, but deletes a range row by row. So where keys begin with a segment, the
rows of each segment have tables of their own, ``data-<segment>`` and ``nodes-<segment>`` (in hexadecimal).

Nothing is synced by :meth:`write`: a transaction is handed to the operating system, which still has it after
a ``kill -9``; the changelog is what survives a power cut. Without syncs a power cut may also tear the file,
so a store that was not synced since the last boot must be removed
(:meth:`millstream.state.directory.TaskDirectory.lost_in_a_power_cut`). The file is written by system calls,
not through the map: a full disk is then an error and not the end of the process.

The map (what LMDB may address, not what it takes on disk) starts small, because a process may be limited in
address space, and grows by doubling when a write does not fit. Transactions are short and no cursor outlives
one, so that it can grow, and so that freed pages are used again. Other processes may have the store open:
they learn of the growth at their next transaction.

A transaction copies each page that it changes, and only the transaction after the next may use the old ones
again. If all of a large batch were one transaction, the file would get twice as large for it, and the batch
would take half as long again, because no page is still in the processor's cache when it is needed. So a batch
that need not be atomic is written in steps that change a small part of the file each.

LMDB keeps no checksums: damage inside a page can go unnoticed by it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import lmdb

from millstream.durable import synced_meanwhile
from millstream.durable.layer import FILE_MODE, FOLDER_MODE
from millstream.errors import StoreError
from millstream.state.backends.api import Entry, KeyRange, Row, StoreSize
from millstream.state.backends.base import CheckedBackend
from millstream.state.backends.folder import StoreFolder, restored_folder, store_folder
from millstream.state.backends.long_keys import LongKeyTree, short_key_bytes
from millstream.state.backends.segment_parts import UNNAMED, grouped, is_dropped_whole, stretches
from millstream.state.backends.zero_keys import lift, lift_entries, lift_keys, lower_page
from millstream.state.errors import DamagedStoreError, StoreDiskFullError, StoreInUseError

__all__ = ["LmdbBackend", "LmdbSupplier"]

T = TypeVar("T")

_NAME: Final = "lmdb"
_FORMAT: Final = 1
_MAX_KEY_BYTES: Final = 511
"""Part of the format: what LMDB takes where it was not compiled otherwise."""
_SHORT_KEY_BYTES: Final = short_key_bytes(_MAX_KEY_BYTES)
_META_TABLE: Final = b"meta"
_UNNAMED_TABLES: Final = (b"data", b"nodes")
_MOST_SEGMENTS: Final = 1000
_MOST_TABLES: Final = 2 * _MOST_SEGMENTS + 8
_ROWS_PER_DELETE: Final = 1000
_SAMPLED: Final = 1000
_STEPS_OF_ALL_PAGES: Final = 64
_ROOM_PER_BYTE: Final = 3
"""How much of the map a bulk load may take: new pages are about half full, and changed ones are copied."""
_LARGE_FILE_BYTES: Final = 4 << 20
_MOSTLY_FREE_FROM: Final = 4
"""A file that is so large, and so many times as large as the pages in use, is mostly free. Where few, large
rows are all changed again and again, three times is what it has to be."""
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

    def __init__(
        self, folder: StoreFolder, path: Path, segment_bytes: int, map_bytes: int, step_rows: tuple[int, int]
    ) -> None:
        self._path = path
        self._step_rows = step_rows
        self._pins = 0
        with _errors_named(path):
            self._env = _open_environment(path, map_bytes)
            try:
                _check_whole(self._env, path)
                self._meta, self._parts = _open_tables(self._env)
            except BaseException:
                self._env.close()
                raise
        # A tool that does not know what it opens need not say it.
        self._segment_bytes = segment_bytes or max(map(len, self._parts))
        super().__init__(folder)

    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        def read(txn: lmdb.Transaction[bytes]) -> list[bytes | None]:
            values: list[bytes | None] = []
            for name, group in self._grouped(keys, keys):
                part = self._parts.get(name)
                values += [None] * len(group) if part is None else part.get_many(txn, group)
            return values

        return self._reading(read)

    def _write(self, entries: list[Entry], marker: bytes, drop: KeyRange | None) -> None:
        keys = [key for key, _ in entries] if self._segment_bytes else []
        while True:
            try:
                with _errors_named(self._path), self._begin(write=True) as txn:
                    if drop is not None:
                        self._drop(txn, *drop)
                    for name, group in self._grouped(entries, keys):
                        self._part(txn, name).apply(txn, group)
                    txn.put(_MARKER, marker, db=self._meta)
            except lmdb.MapFullError:
                self._grow()
                self._find_parts()
            except BaseException:
                self._find_parts()
                raise
            else:
                self._write_to_the_end()
                return

    def _rows_of_a_step(self) -> int:
        fewest, most = self._step_rows
        return min(most, max(fewest, int(self._env.info()["last_pgno"]) // _STEPS_OF_ALL_PAGES))

    def _bulk_load(self, entries: list[Entry], marker: bytes, drop: KeyRange | None) -> None:
        sample = entries[:: len(entries) // _SAMPLED + 1]
        held = sum(len(key) + len(value or b"") for key, value in sample)
        needed = held * len(entries) // max(1, len(sample))
        info = self._env.info()
        used = (int(info["last_pgno"]) + 1) * int(self._env.stat()["psize"])
        if int(info["map_size"]) - used < _ROOM_PER_BYTE * needed:
            self._grow()  # now: a write that does not fit would be done twice
        self._write(entries, marker, drop)

    def _marker(self) -> bytes | None:
        return self._reading(lambda txn: txn.get(_MARKER, db=self._meta))

    def _page(self, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        def read(txn: lmdb.Transaction[bytes]) -> list[Row]:
            rows: list[Row] = []
            for part, first, behind in self._stretches(start, end):
                rows += part.page(txn, first, behind, limit - len(rows))
                if len(rows) == limit:
                    break
            return rows

        return self._reading(read)

    def _page_reverse(self, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        def read(txn: lmdb.Transaction[bytes]) -> list[Row]:
            rows: list[Row] = []
            for part, first, behind in reversed(self._stretches(start, end)):
                rows += part.page_reverse(txn, first, behind, limit - len(rows))
                if len(rows) == limit:
                    break
            return rows

        return self._reading(read)

    def _size(self) -> StoreSize:
        def read(txn: lmdb.Transaction[bytes]) -> int:
            return sum(
                int(txn.stat(table)["entries"])
                for part in self._parts.values()
                for table in (part.data, part.nodes)
            )

        return StoreSize(self._reading(read), (self._path / _DATA_FILE).stat().st_size)

    def is_mostly_free(self) -> bool:
        """Tell whether at most a quarter of a large file is in use. LMDB keeps freed pages, for later.

        Many are free after mass deletes, and after a long snapshot: what it still reads can't be used again.
        """
        self._check_open()
        if (self._path / _DATA_FILE).stat().st_size < _LARGE_FILE_BYTES:
            return False
        tables = [self._meta, *(table for part in self._parts.values() for table in (part.data, part.nodes))]
        used = self._reading(lambda txn: sum(_pages(txn, table) for table in tables))
        return used * _MOSTLY_FREE_FROM <= int(self._env.info()["last_pgno"])

    def _copy_to(self, folder: Path, txn: lmdb.Transaction[bytes] | None = None) -> None:
        folder.mkdir(FOLDER_MODE)
        with _errors_named(self._path), synced_meanwhile(folder / _DATA_FILE):
            self._env.copy(str(folder), compact=True, txn=txn)

    @contextmanager
    def _pinned(self, spare: Path) -> Iterator[Callable[[Path], object]]:
        """Keep a read transaction: others may write, but overwrite nothing of the store as it is."""
        del spare
        with _errors_named(self._path):
            txn = self._begin(write=False)
        self._pins += 1
        try:
            yield partial(self._copy_to, txn=txn)
        finally:
            txn.abort()
            self._pins -= 1
            if self._closed and not self._pins:
                self._env.close()

    def _sync(self) -> None:
        with _errors_named(self._path):
            self._env.sync(True)

    def _close(self) -> None:
        if not self._pins:  # else the last of them closes it
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

    def _write_to_the_end(self) -> None:
        """Make the file as long as it says it is.

        A transaction that needs new pages and frees the last of them again counts them, but does not write
        them: nobody will read them before somebody has written them. Only :func:`_check_whole` can't know.
        """
        size, expected = _file_bytes(self._env, self._path)
        if size < expected:
            os.truncate(self._path / _DATA_FILE, expected)

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

    def _grouped(self, items: list[T], keys: list[bytes]) -> Iterator[tuple[bytes, list[T]]]:
        return grouped(items, keys, self._segment_bytes)

    def _stretches(self, start: bytes, end: bytes | None) -> list[tuple[_Part, bytes, bytes | None]]:
        return [
            (self._parts[name], first, behind) for name, first, behind in stretches(self._parts, start, end)
        ]

    def _part(self, txn: lmdb.Transaction[bytes], name: bytes) -> _Part:
        if name not in self._parts:
            if len(self._parts) > _MOST_SEGMENTS:
                raise StoreError(
                    f"The store {self._path} has {_MOST_SEGMENTS} segments and cannot have more. Likely "
                    "cause: its retention is very long against its segment interval. Remedy: use the "
                    "rocksdb backend, or delete the store's state and choose a longer segment interval."
                )
            tables = [self._env.open_db(table, txn=txn) for table in _tables_of(name)]
            self._parts[name] = _Part(*tables)
        return self._parts[name]

    def _drop(self, txn: lmdb.Transaction[bytes], start: bytes, end: bytes) -> None:
        for name in sorted(self._parts):
            if is_dropped_whole(name, (start, end)):
                part = self._parts.pop(name)
                txn.drop(part.data)
                txn.drop(part.nodes)
            else:
                part = self._parts[name]
                while rows := part.page(txn, start, end, _ROWS_PER_DELETE):
                    part.apply(txn, [(key, None) for key, _ in rows])

    def _find_parts(self) -> None:
        """After a write that failed: tables that it made are gone, and those that it dropped are there."""
        with _errors_named(self._path):
            self._meta, self._parts = _open_tables(self._env)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows that have tables of their own: all of a store, or those of one segment."""

    data: lmdb._Database
    nodes: lmdb._Database

    def get_many(self, txn: lmdb.Transaction[bytes], keys: list[bytes]) -> list[bytes | None]:
        # Twice as fast as getmulti, which answers with pairs and leaves missing keys out.
        get: Callable[[bytes], bytes | None] = txn.cursor(self.data).get
        # Where no long key was ever put there are no links that one could be mistaken for.
        if not txn.stat(self.nodes)["entries"] or max(map(len, keys)) <= _SHORT_KEY_BYTES:
            return list(map(get, lift_keys(keys)))
        tree = self._tree(txn)
        return [get(lift(key)) if len(key) <= _SHORT_KEY_BYTES else tree.get(key) for key in keys]

    def page(self, txn: lmdb.Transaction[bytes], start: bytes, end: bytes | None, limit: int) -> list[Row]:
        cursor = txn.cursor(self.data)
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

    def page_reverse(
        self, txn: lmdb.Transaction[bytes], start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        cursor = txn.cursor(self.data)
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

    def apply(self, txn: lmdb.Transaction[bytes], entries: list[Entry]) -> None:
        short = entries
        if entries and max(map(len, map(itemgetter(0), entries))) > _SHORT_KEY_BYTES:
            short = [entry for entry in entries if len(entry[0]) <= _SHORT_KEY_BYTES]
            self._apply_long(txn, [entry for entry in entries if len(entry[0]) > _SHORT_KEY_BYTES])
        puts: Any = lift_entries(short)
        if not all(map(itemgetter(1), puts)):  # some values are None, or empty
            for key, value in puts:
                if value is None:
                    txn.delete(key, db=self.data)
            puts = [entry for entry in puts if entry[1] is not None]
        if puts:
            cursor = txn.cursor(self.data)
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
        return LongKeyTree(_TxnTable(txn, self.data), _TxnTable(txn, self.nodes), _MAX_KEY_BYTES)


@dataclass(frozen=True, slots=True)
class LmdbSupplier:
    """Opens LMDB stores."""

    name: ClassVar[str] = _NAME
    persistent: ClassVar[bool] = True

    map_bytes: int = 16 << 20
    """How large the map of a new store is; it grows as needed."""
    step_rows: tuple[int, int] = (100, 2000)
    """The fewest and the most rows of a step; in between, a small part of the number of pages."""

    def open(self, path: Path, *, segment_bytes: int = 0) -> LmdbBackend:
        """Open the store; about 0.5 ms."""
        folder = store_folder(path, _NAME, _FORMAT)
        return LmdbBackend(folder, path, segment_bytes, self.map_bytes, self.step_rows)

    def restore(self, snapshot: Path, path: Path, *, segment_bytes: int = 0) -> LmdbBackend:
        """Make a store from a snapshot: a copy of its file."""
        restored_folder(snapshot, path, _NAME, _FORMAT, shareable=lambda _: False)
        return self.open(path, segment_bytes=segment_bytes)

    def adopt(self, snapshot: Path, path: Path, *, segment_bytes: int = 0) -> LmdbBackend:
        """Make a store of the snapshot's own file."""
        restored_folder(snapshot, path, _NAME, _FORMAT, shareable=lambda _: True)
        return self.open(path, segment_bytes=segment_bytes)


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
        str(path), map_size=max(map_bytes, used + used // 2), max_dbs=_MOST_TABLES, sync=False, mode=FILE_MODE
    )
    env.reader_check()
    return env


def _open_tables(env: lmdb.Environment) -> tuple[lmdb._Database, dict[bytes, _Part]]:
    """Open the tables; make them in an environment that was never written to."""
    new = env.info()["last_txnid"] == 0
    with env.begin(write=True) as txn:  # handles that a read transaction opened would end with it
        meta = env.open_db(_META_TABLE, txn=txn, create=new)
        names = [UNNAMED, *(_segment_of(table) for table in txn.cursor().iternext(values=False))]
        parts = {
            name: _Part(*(env.open_db(table, txn=txn, create=new) for table in _tables_of(name)))
            for name in names
            if name is not None
        }
    return meta, parts


def _tables_of(part: bytes) -> tuple[bytes, bytes]:
    return (b"data-" + part.hex().encode(), b"nodes-" + part.hex().encode()) if part else _UNNAMED_TABLES


def _segment_of(table: bytes) -> bytes | None:
    kind, _, name = table.partition(b"-")
    return bytes.fromhex(name.decode()) if kind == b"data" and name else None


def _check_whole(env: lmdb.Environment, path: Path) -> None:
    """Refuse a file that is shorter than it says: to read behind its end would kill the process (SIGBUS)."""
    size, expected = _file_bytes(env, path)
    if size < expected:
        raise _damaged(path, f"the file has {size} of {expected} bytes")


def _file_bytes(env: lmdb.Environment, path: Path) -> tuple[int, int]:
    """How long the file is, and how long it has to be for its pages."""
    expected = (int(env.info()["last_pgno"]) + 1) * int(env.stat()["psize"])
    return (path / _DATA_FILE).stat().st_size, expected


def _pages(txn: lmdb.Transaction[bytes], table: lmdb._Database) -> int:
    stat = txn.stat(table)
    return int(stat["branch_pages"]) + int(stat["leaf_pages"]) + int(stat["overflow_pages"])


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
