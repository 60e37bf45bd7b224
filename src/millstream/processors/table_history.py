"""`TableHistory`: what a store was at each row of a batch, for those that look a table up.

A batch passes node by node, so when a join looks a table up, the table has taken the whole batch in already.
One record at a time, the join would see only what came before its own. So a table that somebody looks up
notes what each of its rows has written, with the row's place in the depth-first order, and a lookup asks for
a place.

It is about one pass of a batch: what the passes before it have written is what the store was at first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from millstream.processors.batch import OrderKey
from millstream.processors.version_history import VersionHistory
from millstream.state.stores.cell_store import Cell, CellStore
from millstream.state.stores.versioned import VersionedKeyValueStore

__all__ = ["TableHistory"]

_Changes: TypeAlias = tuple[list[OrderKey], list[Cell]]
_Before: TypeAlias = Callable[[Iterable[bytes]], Mapping[bytes, Cell]]


class TableHistory:
    """The writes of one pass to one store.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> spec = stores.timestamped_key_value("prices")
    >>> prices = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
    >>> history = TableHistory()
    >>> history.before(prices, [b"bread"])
    >>> prices.save({b"bread": (4, 20)})
    >>> history.add([b"bread", b"bread"], [(1,), (5,)], [(3, 10), (4, 20)])
    >>> history.as_of(prices, [b"bread", b"bread", b"bread"], [(0,), (1, 1), (6,)])
    [None, (3, 10), (4, 20)]
    """

    __slots__ = ("_before", "_changes", "versions")

    def __init__(self) -> None:
        self.versions = VersionHistory()
        """The same by time, if the store has versions."""
        self._changes: dict[bytes, _Changes] = {}
        self._before: list[tuple[frozenset[bytes], _Before]] = []

    def begin_pass(self) -> None:
        """Another batch comes, or the commit: the store is what it is."""
        self._changes.clear()
        self._before.clear()
        self.versions.begin_pass()

    def changed_keys(self) -> list[bytes]:
        """The keys that the pass has written so far."""
        return list(self._changes)

    def before(self, store: CellStore[Any], keys: Iterable[bytes]) -> None:
        """These keys are about to be written: note what they are now, unless that is known already."""
        new = frozenset(keys) - self._changes.keys()
        if new:
            self._before.append((new, store.as_of_now(new)))
        if isinstance(store, VersionedKeyValueStore):
            self.versions.before(store, new)

    def add(self, keys: Sequence[bytes], orders: Sequence[OrderKey], cells: Iterable[Cell]) -> None:
        """Rows at these places have written these cells, in ascending order."""
        for key, order, cell in zip(keys, orders, cells, strict=True):
            places, written = self._changes.setdefault(key, ([], []))
            places.append(order)
            written.append(cell)

    def as_of(
        self, store: CellStore[Any], keys: Sequence[bytes | None], orders: Sequence[OrderKey] | None
    ) -> list[Cell]:
        """The cells of keys as of places in the order; without a place, as they are now."""
        distinct = {key for key in keys if key is not None}
        if orders is None or not self._changes:
            cells = store.load_frozen(distinct)
            return [None if key is None else cells[key] for key in keys]
        changes = self._changes
        cells = dict(store.load_frozen(distinct - changes.keys()))
        cells.update(self._at_first(distinct & changes.keys()))
        return _at_places(changes, cells, keys, orders)

    def _at_first(self, keys: set[bytes]) -> Iterator[tuple[bytes, Cell]]:
        """What keys that have been written since were before."""
        for known, read in self._before:
            wanted = known & keys
            if wanted:
                yield from read(wanted).items()
                keys -= wanted


def _at_places(
    changes: Mapping[Any, _Changes],
    cells: Mapping[Any, Cell],
    keys: Sequence[bytes | None],
    orders: Sequence[OrderKey],
) -> list[Cell]:
    found = list(map(cells.get, keys))
    for row, changed in enumerate(map(changes.get, keys)):
        if changed is not None:
            # A row that follows from the one that wrote has its place behind it: it sees what was written.
            place = bisect_right(changed[0], orders[row])
            if place:
                found[row] = changed[1][place - 1]
    return found
