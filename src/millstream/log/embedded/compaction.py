"""What a rewritten segment keeps: all of it, or of each key only what no later record replaces."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millstream.log.api import Expired
from millstream.log.embedded.reader import Stored
from millstream.types import Offset

MAX_KEYS: Final = 5_000_000
"""How many distinct keys one pass of a compaction holds in memory; the next pass goes on."""
_MOST_NEW: Final = 100_000
"""So many records wait, or as many as there are keys, before each key is left with its last one."""
MIN_DIRTY_RATIO: Final = 0.1
"""Compaction waits until this part of the bytes was written since the last one: a changelog is then hardly
larger than its live rows. Kafka waits for a half, but has no local store on the same disk."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What may be left out."""

    up_to: Offset
    """Only records before this offset are looked at: nobody asks for the state at an earlier one."""
    tombstones_before: int
    """Tombstones that were appended before this time may go."""
    min_dirty_ratio: float
    expired: Expired | None
    """What the last record with an empty key says about others: they are left out, too."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Records of a block that stay, and their offsets."""

    records: pa.RecordBatch
    offsets: pa.Array
    deletes_gone_to: int = 0
    """The offset behind the last tombstone that does not stay; 0: none."""


class KeepAll:
    """Merging: of records before ``up_to`` all stay; up to ``compacted_to`` nothing that others replace."""

    up_to = sys.maxsize
    compacted_to = 0

    def kept(self, stored: Stored) -> Kept:
        """Return what is kept of a block: all."""
        return Kept(stored.records, stored.offsets())


class KeepLast:
    """Compaction: a record goes if a later one has its key, if it has expired, or as an old tombstone."""

    def __init__(
        self,
        last: LastOffsets,
        compacted_to: int,
        tombstones_before: int,
        dropped: tuple[bytes, bytes] | None,
    ) -> None:
        self._last = last
        self._dropped = dropped
        self.up_to = self.compacted_to = compacted_to
        self._tombstones_before = tombstones_before

    def kept(self, stored: Stored) -> Kept:
        """Return the others."""
        offsets = stored.offsets()
        column = stored.records.column(0)
        keys = pl.Series(column)
        stays = ~self._last.replaces(keys, pl.Series(offsets))
        if self._dropped is not None:
            start, end = self._dropped
            is_gone = pc.and_(pc.greater_equal(column, start), pc.less(column, end))
            stays &= ~pl.Series(pc.fill_null(is_gone, fill_value=False))
        deletes_gone_to = 0
        if stored.append_time < self._tombstones_before:
            going = stays & keys.is_not_null() & pl.Series(pc.is_null(stored.records.column(1)))
            if going.any():
                deletes_gone_to = 1 + pc.max(offsets.filter(going.to_arrow())).as_py()
                stays &= ~going
        mask = stays.to_arrow()
        return Kept(stored.records.filter(mask), offsets.filter(mask), deletes_gone_to)


Rule: TypeAlias = KeepAll | KeepLast


class LastOffsets:
    """The last offset of each key in some records, for whole blocks at once.

    Keys are found by their hashes, which are sorted and all different, and then compared: a table for joins
    would be built anew for every block.

    >>> last = LastOffsets()
    >>> last.add(pa.array([b"a", b"b", b"a"]), pa.array([7, 8, 9]))
    >>> last.replaces(pl.Series([b"a", b"b", b"c", None]), pl.Series([7, 8, 1, 2])).to_list()
    [True, False, False, False]
    >>> last.of(b"a"), last.of(b"c"), len(last)
    (9, None, 2)
    """

    def __init__(self) -> None:
        self._seed = 0
        self._table = pl.DataFrame(schema={"key": pl.Binary, "at": pl.Int64, "hash": pl.UInt64})
        self._new: list[pl.DataFrame] = []

    def add(self, keys: pa.Array, offsets: pa.Array) -> None:
        """Take records in."""
        own = keys.take(pl.int_range(len(keys), eager=True).to_arrow())  # else the block's values stay, too
        self._new.append(pl.DataFrame({"key": pl.Series(own), "at": pl.Series(offsets)}).drop_nulls("key"))
        if self._new_rows() >= max(_MOST_NEW, self._table.height):
            self._current()

    def has_at_least(self, count: int) -> bool:
        """Whether there are so many keys."""
        return self._table.height + self._new_rows() >= count and len(self) >= count

    def _new_rows(self) -> int:
        return sum(frame.height for frame in self._new)

    def __len__(self) -> int:
        return self._current().height

    def of(self, key: bytes) -> int | None:
        """The last offset of one key."""
        found = self._current().filter(pl.col("key") == key)["at"]
        return int(found[0]) if len(found) else None

    def replaces(self, keys: pl.Series, offsets: pl.Series) -> pl.Series:
        """Of which records there is a later one."""
        table = self._current()
        if table.is_empty():
            return pl.repeat(value=False, n=len(keys), eager=True)
        rows = table["hash"].search_sorted(_hashes(keys, self._seed)).clip(upper_bound=table.height - 1)
        found = table[rows]
        return ((found["key"] == keys) & (found["at"] > offsets)).fill_null(value=False)

    def _current(self) -> pl.DataFrame:
        if self._new:
            known = pl.concat([self._table.select("key", "at"), *self._new])
            self._new = []
            self._table = self._last(known)
        return self._table

    def _last(self, known: pl.DataFrame) -> pl.DataFrame:
        """The last record of each key, in the order of the keys' hashes; with others if two have the same."""
        while True:
            hashed = known.with_columns(_hashes(known["key"], self._seed).alias("hash"))
            hashed = hashed.sort("hash", maintain_order=True)
            is_same = hashed["hash"] == hashed["hash"].shift()
            if not (is_same & (hashed["key"] != hashed["key"].shift())).any():
                return hashed.filter(~is_same.shift(-1, fill_value=False))
            self._seed += 1


def _hashes(keys: pl.Series, seed: int) -> pl.Series:
    return keys.hash(seed)
