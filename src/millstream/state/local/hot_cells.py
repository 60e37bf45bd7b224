"""What an open store was asked for lately, in memory, from epoch to epoch: bytes as they are committed.

It stands between an epoch's overlay and the backend, and has nothing in it that is not in the backend: what
was read from it, and what a commit has written to it. An epoch that is given up has only its overlay to lose.
There are no objects in it, so nothing that a user's function changes in place can outlive the epoch.

Large epochs read past it: to note each of a hundred thousand keys would cost more than to read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.state.backends.api import KeyRange, StoreSize
from millstream.state.stores.overlay import CommittedReader
from millstream.state.stores.written_columns import Entry

__all__ = ["CellBudget", "HotCells"]

MOST_BYTES: Final = 64 << 20
"""Of all stores of a process together."""
_STORE_BYTES: Final = 8 << 20
_CELL_BYTES: Final = 200
"""What a cell costs besides its own bytes."""
_MANY_KEYS: Final = 2_000
"""So many keys at once, or more, are not worth noting."""


@dataclass(slots=True)
class CellBudget:
    """How many bytes the cells of several stores take, and may take."""

    most: int = MOST_BYTES
    used: int = 0


class HotCells(CommittedReader):
    """A backend with a memory. One thread at a time.

    >>> from millstream.state.backends.memory import MemoryBackend
    >>> backend = MemoryBackend()
    >>> cells = HotCells(backend, CellBudget())
    >>> cells.get_many([b"a"])
    [None]
    >>> backend.write([(b"a", b"1")], marker=b"")
    >>> cells.written([(b"a", b"1")])
    >>> cells.get_many([b"a", b"b"])
    [b'1', None]
    """

    def __init__(self, backend: CommittedReader, budget: CellBudget, most: int = _STORE_BYTES) -> None:
        self._backend = backend
        self._budget = budget
        self._most = most
        self._young: dict[bytes, bytes | None] = {}
        self._old: dict[bytes, bytes | None] = {}
        """Those that were not asked for since the young ones were too many."""
        self._young_bytes = self._old_bytes = 0

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if len(keys) >= _MANY_KEYS:
            return self._backend.get_many(keys)
        young, old = self._young, self._old
        missing = [key for key in keys if key not in young]
        unknown = [key for key in missing if key not in old] if old else missing
        if missing:
            fresh = dict(zip(unknown, self._backend.get_many(unknown), strict=True)) if unknown else {}
            fresh.update((key, old[key]) for key in missing if key in old)
            found = [fresh[key] if key in fresh else young[key] for key in keys]
            self._note(fresh)
            return found
        return [young[key] for key in keys]

    def written(self, entries: Sequence[Entry]) -> None:
        """Take over what was just written to the backend."""
        if len(entries) >= _MANY_KEYS:
            self.forget()
        else:
            self._note(dict(entries))

    def forget(self) -> None:
        """Hold nothing: the backend was written to in another way, or is closed."""
        self._budget.used -= self._young_bytes + self._old_bytes
        self._young, self._old = {}, {}
        self._young_bytes = self._old_bytes = 0

    def _note(self, cells: dict[bytes, bytes | None]) -> None:
        added = _CELL_BYTES * len(cells) + sum(map(len, cells)) + sum(map(len, filter(None, cells.values())))
        self._young.update(cells)
        self._young_bytes += added  # a key that was there already counts twice, until it is old
        self._budget.used += added
        if 2 * self._young_bytes > self._most:
            self._budget.used -= self._old_bytes
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = {}, 0
        if self._budget.used > self._budget.most:
            self.forget()

    # As the backend does it.

    def scan(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return self._backend.scan(start, end)

    def scan_reverse(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return self._backend.scan_reverse(start, end)

    def scan_ranges(self, ranges: Sequence[KeyRange], /) -> Iterator[tuple[bytes, bytes]]:
        return self._backend.scan_ranges(ranges)

    def size(self) -> StoreSize:
        return self._backend.size()
