"""A store as it was at one version, for a reader beside the thread that writes it.

Nothing is copied when a store is pinned. Whoever writes to it keeps what a pin has yet to see: the values
that are about to be overwritten become an overlay of the pin, over the store as it is by then. That is the
same for all backends, and costs nothing where nobody reads, or nothing is written meanwhile.

A pin is given up if it holds too much, if nobody has asked it for long, or if segments expire as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from millstream.state.backends.api import Backend, Entry, KeyRange, Row, StoreSize
from millstream.state.errors import PinLostError
from millstream.state.stores.overlay import Overlay

__all__ = ["Page", "PinnedStore"]

MOST_BYTES: Final = 16 << 20
"""What a pin may hold of values that were overwritten since."""
LONGEST_IDLE_S: Final = 30.0
_ROW_BYTES: Final = 200
"""What a row costs in memory besides its own bytes."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a scan, and whether they are the last ones."""

    rows: list[Row]
    is_end: bool


class PinnedStore:
    """What a backend holds now, whatever is written to it. Used by one thread at a time.

    >>> from millstream.state.backends.memory import MemoryBackend
    >>> backend = MemoryBackend()
    >>> backend.write([(b"a", b"1")], marker=b"")
    >>> pinned = PinnedStore(backend)
    >>> backend.write([(b"a", b"2"), (b"b", b"2")], marker=b"")
    >>> pinned.get_many([b"a", b"b"], 100)
    [b'1', None]
    >>> pinned.page(None, None, 10, 100, reverse=False)
    Page(rows=[(b'a', b'1')], is_end=True)
    >>> pinned.close()
    """

    def __init__(self, backend: Backend, most_bytes: int = MOST_BYTES) -> None:
        self._backend = backend
        self._before = Overlay(backend)
        """What was there, of what is not there any more."""
        self._bytes = 0
        self._most_bytes = most_bytes
        self._lost = ""
        """Why it can't be read any more."""
        self.used = time.monotonic()
        self._unwatch = backend.watch(self._keep)

    def get_many(self, keys: Sequence[bytes], most_bytes: int) -> list[bytes | None]:
        """Values of strictly ascending keys; of the first of them only, if these are as many bytes."""
        with self._reading():
            found: list[bytes | None] = []
            held = 0
            for key in keys:
                value = self._before.get(key)
                found.append(value)
                held += len(value or b"")
                if held >= most_bytes:
                    break
            return found

    def page(
        self, start: bytes | None, end: bytes | None, most_rows: int, most_bytes: int, *, reverse: bool
    ) -> Page:
        """The first rows of a range, or in reverse the last, descending; at least one, if there is any."""
        with self._reading():
            scan = self._before.scan_reverse if reverse else self._before.scan
            rows: list[Row] = []
            held = 0
            for row in scan(start, end):
                rows.append(row)
                held += len(row[0]) + len(row[1])
                if len(rows) >= most_rows or held >= most_bytes:
                    return Page(rows, is_end=False)
            return Page(rows, is_end=True)

    def size(self) -> StoreSize:
        """About how large the store is now."""
        with self._reading():
            return self._backend.size()

    def close(self) -> None:
        """Let the store go on without it. By any thread: one that reads it is waited for."""
        with self._backend.unwritten:
            self._lose("it was let go")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self.used = time.monotonic()
        with self._backend.unwritten.reading():
            if self._lost:
                raise PinLostError(f"What was read can't be read on at the same version: {self._lost}.")
            yield

    def _keep(self, entries: list[Entry], drop: KeyRange | None) -> None:
        """Before a write, by the thread that writes."""
        if self._lost:
            return
        if drop is not None:
            self._lose("rows have expired meanwhile")
            return
        if time.monotonic() - self.used > LONGEST_IDLE_S:
            self._lose(f"nobody has asked for {LONGEST_IDLE_S:.0f} s")
            return
        known = self._before.written(key for key, _ in entries)
        fresh = [key for key, _ in entries if key not in known]
        if not fresh:
            return
        values = self._backend.get_many(fresh)
        self._bytes += sum(_ROW_BYTES + len(key) for key in fresh) + sum(map(len, filter(None, values)))
        if self._bytes > self._most_bytes:
            self._lose(f"commits have changed more than {self._most_bytes >> 20} MB of the store meanwhile")
            return
        self._before.put_many(zip(fresh, values, strict=True))

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        self._unwatch()
        self._before.clear()
