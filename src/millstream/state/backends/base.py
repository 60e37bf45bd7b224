"""One store's bytes: what a backend promises, and what all of them do alike, so that none differs in it.

A backend subclasses :class:`Backend` and brings eight small methods with a leading underscore. Here are the
checks (open, strictly ascending), the paging of scans, the rule that a write ends open scans, and the way a
snapshot becomes visible whole. :mod:`.api` says what may be relied on, and why it is so.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from operator import itemgetter, lt
from pathlib import Path
from typing import Final, Self, TypeAlias, TypeVar

from millstream import failpoints
from millstream.durable import ensure_private_folder
from millstream.state.backends.folder import StoreFolder, whole_folder
from millstream.state.backends.write_lock import WriteLock
from millstream.state.errors import ScanInvalidatedError, StoreClosedError, UnsortedKeysError

_PINNED: Final = ".pinned"
_FIRST_PAGE_ROWS: Final = 32
"""Most scans are short: a few windows of a key, one session."""
_LARGEST_PAGE_ROWS: Final = 4096
_DENSE_FROM: Final = 4
"""One row of so many is wanted: then reading on is cheaper than beginning anew at the next range."""
_PAGE_BYTES: Final = 1 << 20
"""What a page may hold, judged by the rows of the page before it."""


Entry: TypeAlias = tuple[bytes, bytes | None]
"""A key and its new value, or None to delete it."""

Row: TypeAlias = tuple[bytes, bytes]
"""A key and its value."""

KeyRange: TypeAlias = tuple[bytes, bytes]
"""From a key (inclusive) to another one (exclusive)."""


@dataclass(frozen=True, slots=True)
class StoreSize:
    """About how large a store is."""

    approximate_entries: int
    bytes: int
    """On disk, files that are still to be compacted included; for memory, the keys and values."""

    def __add__(self, other: StoreSize) -> StoreSize:
        return StoreSize(self.approximate_entries + other.approximate_entries, self.bytes + other.bytes)


NO_STATE: Final = StoreSize(0, 0)
"""The size of a task without stores."""


BeforeWrite: TypeAlias = Callable[[list[Entry], KeyRange | None], None]
"""Is told what a write will put or delete, and the range that it drops first."""

B = TypeVar("B", bound="Backend")


class Backend(ABC):
    """One store's bytes. Whoever subclasses it brings the storage, and may rely on checked arguments."""

    def __init__(self, folder: StoreFolder) -> None:
        self._folder = folder
        self._changes = 0
        self._closed = False
        self.unwritten = WriteLock()
        """Held while the store is written or closed, and by threads that read beside the one that uses it."""
        self._watchers: list[BeforeWrite] = []
        folder.opened_by(self)

    def get_many(self, keys: Sequence[bytes], /) -> list[bytes | None]:
        """Return the values of strictly ascending keys, in their order; None where there is none."""
        self._check_open()
        wanted = keys if isinstance(keys, list) else list(keys)
        check_ascending(wanted)
        return self._get_many(wanted) if wanted else []

    def write(
        self,
        entries: Iterable[Entry],
        /,
        marker: bytes,
        drop: KeyRange | None = None,
        between: bytes | None = None,
    ) -> None:
        """Apply strictly ascending entries and set the marker, atomically. What is deleted may be absent.

        All rows in the range ``drop`` are removed first, in the same atomic step. Where ``between`` is given
        the write may be done in steps, the first of them with the drop: until the last one, ``between`` is
        the marker. Whoever gives it can do all of the write again.
        """
        self._in_steps(self._write, entries, marker, drop, between)

    def bulk_load(
        self,
        entries: Iterable[Entry],
        /,
        marker: bytes,
        drop: KeyRange | None = None,
        between: bytes | None = None,
    ) -> None:
        """Do what :meth:`write` does, the fastest way for one of many large batches (a restore).

        Fastest if each batch lies behind the last one. 50,000 entries and more are a good batch; it is held
        in memory.
        """
        self._in_steps(self._bulk_load, entries, marker, drop, between)

    def marker(self) -> bytes | None:
        """Return the marker of the last write; None if there never was one."""
        self._check_open()
        return self._marker()

    def scan(self, start: bytes | None = None, end: bytes | None = None) -> Iterator[Row]:
        """Iterate from ``start`` (inclusive) to ``end`` (exclusive), ascending; None leaves a side open."""
        self._check_open()
        return self._rows(start or b"", end, self._changes, reverse=False)

    def scan_reverse(self, start: bytes | None = None, end: bytes | None = None) -> Iterator[Row]:
        """Iterate over the same rows, descending."""
        self._check_open()
        return self._rows(start or b"", end, self._changes, reverse=True)

    def scan_ranges(self, ranges: Sequence[KeyRange], /) -> Iterator[Row]:
        """Iterate over the rows of ascending ranges that do not overlap, ascending.

        What lies between two ranges that are close together is read with them, and left out.
        """
        self._check_open()
        return self._rows_in(ranges, self._changes)

    def size(self) -> StoreSize:
        """Return about how large the store is; cheap."""
        self._check_open()
        return self._size()

    def snapshot(self, path: Path) -> None:
        """Write a durable copy of the store to the new folder ``path``, whole or not at all.

        It is for :meth:`BackendSupplier.restore`, may be moved, and must not be changed: it can share
        (immutable) files with the store.
        """
        with self.begin_snapshot(path) as finish:
            finish()

    @contextmanager
    def begin_snapshot(self, path: Path) -> Iterator[Callable[[], None]]:
        """Pin the store as it is now; what the block gets is called in it and writes the snapshot.

        Meanwhile the store may be closed, and another process may open and write it: so whoever holds a lock
        on it may let go before the slow part. This process can't open it again before the block ends.
        """
        self._check_open()
        spare = path.with_name(path.name + _PINNED)
        shutil.rmtree(spare, ignore_errors=True)  # what a killed process left
        ensure_private_folder(path.parent)

        def finish() -> None:
            with whole_folder(path) as partial:
                copy_to(partial)
                self._folder.describe_snapshot(partial)

        try:
            with self._pinned(spare) as copy_to:
                yield finish
        finally:
            shutil.rmtree(spare, ignore_errors=True)

    def watch(self, before_write: BeforeWrite) -> Callable[[], None]:
        """Call `before_write` before each write, under `unwritten`; what is returned ends that."""
        self._watchers.append(before_write)
        return partial(self._forget, before_write)

    def is_mostly_free(self) -> bool:
        """Tell whether the rows take a small part of the disk that the store takes; cheap."""
        return False

    def compact(self) -> bool:
        """Give back the disk that deleted rows take; False if it takes a snapshot and a restore to do so."""
        return False

    def sync(self) -> None:
        """Make everything written so far survive a power cut."""
        self._check_open()
        self._sync()

    def close(self) -> None:
        """Let go of files and memory; closing twice is fine. Nothing written is lost."""
        if not self._closed:
            with self.unwritten:
                self._closed = True
                self._changes += 1
                try:
                    self._close()
                finally:
                    self._folder.closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<{type(self).__name__} {self._folder}{state}>"

    # What a backend brings.

    @abstractmethod
    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Values of the keys (strictly ascending, at least one)."""

    @abstractmethod
    def _write(self, entries: list[Entry], marker: bytes, drop: KeyRange | None) -> None:
        """Drop a range, apply the entries (strictly ascending, perhaps none), set the marker, atomically."""

    def _bulk_load(self, entries: list[Entry], marker: bytes, drop: KeyRange | None) -> None:
        self._write(entries, marker, drop)

    def _rows_of_a_step(self, rows: int) -> int | None:
        """How many of so many entries to write at once where that may be done in steps; None: all of them."""
        del rows
        return None

    @abstractmethod
    def _marker(self) -> bytes | None:
        """The marker of the last write."""

    @abstractmethod
    def _page(self, start: bytes, end: bytes | None, limit: int, *, reverse: bool) -> list[Row]:
        """First ``limit`` rows from ``start`` (inclusive) to ``end`` (exclusive), fewer if that is all.

        In reverse the last ``limit`` rows of the same range, descending.
        """

    @abstractmethod
    def _size(self) -> StoreSize:
        """About how large the store is."""

    @abstractmethod
    def _copy_to(self, folder: Path) -> None:
        """Write a copy of the store into ``folder``, which does not exist yet."""

    @contextmanager
    def _pinned(self, spare: Path) -> Iterator[Callable[[Path], object]]:
        """Give what :meth:`_copy_to` would do now, to be done later; ``spare`` is a folder's name to use.

        This default copies now and renames later. It is good enough where a copy costs little.
        """
        self._copy_to(spare)
        yield spare.rename

    @abstractmethod
    def _sync(self) -> None:
        """Make what was written survive a power cut, if it can."""

    @abstractmethod
    def _close(self) -> None:
        """Let go of everything. Called once."""

    # What they share.

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(
                f"The store {self._folder} is closed. Likely cause: it, or a scan of it, was kept beyond the "
                "task that opened it. Remedy: open it again."
            )

    def _in_steps(
        self,
        write: Callable[[list[Entry], bytes, KeyRange | None], None],
        entries: Iterable[Entry],
        marker: bytes,
        drop: KeyRange | None,
        between: bytes | None,
    ) -> None:
        rows = self._checked(entries)
        gone = drop if drop is not None and drop[0] < drop[1] else None
        most = None if between is None else self._rows_of_a_step(len(rows))
        if between is None or most is None or len(rows) <= most:
            self._step(write, rows, marker, gone)
            return
        for start in range(0, len(rows), most):
            end = start + most
            self._step(write, rows[start:end], between if end < len(rows) else marker, gone)
            failpoints.hit("state.step_written")
            gone = None

    def _step(
        self,
        write: Callable[[list[Entry], bytes, KeyRange | None], None],
        rows: list[Entry],
        marker: bytes,
        drop: KeyRange | None,
    ) -> None:
        with self.unwritten:
            for before_write in [*self._watchers]:
                before_write(rows, drop)
            self._changes += 1  # also if it fails half-way: a scan must not go on after it
            write(rows, marker, drop)

    def _forget(self, before_write: BeforeWrite) -> None:
        with suppress(ValueError):  # another thread was faster
            self._watchers.remove(before_write)

    def _checked(self, entries: Iterable[Entry]) -> list[Entry]:
        self._check_open()
        rows = entries if isinstance(entries, list) else list(entries)
        check_ascending(list(map(itemgetter(0), rows)))
        return rows

    def _rows(self, start: bytes, end: bytes | None, changes: int, *, reverse: bool) -> Iterator[Row]:
        limit = _FIRST_PAGE_ROWS
        while end is None or start < end:
            self._check_unchanged(changes)
            rows = self._page(start, end, limit, reverse=reverse)
            for row in rows:
                yield row
                if self._changes != changes:
                    self._check_unchanged(changes)
            if len(rows) < limit:
                return
            if reverse:
                end = rows[-1][0]
            else:
                start = rows[-1][0] + b"\0"  # the smallest key behind it
            limit = _next_limit(rows)

    def _rows_in(self, ranges: Sequence[KeyRange], changes: int) -> Iterator[Row]:
        limit, at, start = _FIRST_PAGE_ROWS, 0, b""
        while at < len(ranges):
            self._check_unchanged(changes)
            page = self._page(max(start, ranges[at][0]), ranges[-1][1], limit, reverse=False)
            found = 0
            for row in page:
                while ranges[at][1] <= row[0]:
                    at += 1
                if ranges[at][0] <= row[0]:
                    found += 1
                    yield row
                    if self._changes != changes:
                        self._check_unchanged(changes)
            if len(page) < limit:
                return
            start = page[-1][0] + b"\0"
            while at < len(ranges) and ranges[at][1] <= start:
                at += 1
            # Mostly rows that nobody wants: the ranges are far apart, and larger pages would be waste.
            limit = _next_limit(page) if found * _DENSE_FROM >= len(page) else _FIRST_PAGE_ROWS

    def _check_unchanged(self, changes: int) -> None:
        self._check_open()
        if self._changes != changes:
            raise ScanInvalidatedError(
                f"The store {self._folder} was written while a scan of it was open. Likely cause: an "
                "iterator was kept from one epoch to the next. Remedy: finish or drop the iterator first, "
                "or copy what it gives into a list."
            )


@contextmanager
def closed_on_error(backend: B) -> Iterator[B]:
    """Close a backend if the block fails; else it is the caller's."""
    try:
        yield backend
    except BaseException:
        backend.close()
        raise


def check_ascending(keys: Sequence[bytes]) -> None:
    """Refuse keys that are not sorted, or not distinct.

    >>> check_ascending([b"a", b"c", b"c"])
    Traceback (most recent call last):
    millstream.state.errors.UnsortedKeysError: Key 2 of 3 (b'c') does not come after the one before it...
    """
    if not all(map(lt, keys, islice(keys, 1, None))):
        at = next(i for i in range(1, len(keys)) if not keys[i - 1] < keys[i])
        raise UnsortedKeysError(
            f"Key {at} of {len(keys)} ({_shortened(keys[at])}) does not come after the one before it "
            f"({_shortened(keys[at - 1])}). Likely cause: keys that were not sorted by their bytes, or one "
            "key twice. Remedy: sort them, and keep the last entry of each key."
        )


def _next_limit(rows: list[Row]) -> int:
    held = sum(map(len, chain.from_iterable(rows)))
    return max(1, min(_LARGEST_PAGE_ROWS, 4 * len(rows), len(rows) * _PAGE_BYTES // (held + 1)))


def _shortened(key: bytes, most: int = 24) -> str:
    return repr(key) if len(key) <= most else f"{key[:most]!r}... ({len(key)} bytes)"
