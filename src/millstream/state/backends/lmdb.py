"""State in LMDB: a B+ tree in one memory-mapped file. Opens in a fraction of a millisecond.

Three named tables: ``data`` and ``nodes`` for the rows (:mod:`.lmdb_tables`), ``meta`` for the marker. A
transaction covers all three, so a write is atomic with its marker.

LMDB can empty a table in no time, but deletes a range row by row. So where keys begin with a segment, the
rows of each segment have tables of their own, ``data-<segment>`` and ``nodes-<segment>`` (in hexadecimal).

Nothing is synced by :meth:`write`: a transaction is handed to the operating system, which still has it after
a ``kill -9``; the changelog is what survives a power cut. Without syncs a power cut may also tear the file,
so a store that was not synced since the last boot must be removed
(:meth:`millstream.state.local.directory.TaskDirectory.lost_in_a_power_cut`). The file is written by system
calls, not through the map: a full disk is then an error and not the end of the process.

Transactions are short and no cursor outlives one, so that the map of the file can grow when a write does not
fit (:mod:`.lmdb_environment`), and so that freed pages are used again.

A transaction copies each page that it changes, and only the transaction after the next may use the old ones
again. If all of a large batch were one transaction, the file would get twice as large for it, and the batch
would take half as long again, because no page is still in the processor's cache when it is needed. So a batch
that need not be atomic is written in steps that change a small part of the file each.

LMDB keeps no checksums: damage inside a page can go unnoticed by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

import lmdb

from millstream.durable import synced_meanwhile
from millstream.durable.layer import FOLDER_MODE
from millstream.errors import StoreError
from millstream.state.backends.base import Backend, Entry, KeyRange, Row, StoreSize
from millstream.state.backends.folder import StoreFolder, restored_folder, store_folder
from millstream.state.backends.lmdb_environment import (
    DATA_FILE,
    begin,
    check_whole,
    errors_named,
    file_bytes,
    grow,
    open_environment,
    room,
    write_to_the_end,
)
from millstream.state.backends.lmdb_tables import Part, open_tables, pages_of, tables_of
from millstream.state.backends.segment_parts import grouped, is_dropped_whole, ranges_of_parts

_NAME: Final = "lmdb"
_FORMAT: Final = 1
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


class LmdbBackend(Backend):
    """A store in an LMDB environment of its own."""

    def __init__(
        self, folder: StoreFolder, path: Path, segment_bytes: int, map_bytes: int, step_rows: tuple[int, int]
    ) -> None:
        self._path = path
        self._step_rows = step_rows
        self._pins = 0
        self._errors = errors_named(path)
        with self._errors:
            self._env = open_environment(path, map_bytes=map_bytes, most_tables=_MOST_TABLES)
            try:
                check_whole(self._env, path)
                self._meta, self._parts = open_tables(self._env)
            except BaseException:
                self._env.close()
                raise
        # A tool that does not know what it opens need not say it.
        self._segment_bytes = segment_bytes or max(map(len, self._parts))
        super().__init__(folder)

    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = []
        with self._errors, begin(self._env, write=False) as txn:
            for name, group in grouped(keys, keys, self._segment_bytes):
                part = self._parts.get(name)
                values += [None] * len(group) if part is None else part.get_many(txn, group)
        return values

    def _write(self, entries: list[Entry], marker: bytes, drop: KeyRange | None) -> None:
        keys = [key for key, _ in entries] if self._segment_bytes else []
        while True:
            try:
                with self._errors, begin(self._env, write=True) as txn:
                    if drop is not None:
                        self._drop(txn, *drop)
                    for name, group in grouped(entries, keys, self._segment_bytes):
                        self._part(txn, name).apply(txn, group)
                    txn.put(_MARKER, marker, db=self._meta)
            except lmdb.MapFullError:
                grow(self._env, self._path)
                self._find_parts()
            except BaseException:
                self._find_parts()
                raise
            else:
                write_to_the_end(self._env, self._path)
                return

    def _rows_of_a_step(self, rows: int) -> int:
        fewest, most = self._step_rows
        # Sorted rows: a part of them changes about that part of the pages, however many are on a page.
        in_steps = max(rows, int(self._env.info()["last_pgno"])) // _STEPS_OF_ALL_PAGES
        return min(most, max(fewest, in_steps))

    def _bulk_load(self, entries: list[Entry], marker: bytes, drop: KeyRange | None) -> None:
        sample = entries[:: len(entries) // _SAMPLED + 1]
        held = sum(len(key) + len(value or b"") for key, value in sample)
        needed = held * len(entries) // max(1, len(sample))
        if room(self._env) < _ROOM_PER_BYTE * needed:
            grow(self._env, self._path)  # now: a write that does not fit would be done twice
        self._write(entries, marker, drop)

    def _marker(self) -> bytes | None:
        with self._errors, begin(self._env, write=False) as txn:
            return txn.get(_MARKER, db=self._meta)

    def _page(self, start: bytes, end: bytes | None, limit: int, *, reverse: bool) -> list[Row]:
        rows: list[Row] = []
        with self._errors, begin(self._env, write=False) as txn:
            for name, first, behind in ranges_of_parts(self._parts, start, end, reverse=reverse):
                rows += self._parts[name].page(txn, first, behind, limit - len(rows), reverse=reverse)
                if len(rows) == limit:
                    break
        return rows

    def _size(self) -> StoreSize:
        with self._errors, begin(self._env, write=False) as txn:
            entries = sum(int(txn.stat(table)["entries"]) for table in self._row_tables())
        return StoreSize(entries, file_bytes(self._path))

    def is_mostly_free(self) -> bool:
        """Tell whether at most a quarter of a large file is in use. LMDB keeps freed pages, for later.

        Many are free after mass deletes, and after a long snapshot: what it still reads can't be used again.
        """
        self._check_open()
        if file_bytes(self._path) < _LARGE_FILE_BYTES:
            return False
        with self._errors, begin(self._env, write=False) as txn:
            used = sum(pages_of(txn, table) for table in (self._meta, *self._row_tables()))
        return used * _MOSTLY_FREE_FROM <= int(self._env.info()["last_pgno"])

    def _copy_to(self, folder: Path, txn: lmdb.Transaction[bytes] | None = None) -> None:
        folder.mkdir(FOLDER_MODE)
        with self._errors, synced_meanwhile(folder / DATA_FILE):
            self._env.copy(str(folder), compact=True, txn=txn)

    @contextmanager
    def _pinned(self, spare: Path) -> Iterator[Callable[[Path], object]]:
        """Keep a read transaction: others may write, but overwrite nothing of the store as it is."""
        del spare
        with self._errors:
            txn = begin(self._env, write=False)
        self._pins += 1
        try:
            yield partial(self._copy_to, txn=txn)
        finally:
            txn.abort()
            self._pins -= 1
            if self._closed and not self._pins:
                self._env.close()

    def _sync(self) -> None:
        with self._errors:
            self._env.sync(True)

    def _close(self) -> None:
        if not self._pins:  # else the last of them closes it
            self._env.close()

    def _row_tables(self) -> list[lmdb._Database]:
        return [table for part in self._parts.values() for table in (part.data, part.nodes)]

    def _part(self, txn: lmdb.Transaction[bytes], name: bytes) -> Part:
        if name not in self._parts:
            if len(self._parts) > _MOST_SEGMENTS:
                raise StoreError(
                    f"The store {self._path} has {_MOST_SEGMENTS} segments and cannot have more. Likely "
                    "cause: its retention is very long against its segment interval. Remedy: use the "
                    "rocksdb backend, or delete the store's state and choose a longer segment interval."
                )
            tables = [self._env.open_db(table, txn=txn) for table in tables_of(name)]
            self._parts[name] = Part(*tables)
        return self._parts[name]

    def _drop(self, txn: lmdb.Transaction[bytes], start: bytes, end: bytes) -> None:
        for name in sorted(self._parts):
            if is_dropped_whole(name, (start, end)):
                part = self._parts.pop(name)
                txn.drop(part.data)
                txn.drop(part.nodes)
            else:
                part = self._parts[name]
                while rows := part.page(txn, start, end, _ROWS_PER_DELETE, reverse=False):
                    part.apply(txn, [(key, None) for key, _ in rows])

    def _find_parts(self) -> None:
        """After a write that failed: tables that it made are gone, and those that it dropped are there."""
        with self._errors:
            self._meta, self._parts = open_tables(self._env)


@dataclass(frozen=True, slots=True)
class LmdbSupplier:
    """Opens LMDB stores."""

    name: ClassVar[str] = _NAME
    persistent: ClassVar[bool] = True

    map_bytes: int = 16 << 20
    """How large the map of a new store is; it grows as needed."""
    step_rows: tuple[int, int] = (100, 2000)
    """The fewest and the most rows of a step; in between, a small part of the batch, or of the pages."""

    def open(self, path: Path, *, segment_bytes: int = 0) -> LmdbBackend:
        """Open the store; about 0.5 ms."""
        folder = store_folder(path, _NAME, _FORMAT)
        return LmdbBackend(folder, path, segment_bytes, self.map_bytes, self.step_rows)

    def open_read_only(self, path: Path, *, segment_bytes: int = 0) -> LmdbBackend:
        """Open the store: LMDB lets as many processes in as there are."""
        return self.open(path, segment_bytes=segment_bytes)

    def restore(self, snapshot: Path, path: Path, *, segment_bytes: int = 0) -> LmdbBackend:
        """Make a store from a snapshot: a copy of its file."""
        restored_folder(snapshot, path, _NAME, _FORMAT, shareable=lambda _: False)
        return self.open(path, segment_bytes=segment_bytes)

    def adopt(self, snapshot: Path, path: Path, *, segment_bytes: int = 0) -> LmdbBackend:
        """Make a store of the snapshot's own file."""
        restored_folder(snapshot, path, _NAME, _FORMAT, shareable=lambda _: True)
        return self.open(path, segment_bytes=segment_bytes)
