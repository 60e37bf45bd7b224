"""How large a store will be when the writes of an epoch are applied to it, without applying them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.state.backends.api import StoreSize
from millstream.state.stores.overlay import CommittedReader
from millstream.state.stores.written_columns import Entry, WrittenColumns

_LOOKED_UP: Final = 2_000
"""So many written keys are looked up at most, which takes a millisecond or two: more are judged by these."""


def size_after(committed: CommittedReader, written: Sequence[Entry]) -> StoreSize:
    """The size as its backend tells it, and the keys that sorted, distinct writes add and remove.

    Bytes are those of what is committed. Rows of segments that expire with these writes still count.
    """
    size = committed.size()
    if not written:
        return size
    stride = -(-len(written) // _LOOKED_UP) if size.approximate_entries else 1
    if isinstance(written, WrittenColumns):
        keys: list[bytes] = written.key_column[::stride].to_pylist()
        stay = len(keys)
    else:
        some = written[::stride]
        keys = [key for key, _ in some]
        stay = len(some) - [value for _, value in some].count(None)
    there = len(keys) - committed.get_many(keys).count(None) if size.approximate_entries else 0
    added = round((stay - there) * len(written) / len(keys))
    return StoreSize(max(0, size.approximate_entries + added), size.bytes)
