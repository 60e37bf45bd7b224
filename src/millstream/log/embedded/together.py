"""Writing into many partitions, some of them at once: a disk syncs many files in hardly more time than one.

1. Write into some partitions. All of their locks are held until step 3; who comes from elsewhere asks for
   them in the same order.
2. Sync what was written: beside the writing into the next ones. Many files are synced with their file system
   as a whole, if that is possible and worth it, else one by one in a few threads.
3. Acknowledge what is durable, and let the locks go.

A partition that can't be written to does not keep the others from it: what failed first is raised when all
have had their turn. So nothing is left behind a watermark that somebody would adopt later, after its writer
has been told that it failed; but by a crash.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from itertools import islice
from typing import Final, Generic, TypeVar

from millstream import failpoints
from millstream.durable import MANY_FILES, FileLayer
from millstream.errors import MillstreamError
from millstream.log.api import TopicPartition
from millstream.log.embedded.partition import PendingEntries

__all__ = ["write_together"]

R = TypeVar("R")

_FEWEST_AT_ONCE: Final = 32
_MOST_AT_ONCE: Final = 1024
"""A sync of a file system has a price of its own, whatever it finds: fewer and larger steps are quicker, but
their locks are held for longer."""
_PART_OF_DESCRIPTORS: Final = 12
"""A partition has three files open while it is written to, and those of two steps may be at once."""
_THREADS: Final = 4


def write_together(
    writing: Mapping[TopicPartition, Callable[[], PendingEntries[R]]],
    files: FileLayer,
    at_once: int | None = None,
) -> dict[TopicPartition, Sequence[R]]:
    """Write into partitions, in the given order; return the results of each.

    A failure, or a crash in the middle, leaves some of them written and others not.
    """
    results: dict[TopicPartition, Sequence[R]] = {}
    failures: list[Exception] = []
    left = iter(writing.items())
    with ExitStack() as resources:
        before: _Step[R] | None = None
        while some := dict(islice(left, at_once or partitions_at_once())):
            step: _Step[R] = _Step(files, failures)
            resources.callback(step.close)
            step.write(some)
            if before is not None:
                results.update(before.acknowledge())
            before = step
        if before is not None:
            results.update(before.acknowledge())
    if failures:
        raise failures[0]
    return results


@cache
def partitions_at_once() -> int:
    """How many partitions are written to in one step: as many as there are descriptors for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_AT_ONCE
    return max(_FEWEST_AT_ONCE, min(_MOST_AT_ONCE, soft // _PART_OF_DESCRIPTORS))


class _Step(Generic[R]):
    """Partitions that are written to at once."""

    def __init__(self, files: FileLayer, failures: list[Exception]) -> None:
        self._files = files
        self._failures = failures
        self._pending: dict[TopicPartition, PendingEntries[R]] = {}
        self._open: list[PendingEntries[R]] = []
        self._synced: list[PendingEntries[R]] = []
        self._wait: Callable[[], None] | None = None

    def write(self, writing: Mapping[TopicPartition, Callable[[], PendingEntries[R]]]) -> None:
        """Steps 1 and 2; the sync goes on."""
        for place, begin in writing.items():
            try:
                one = self._pending[place] = begin()
            except Exception as error:  # noqa: BLE001 - raised when the others have had their turn
                self._failures.append(error)
            else:
                self._open.append(one)
        works = [*self._pending.values()]
        if len(works) == 1:
            self._sync(works[0])
        else:
            self._wait = self._files.begin(self._syncs(works))

    def acknowledge(self) -> dict[TopicPartition, Sequence[R]]:
        """Step 3, when all are synced."""
        wait, self._wait = self._wait, None
        if wait is not None:
            wait()
        for one in self._synced:
            try:
                one.acknowledge()
            except (OSError, MillstreamError) as error:
                self._failures.append(error)
        self._let_go()
        return {place: one.results for place, one in self._pending.items()}

    def close(self) -> None:
        """Let the locks go, after the sync that uses the files has ended."""
        wait, self._wait = self._wait, None
        if wait is not None:
            with suppress(Exception):
                wait()
        self._let_go()

    def _let_go(self) -> None:
        with ExitStack() as locks:  # one that fails keeps no other
            while self._open:
                locks.callback(self._open.pop().close)

    def _syncs(self, works: Sequence[PendingEntries[R]]) -> list[Callable[[], None]]:
        """What makes all of it durable: works for one thread or several."""
        fds = [one.fd for one in works if one.fd is not None]
        whole = self._files.whole_sync(fds) if len(fds) >= MANY_FILES else None
        if whole is not None:
            return [partial(self._sync_as_a_whole, whole, works)]
        return [partial(self._sync_each, works[first::_THREADS]) for first in range(_THREADS)]

    def _sync_as_a_whole(self, whole: Callable[[], bool], works: Sequence[PendingEntries[R]]) -> None:
        if not whole():
            self._sync_each(works)  # which of them can't be written, its own sync tells
            return
        failpoints.hit("log.frame_synced")
        self._synced += works

    def _sync_each(self, works: Iterable[PendingEntries[R]]) -> None:
        for one in works:
            self._sync(one)

    def _sync(self, entries: PendingEntries[R]) -> None:
        try:
            entries.sync()
        except (OSError, MillstreamError) as error:
            self._failures.append(error)
        else:
            self._synced.append(entries)
