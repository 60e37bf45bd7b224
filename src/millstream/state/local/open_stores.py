"""Stores that stay open from epoch to epoch, in the process that runs their tasks.

A task's stores, and the lock of its directory, are held from the first epoch that opens them until the task
runs elsewhere, or too many others are open. What a task has sealed is kept until its epoch is committed, and
is then applied from memory: to the stores at the version before it, if the commit names that very file.
Anything else closes the stores, and they are opened, and follow their changelogs, as always. So stores are at
committed versions only, and what an epoch that was given up has made is never applied. Hot cells
(:mod:`millstream.state.local.hot_cells`) live and die with the open store whose bytes they are.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from millstream.state.backends.api import Backend
from millstream.state.errors import StoreNotHereError, TaskLockedError
from millstream.state.local.hot_cells import CellBudget
from millstream.state.local.task_stores import NewerStores, TaskStores, TaskVersion
from millstream.state.stores.overlay import CommittedReader, Entry
from millstream.types import Version

MOST_TASKS: Final = 1_024
"""So many tasks have their stores open at once; those that were not used for longest are closed."""
_SPARE_DESCRIPTORS: Final = 256
_TASK_DESCRIPTORS: Final = 8
"""For connections and the log; and for the stores of a task, about."""
_LONGEST_WAIT_S: Final = 600.0
"""For a snapshot that copies the stores of a task in this process, also very large ones."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a task has sealed in an epoch that is not known to be committed."""

    version: Version
    digest: str
    before: tuple[Version, str]
    """Version and digest of what it was made on top of."""
    changes: Mapping[str, Sequence[Entry]]


def most_tasks() -> int:
    """For how many tasks this process has descriptors, after it has asked for as many as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _SPARE_DESCRIPTORS + _TASK_DESCRIPTORS * MOST_TASKS
    if resource.RLIM_INFINITY != soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):  # some systems have a lower bound of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_TASKS
    return max(1, min(MOST_TASKS, (soft - _SPARE_DESCRIPTORS) // _TASK_DESCRIPTORS))


class OpenStores:
    """The stores that this process has open. One task's stores are used by one thread at a time."""

    def __init__(self, most: int = MOST_TASKS) -> None:
        self._most = most
        self._cells = CellBudget()
        self._held: dict[str, TaskStores] = {}
        """Those used last come last."""
        self._sealed: dict[str, Sealed] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._assigned: frozenset[str] = frozenset()

    @contextmanager
    def opened(
        self, task_id: str, wanted: TaskVersion, open_now: Callable[[], TaskStores], newer: NewerStores
    ) -> Iterator[dict[str, Backend]]:
        """A task's stores at a version, for the length of a `with` block; they stay open after it.

        A snapshot (`NewerStores.TAKE`) does not make them stay: its task may be elsewhere by now.
        """
        with self._used(task_id):
            held = self._at(task_id, wanted, newer)
            if held is None and newer is NewerStores.TAKE:
                with open_now() as opened:
                    yield opened.backends
                return
            if held is None:
                held = open_now()
                held.remember_cells(self._cells)
            self._held[task_id] = held
            try:
                yield held.backends
            except BaseException:
                if newer is NewerStores.REFUSE:  # a snapshot changes nothing
                    self._close(task_id)
                raise
        self._close_oldest(task_id)

    def readers(self, task_id: str) -> Mapping[str, CommittedReader]:
        """A task's stores as its epoch reads them, within the `with` block of :meth:`opened`."""
        return self._held[task_id].readers

    def sealed(self, task_id: str, sealed: Sealed) -> None:
        """Keep what a task has sealed, until it is known what becomes of it."""
        self._sealed[task_id] = sealed

    def committed(self, task_id: str, wanted: TaskVersion) -> None:
        """Apply what a task has sealed, if it is what was committed."""
        with self._used(task_id):
            held = self._at(task_id, wanted, NewerStores.REFUSE)
            if held is not None and any(backend.is_mostly_free() for backend in held.backends.values()):
                self._close(task_id)  # it is made small when it is opened

    def brought_for_read(
        self, task_id: str, wanted: TaskVersion, open_now: Callable[[], TaskStores], wait_s: float
    ) -> None:
        """Have a task's stores open at a version, or a later one, for a thread that reads them.

        As its next epoch would: what was sealed is applied, for the version is committed. They stay open, so
        the task has to be one of those that run here.
        """
        with self._used(task_id, wait_s):
            held = self._held.get(task_id)
            if held is not None and held.version.version >= wanted.version:
                return
            if self._at(task_id, wanted, NewerStores.TAKE) is not None:
                return
            if task_id in self._assigned:
                held = open_now()
                held.remember_cells(self._cells)
                self._held[task_id] = held
            if task_id not in self._assigned:  # any more: whoever runs it now needs its lock
                self._close(task_id)
                raise StoreNotHereError(f"task {task_id} does not run here")
        self._close_oldest(task_id)

    def assign(self, tasks: Collection[str]) -> None:
        """The tasks that run in this process from now on. The stores of all others are closed."""
        self._assigned = frozenset(tasks)
        self.keep_only(tasks)

    def keep_only(self, tasks: Collection[str]) -> None:
        """Close the stores of all other tasks: they run elsewhere."""
        for task_id in [*self._held.keys(), *self._sealed.keys()]:
            if task_id not in tasks:
                with self._used(task_id):
                    self._close(task_id)

    def close(self) -> None:
        """Close all stores, for good."""
        self.assign(())

    def versions(self) -> dict[str, Version]:
        """The versions of the stores that are open."""
        return {task_id: held.version.version for task_id, held in [*self._held.items()]}

    def _used(self, task_id: str, wait_s: float = _LONGEST_WAIT_S) -> _Use:
        lock = self._locks.get(task_id)
        return _Use(task_id, lock or self._locks.setdefault(task_id, threading.Lock()), wait_s)

    def _at(self, task_id: str, wanted: TaskVersion, newer: NewerStores) -> TaskStores | None:
        """The open stores, brought to a version; None if there are none, or they can't be brought there."""
        held = self._held.pop(task_id, None)
        sealed = self._sealed.get(task_id)
        if held is None:
            return None
        self._held[task_id] = held
        here, there = _identity(held.version), _identity(wanted)
        if sealed is not None and (sealed.before, (sealed.version, sealed.digest)) == (here, there):
            try:
                held.advance(wanted, sealed.changes)
            except BaseException:
                self._close(task_id)
                raise
            here = there
        if here == there or (newer is NewerStores.TAKE and here[0] > there[0]):
            if newer is NewerStores.REFUSE:
                self._sealed.pop(task_id, None)  # applied, or of an attempt that was given up
            return held
        self._close(task_id)
        return None

    def _close_oldest(self, used: str) -> None:
        too_many = len(self._held) - self._most
        for task_id in list(islice(self._held, too_many)) if too_many > 0 else ():
            if task_id != used:
                with self._used(task_id):
                    self._close(task_id)

    def _close(self, task_id: str) -> None:
        self._sealed.pop(task_id, None)
        held = self._held.pop(task_id, None)
        if held is not None:
            held.close()


class _Use:
    """Has a task's stores for one thread, in a `with` block. A class: a generator costs more than a lock."""

    __slots__ = ("_lock", "_task_id", "_wait_s")

    def __init__(self, task_id: str, lock: threading.Lock, wait_s: float) -> None:
        self._task_id = task_id
        self._lock = lock
        self._wait_s = wait_s

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._wait_s):
            raise TaskLockedError(
                f"The stores of task {self._task_id} are used by another thread for more than "
                f"{self._wait_s:.0f} s. Likely cause: a snapshot of a very large store on a slow disk. "
                "Remedy: wait for it, or take snapshots less often."
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _identity(version: TaskVersion) -> tuple[Version, str]:
    return version.version, version.sealed_digest
