"""What a process that has stores open is asked for from outside, and how it answers. Runs in that process.

A read **begins** at a store that is whole, at a version or a later one, and goes on, if it takes several
answers, at that same version, by the number of a pin. All answers have bounds in rows and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.commit.store_opening import bring_for_read
from millstream.commit.worker import Worker
from millstream.state.backends.api import StoreSize
from millstream.state.errors import StoreNotHereError
from millstream.state.local.readable_stores import ReadableStores
from millstream.state.local.task_stores import TaskStores
from millstream.state.stores.pinned import Page, PinnedStore
from millstream.types import Version

__all__ = [
    "MOST_BYTES",
    "MOST_KEYS",
    "MOST_ROWS",
    "Began",
    "Keys",
    "Read",
    "Scan",
    "Size",
    "StoreAt",
    "begin_read",
    "end_read",
    "go_on",
]

MOST_KEYS: Final = 1_000
MOST_ROWS: Final = 4_096
MOST_BYTES: Final = 1 << 20
"""Of an answer. A single row may have more."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Strictly ascending keys. Answered by the values, of the first ones at least."""

    keys: tuple[bytes, ...]

    def of(self, store: PinnedStore) -> list[bytes | None]:
        """The answer."""
        return store.get_many(self.keys[:MOST_KEYS], MOST_BYTES)


@dataclass(frozen=True, slots=True)
class Scan:
    """From `start` (inclusive) to `end` (exclusive). Answered by the first rows, or in reverse the last."""

    start: bytes | None
    end: bytes | None
    is_reverse: bool
    most_rows: int = MOST_ROWS

    def of(self, store: PinnedStore) -> Page:
        """The answer."""
        return store.page(self.start, self.end, self.most_rows, MOST_BYTES, reverse=self.is_reverse)


@dataclass(frozen=True, slots=True)
class Size:
    """Answered by about how large the store is."""

    def of(self, store: PinnedStore) -> StoreSize:
        """The answer."""
        return store.size()


Read: TypeAlias = Keys | Scan | Size
Answer: TypeAlias = list[bytes | None] | Page | StoreSize


@dataclass(frozen=True, slots=True)
class StoreAt:
    """Which store of which task is read, and what it must hold."""

    planned: PlannedTask
    store: str
    at_least: Version
    entry: TaskEntry | None
    """The last commit of a task that is asked where it runs: its stores are opened, and brought to it, if
    they are not. None: a copy, which is as far as it is."""
    wait_s: float
    """How long stores are waited for that are on the way."""
    is_pinned: bool
    """Other reads will follow, at the same version."""


@dataclass(frozen=True, slots=True)
class Began:
    """The first answer of a read."""

    version: Version
    pin: int | None
    """By which it goes on; None: it was all."""
    answer: Answer


def begin_read(worker: Worker, at: StoreAt, read: Read) -> Began:
    """Answer at the version that the store is at. A scan that is not at its end can go on there."""
    readable = _readable(worker)
    with _stores_at(worker, readable, at) as (stores, version):
        pin = PinnedStore(stores.backends[at.store])
        try:
            answer = read.of(pin)
            if at.is_pinned or (isinstance(answer, Page) and not answer.is_end):
                return Began(version, readable.keep(pin), answer)
        except BaseException:
            pin.close()
            raise
        pin.close()
        return Began(version, None, answer)


def go_on(worker: Worker, pin: int, read: Read) -> Answer:
    """Answer at the version at which a read began."""
    return read.of(_readable(worker).pinned(pin))


def end_read(worker: Worker, pin: int) -> None:
    """A read that has begun is over."""
    _readable(worker).let_go(pin)


@contextmanager
def _stores_at(worker: Worker, readable: ReadableStores, at: StoreAt) -> Iterator[tuple[TaskStores, Version]]:
    task_id = at.planned.task_id
    found = readable.find(task_id)
    if at.entry is not None and (found is None or found.whole.now < at.at_least):
        bring_for_read(worker, at.planned, at.entry, at.wait_s)
        found = readable.find(task_id)
    if found is None:
        raise StoreNotHereError(f"the stores of task {task_id} are not open there")
    with found.whole.read(at.at_least, at.wait_s) as version:
        yield found, version


def _readable(worker: Worker) -> ReadableStores:
    if worker.readable is None:
        raise StoreNotHereError("a process that does not stay has no stores to read")
    return worker.readable
