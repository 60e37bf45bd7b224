"""The store of one task, read in the process that has it: what a view's stores stand on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from millstream.query.store_reads import (
    MOST_KEYS,
    MOST_ROWS,
    Began,
    Keys,
    Read,
    Scan,
    Size,
    StoreAt,
    begin_read,
    end_read,
    go_on,
)
from millstream.state.backends.api import KeyRange, Row, StoreSize
from millstream.state.errors import PinLostError, StoreNotHereError
from millstream.state.stores.overlay import CommittedReader
from millstream.state.stores.pinned import Page
from millstream.types import Version

__all__ = ["HostReader", "Place", "StateHosts"]

T = TypeVar("T")

_ANSWER_S: Final = 5.0
"""So long a process may take for an answer, besides what it waits for stores."""
_FIRST_PAGE_ROWS: Final = 64


class Place(Protocol):
    """Where a task is, or a copy of its state."""

    @property
    def role(self) -> str:
        """What it is there: "active", "standby" or "warm-up"."""

    @property
    def host(self) -> str:
        """The host's name."""

    @property
    def slot(self) -> int:
        """The process there."""

    @property
    def version(self) -> int | None:
        """What it has said last that it has."""


class StateHosts(Protocol):
    """The processes that have the state of an application."""

    def places(self, task_id: str) -> Sequence[Place]:
        """Where a task is, and copies of its state."""

    def ask(self, slot: int, work: Callable[..., T], *arguments: Any, timeout_s: float) -> T:
        """Let a process do something with its worker. Raises a `StoreNotHereError` if it does not answer."""

    def tell(self, slot: int, work: Callable[..., object], *arguments: Any) -> None:
        """The same, if nothing is to come of it."""


class HostReader(CommittedReader):
    """All that it gives is of one version: that of its first answer."""

    def __init__(self, hosts: StateHosts, slot: int, at: StoreAt) -> None:
        self._hosts = hosts
        self._slot = slot
        self._at = at
        self._pin: int | None = None
        self.version: Version | None = None
        """None: nothing was read yet."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = []
        while len(found) < len(keys):
            found += self._read(Keys(tuple(keys[len(found) : len(found) + MOST_KEYS])))
        return found

    def scan(self, start: bytes | None, end: bytes | None) -> Iterator[Row]:
        return self._scan(start, end, is_reverse=False)

    def scan_reverse(self, start: bytes | None, end: bytes | None) -> Iterator[Row]:
        return self._scan(start, end, is_reverse=True)

    def scan_ranges(self, ranges: Sequence[KeyRange], /) -> Iterator[Row]:
        for start, end in ranges:
            yield from self._scan(start, end, is_reverse=False)

    def size(self) -> StoreSize:
        size: StoreSize = self._read(Size())
        return size

    def close(self) -> None:
        """The process may forget the version."""
        pin, self._pin = self._pin, None
        if pin is not None:
            self._hosts.tell(self._slot, end_read, pin)

    def _scan(self, start: bytes | None, end: bytes | None, *, is_reverse: bool) -> Iterator[Row]:
        most_rows = _FIRST_PAGE_ROWS
        while True:
            page: Page = self._read(Scan(start, end, is_reverse, most_rows))
            yield from page.rows
            if page.is_end:
                return
            if is_reverse:
                end = page.rows[-1][0]
            else:
                start = page.rows[-1][0] + b"\0"  # the smallest key behind it
            most_rows = min(MOST_ROWS, 4 * most_rows)

    def _read(self, read: Read) -> Any:
        if self._pin is not None:
            return self._hosts.ask(self._slot, go_on, self._pin, read, timeout_s=_ANSWER_S)
        timeout_s = _ANSWER_S + self._at.wait_s
        began: Began = self._hosts.ask(self._slot, begin_read, self._at, read, timeout_s=timeout_s)
        self._pin = began.pin
        if began.version < self._at.at_least:  # the process has looked, too
            raise StoreNotHereError(
                f"version {began.version} was answered, and {self._at.at_least} is wanted"
            )
        if self.version not in (None, began.version):
            raise PinLostError(f"The store has come from version {self.version} to {began.version}.")
        self.version = began.version
        return began.answer
