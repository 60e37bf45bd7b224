"""The rows of an LMDB store: two tables for all of them, or two for each segment.

Short keys are in ``data``; a long one is a path that leads from there through ``nodes`` (:mod:`.long_keys`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, takewhile
from operator import itemgetter
from typing import Any, Final

import lmdb

from millstream.state.backends.base import Entry, Row
from millstream.state.backends.key_encoding import decode_rows, encode_entries, encode_key, encode_keys
from millstream.state.backends.long_keys import LongKeyTree, short_key_bytes
from millstream.state.backends.segment_parts import UNNAMED

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
        is_short = len(keys) == 1 and len(keys[0]) <= _SHORT_KEY_BYTES
        # Where no long key was ever put there are no links that one could be mistaken for.
        if is_short or not txn.stat(self.nodes)["entries"] or max(map(len, keys)) <= _SHORT_KEY_BYTES:
            return list(map(get, encode_keys(keys)))
        tree = self._tree(txn)
        return [get(encode_key(key)) if len(key) <= _SHORT_KEY_BYTES else tree.get(key) for key in keys]

    def page(
        self, txn: lmdb.Transaction[bytes], start: bytes, end: bytes | None, limit: int, *, reverse: bool
    ) -> list[Row]:
        """Return the first rows from start to before end; in reverse the last ones, the last one first."""
        if max(len(start), len(end or b"")) <= _SHORT_KEY_BYTES:
            cursor, first = txn.cursor(self.data), encode_key(start)
            behind = None if end is None else encode_key(end)  # not empty, so true
            if reverse:
                is_there = cursor.prev() if behind and cursor.set_range(behind) else cursor.last()
            else:
                is_there = cursor.set_range(first)
            found = cursor.iterprev() if reverse else cursor.iternext()
            rows = list(islice(found, limit)) if is_there else []
            # A link among them: the slower walk has to be taken.
            if not rows or max(map(len, map(itemgetter(0), rows))) < _MAX_KEY_BYTES:
                while rows and (rows[-1][0] < first if reverse else behind and rows[-1][0] >= behind):
                    rows.pop()
                return decode_rows(rows)
        tree = self._tree(txn)
        if reverse:
            walk = takewhile(lambda row: row[0] >= start, tree.descend(end))
        else:
            walk = takewhile(lambda row: end is None or row[0] < end, tree.ascend(start))
        return list(islice(walk, limit))

    def apply(self, txn: lmdb.Transaction[bytes], entries: list[Entry]) -> None:
        """Put and delete rows that are sorted by key."""
        short = entries
        if entries and max(map(len, map(itemgetter(0), entries))) > _SHORT_KEY_BYTES:
            short = [entry for entry in entries if len(entry[0]) <= _SHORT_KEY_BYTES]
            self._apply_long(txn, [entry for entry in entries if len(entry[0]) > _SHORT_KEY_BYTES])
        puts: Any = encode_entries(short)
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
