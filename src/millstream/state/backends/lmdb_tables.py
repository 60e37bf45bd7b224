"""The rows of an LMDB store: two tables for all of them, or two for each segment.

Short keys are in ``data``; a long one is a path that leads from there through ``nodes`` (:mod:`.long_keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any, Final

import lmdb

from millstream.state.backends.api import Entry, Row
from millstream.state.backends.long_keys import LongKeyTree, short_key_bytes
from millstream.state.backends.segment_parts import UNNAMED
from millstream.state.backends.zero_keys import lift, lift_entries, lift_keys, lower_page

__all__ = ["Part", "open_tables", "pages_of", "tables_of"]

_MAX_KEY_BYTES: Final = 511
"""Part of the format: what LMDB takes where it was not compiled otherwise."""
_SHORT_KEY_BYTES: Final = short_key_bytes(_MAX_KEY_BYTES)
_META_TABLE: Final = b"meta"
_UNNAMED_TABLES: Final = (b"data", b"nodes")


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that have tables of their own: all of a store, or those of one segment."""

    data: lmdb._Database
    nodes: lmdb._Database

    def get_many(self, txn: lmdb.Transaction[bytes], keys: list[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None."""
        # Twice as fast as getmulti, which answers with pairs and leaves missing keys out.
        get: Callable[[bytes], bytes | None] = txn.cursor(self.data).get
        # Where no long key was ever put there are no links that one could be mistaken for.
        if not txn.stat(self.nodes)["entries"] or max(map(len, keys)) <= _SHORT_KEY_BYTES:
            return list(map(get, lift_keys(keys)))
        tree = self._tree(txn)
        return [get(lift(key)) if len(key) <= _SHORT_KEY_BYTES else tree.get(key) for key in keys]

    def page(self, txn: lmdb.Transaction[bytes], start: bytes, end: bytes | None, limit: int) -> list[Row]:
        """Return the first rows from start to before end."""
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
        """Return the last rows before end down to start, the last one first."""
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
        """Put and delete rows that are sorted by key."""
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


def open_tables(env: lmdb.Environment) -> tuple[lmdb._Database, dict[bytes, Part]]:
    """Open the tables; make them in an environment that was never written to."""
    new = env.info()["last_txnid"] == 0
    with env.begin(write=True) as txn:  # handles that a read transaction opened would end with it
        meta = env.open_db(_META_TABLE, txn=txn, create=new)
        names = [UNNAMED, *(_segment_of(table) for table in txn.cursor().iternext(values=False))]
        parts = {
            name: Part(*(env.open_db(table, txn=txn, create=new) for table in tables_of(name)))
            for name in names
            if name is not None
        }
    return meta, parts


def tables_of(part: bytes) -> tuple[bytes, bytes]:
    """Name the two tables of a part."""
    return (b"data-" + part.hex().encode(), b"nodes-" + part.hex().encode()) if part else _UNNAMED_TABLES


def _segment_of(table: bytes) -> bytes | None:
    kind, _, name = table.partition(b"-")
    return bytes.fromhex(name.decode()) if kind == b"data" and name else None


def pages_of(txn: lmdb.Transaction[bytes], table: lmdb._Database) -> int:
    """Count the pages of a table."""
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
