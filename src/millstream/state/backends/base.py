"""What all backends do alike, in one place, so that they cannot differ in it.

A backend subclasses :class:`CheckedBackend` and brings eight small methods with a leading underscore. Here
are the checks (open, strictly ascending), the paging of scans, the rule that a write ends open scans, and the
way a snapshot becomes visible whole.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import itemgetter, lt
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from millstream import failpoints
from millstream.durable import ensure_private_folder
from millstream.state.backends.api import Backend, Entry, KeyRange, Row, StoreSize
from millstream.state.backends.folder import StoreFolder, whole_folder
from millstream.state.errors import ScanInvalidatedError, StoreClosedError, UnsortedKeysError

__all__ = ["CheckedBackend", "check_ascending"]

_PINNED: Final = ".pinned"
_FIRST_PAGE_ROWS: Final = 32
"""Most scans are short: a few windows of a key, one session."""
_LARGEST_PAGE_ROWS: Final = 4096
_PAGE_BYTES: Final = 1 << 20
"""What a page may hold, judged by the rows of the page before it."""


class CheckedBackend(Backend, ABC):
    """A backend with everything but the storage. Whoever subclasses it may rely on checked arguments."""

    def __init__(self, folder: StoreFolder) -> None:
        self._folder = folder
        self._changes = 0
        self._closed = False
        folder.taken_by(self)

    def get_many(self, keys: Sequence[bytes], /) -> list[bytes | None]:
        """Check, then :meth:`_get_many`."""
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
        """Check, end open scans, then :meth:`_write`, in steps if that is allowed."""
        self._in_steps(self._write, entries, marker, drop, between)

    def bulk_load(
        self,
        entries: Iterable[Entry],
        /,
        marker: bytes,
        drop: KeyRange | None = None,
        between: bytes | None = None,
    ) -> None:
        """Check, end open scans, then :meth:`_bulk_load`, in steps if that is allowed."""
        self._in_steps(self._bulk_load, entries, marker, drop, between)

    def marker(self) -> bytes | None:
        """Check, then :meth:`_marker`."""
        self._check_open()
        return self._marker()

    def scan(self, start: bytes | None = None, end: bytes | None = None) -> Iterator[Row]:
        """Iterate over :meth:`_page` after page."""
        self._check_open()
        return self._rows(start or b"", end, self._changes, reverse=False)

    def scan_reverse(self, start: bytes | None = None, end: bytes | None = None) -> Iterator[Row]:
        """Iterate over :meth:`_page` after page, backwards."""
        self._check_open()
        return self._rows(start or b"", end, self._changes, reverse=True)

    def size(self) -> StoreSize:
        """Check, then :meth:`_size`."""
        self._check_open()
        return self._size()

    def snapshot(self, path: Path) -> None:
        """Begin it and finish it."""
        with self.begin_snapshot(path) as finish:
            finish()

    @contextmanager
    def begin_snapshot(self, path: Path) -> Iterator[Callable[[], None]]:
        """Check, then have the store :meth:`_pinned` for a copy that becomes ``path`` when it is whole."""
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

    def sync(self) -> None:
        """Check, then :meth:`_sync`."""
        self._check_open()
        self._sync()

    def close(self) -> None:
        """End open scans, then :meth:`_close`, once."""
        if not self._closed:
            self._closed = True
            self._changes += 1
            try:
                self._close()
            finally:
                self._folder.let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    def _rows_of_a_step(self) -> int | None:
        """How many entries to write at once where a write may be done in steps; None: all of them."""
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
        rows, gone = self._checked(entries), _not_empty(drop)
        most = None if between is None else self._rows_of_a_step()
        if between is None or most is None or len(rows) <= most:
            write(rows, marker, gone)
            return
        for start in range(0, len(rows), most):
            end = start + most
            write(rows[start:end], between if end < len(rows) else marker, gone)
            failpoints.hit("state.step_written")
            gone = None

    def _checked(self, entries: Iterable[Entry]) -> list[Entry]:
        self._check_open()
        rows = entries if isinstance(entries, list) else list(entries)
        check_ascending(list(map(itemgetter(0), rows)))
        self._changes += 1  # before the write: a scan must not go on after one that failed half-way, either
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

    def _check_unchanged(self, changes: int) -> None:
        self._check_open()
        if self._changes != changes:
            raise ScanInvalidatedError(
                f"The store {self._folder} was written while a scan of it was open. Likely cause: an "
                "iterator was kept from one epoch to the next. Remedy: finish or drop the iterator first, "
                "or copy what it gives into a list."
            )


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


def _not_empty(drop: KeyRange | None) -> KeyRange | None:
    return drop if drop is not None and drop[0] < drop[1] else None


def _next_limit(rows: list[Row]) -> int:
    held = sum(len(key) + len(value) for key, value in rows)
    return max(1, min(_LARGEST_PAGE_ROWS, 4 * len(rows), len(rows) * _PAGE_BYTES // (held + 1)))


def _shortened(key: bytes, most: int = 24) -> str:
    return repr(key) if len(key) <= most else f"{key[:most]!r}... ({len(key)} bytes)"
