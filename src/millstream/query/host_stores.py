"""Stores that are read where they are: in the processes that run their tasks, or keep copies of them.

Nothing is kept here but how far the answers were. Of each task that takes part an answer shows one version,
which is committed, is not before anything that the same object has answered, and was not replaced longer ago
than an answer may be stale. `version` is the epoch as of which all of the last answer is, at least.

A process that does not answer, or has not what is wanted, is left for another one; a bounded number of times.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final, Literal, Never, TypeAlias, TypeVar

import pyarrow as pa
from msgspec.structs import replace

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import Manifest
from millstream.errors import StoreError, StoreUnavailableError
from millstream.io.tables import Tabular
from millstream.query.commit_times import CommitTimes
from millstream.query.host_reader import HostReader, Place, StateHosts
from millstream.query.key_location import task_of_key
from millstream.query.replica import (
    SessionReplica,
    StoreReplica,
    VersionedReplica,
    WindowReplica,
    check_kind,
    store_of,
)
from millstream.query.store_frames import bound_to
from millstream.query.store_reads import StoreAt
from millstream.state.errors import (
    PinLostError,
    StoreAheadError,
    StoreClosedError,
    StoreNotHereError,
    TaskLockedError,
    ZombieTaskError,
)
from millstream.state.specs import StoreBuilder, StoreKind
from millstream.state.stores.factory import open_store
from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.state.stores.store import StateStore
from millstream.state.stores.views import (
    KeyValueView,
    Pairs,
    SessionView,
    VersionedView,
    View,
    WindowView,
    plain,
    plain_pairs,
)
from millstream.topology.plan import Plan
from millstream.types import Epoch, Partition, Version

__all__ = [
    "HostStore",
    "Hosts",
    "KeyValueHostStore",
    "ReadFrom",
    "SessionHostStore",
    "VersionedHostStore",
    "WindowHostStore",
]

T = TypeVar("T")

ReadFrom: TypeAlias = Literal["replica", "active", "standby"]
"""Where a store is read: in a copy in this process, where its tasks run, or preferably where standbys are."""

_ELSEWHERE: Final = (
    StoreNotHereError,
    PinLostError,
    StoreClosedError,
    TaskLockedError,
    StoreAheadError,
    ZombieTaskError,
)
"""What becomes of asking a process that is gone, or does not have what is wanted: another one may."""
_ROUNDS: Final = 12
"""So often all places of a task are asked. With pauses, seconds in all: tasks find new ones meanwhile."""
_PATIENCE_S: Final = 15.0
"""And not longer than that, if processes do not answer at all."""
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0
_ACTIVE_WAIT_S: Final = 2.0
"""For stores that are being opened, or on the way from one commit to the next ..."""
_STANDBY_WAIT_S: Final = 0.05
"""... and of a copy: there is somebody else to ask."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """What reads need of a running application."""

    application_id: str
    plan: Plan
    places: StateHosts
    commits: CommitTimes
    partitions: Callable[[], Mapping[str, int]]
    """How many partitions topics have, as far as it is known."""


class HostStore(View, Tabular):
    """One store over all its partitions, wherever they are. Its kind decides what it can be asked."""

    kinds: ClassVar[frozenset[StoreKind]]
    """Of which kinds of stores it can be one."""

    def __init__(self, hosts: Hosts, store: str, read_from: ReadFrom, max_staleness_ms: int = 0) -> None:
        self._sub, self._spec = store_of(hosts.plan, store)
        check_kind(self._spec, self.kinds)
        if self._sub.is_global:
            raise StoreError(
                f"store {store!r} is global: no task has it to itself, so it is not read from hosts. Remedy: "
                f"app.store({store!r}), a replica in this process"
            )
        self.name = store
        self.read_from = read_from
        self._hosts = hosts
        self._max_staleness_s = max_staleness_ms / 1000
        self._answering = threading.Lock()
        self._answered: dict[str, Version] = {}
        """Per task, the version of the last answer: nothing before it is shown."""
        self._bound_at: tuple[object, StoreBuilder] | None = None
        """What automatic serdes had inferred, and the store with such serdes."""
        self.version = Epoch(0)
        """The commit that the last answer is as of: the smallest of the partitions that took part."""

    def __repr__(self) -> str:
        application = self._hosts.application_id
        return f"<{type(self).__name__} {self.name!r} of {application!r} at epoch {self.version}>"

    def to_arrow(self, **options: Any) -> pa.Table:
        """Refused: it would take all of the store. See `Streams.store` with `read_from="replica"`."""
        del options
        return self._refuse_tables("to_arrow()")

    def to_spark(self, spark: Any, epoch: int | None = None) -> Any:
        """Refused: Spark's tasks read changelogs, not hosts. `app.store(name).to_spark(spark)` does."""
        del spark, epoch
        return self._refuse_tables("to_spark(spark)")

    def _refuse_tables(self, method: str) -> Never:
        raise StoreError(
            f"store {self.name!r} is read from hosts, row by row, and is no table. Remedy: "
            f"app.store({self.name!r}).{method}: to_spark reads the changelogs, in parallel, and needs no "
            "replica; to_arrow and its like make one"
        )

    # Asking --------------------------------------------------------------------------------------------

    def _one(self, ask: Callable[[Any], Any], key: Any = None) -> Any:
        with self._answering:
            as_of: list[Epoch] = []
            found = None
            for task_id in self._tasks(key):
                reader, found = self._ask(task_id, as_of, lambda store: plain(ask(store)))
                reader.close()
                if found is not None:
                    break
            self._note(as_of)
            return found

    def _pairs(self, scan: Callable[[Any], Pairs], key: Any = None) -> Pairs:
        with self._answering:
            as_of: list[Epoch] = []
            found = _PairsOfHosts(self.name)
            try:
                for task_id in self._tasks(key):
                    reader, (first, pairs) = self._ask(task_id, as_of, lambda store: _begun(scan(store)))
                    if first is None:
                        reader.close()
                        continue
                    found.add(reader, chain((first,), pairs))
                    if key is not None:  # it is in one partition only
                        break
            except BaseException:
                found.close()
                raise
            self._note(as_of)
            return KeyValueIterator(found)

    def _sum(self, count: Callable[[Any], int]) -> int:
        with self._answering:
            as_of: list[Epoch] = []
            total = 0
            for task_id in self._tasks(None):
                reader, found = self._ask(task_id, as_of, count)
                reader.close()
                total += found
            self._note(as_of)
            return total

    def _tasks(self, key: Any) -> list[str]:
        """The tasks that may know; the one first that should have a key, by its hash."""
        head = self._hosts.commits.head()
        if head is None:
            return []
        numbers = sorted(
            partition
            for number, partition in (map(int, task_id.split("_")) for task_id in head.tasks)
            if number == self._sub.number
        )
        if key is not None and len(numbers) > 1:
            home = task_of_key(self._hosts.plan, self.name, key, self._hosts.partitions(), head)[1]
            numbers.sort(key=lambda partition: partition != home)
        return [self._sub.task_id(partition) for partition in numbers]

    def _ask(
        self, task_id: str, as_of: list[Epoch], ask: Callable[[StateStore[Any]], T]
    ) -> tuple[HostReader, T]:
        """Ask the processes that have a task's state, one after the other, until one has answered."""
        problems: dict[str, str] = {}
        pause_s, deadline = _FIRST_PAUSE_S, time.monotonic() + _PATIENCE_S
        for number in range(_ROUNDS):
            if number:
                if time.monotonic() > deadline:
                    break
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            for place in self._places(task_id):
                head = self._hosts.commits.head()
                assert head is not None  # there are tasks
                reader = self._reader(task_id, place, head)
                try:
                    bound = self._bound(head)
                    found = ask(open_store(self._spec, reader, bound.key, bound.value))
                except _ELSEWHERE as error:
                    reader.close()
                    problems[f"{place.role} on {place.host}"] = str(error)
                except BaseException:
                    reader.close()
                    raise
                else:
                    assert reader.version is not None  # something was read
                    self._answered[task_id] = max(reader.version, self._answered.get(task_id, Version(0)))
                    as_of.append(_as_of(reader.version, task_id, head))
                    return reader, found
        raise self._unavailable(task_id, problems)

    def _reader(self, task_id: str, place: Place, head: Manifest) -> HostReader:
        sub, partition = self._sub, Partition(int(task_id.rpartition("_")[2]))
        entry = head.tasks[task_id]
        last = max(self._hosts.commits.last_before(self._max_staleness_s), self.version)
        at_least = max(min(Version(entry.version), Version(last)), self._answered.get(task_id, Version(0)))
        is_active = place.role == "active"
        at = StoreAt(
            PlannedTask(task_id, sub.number, partition, sub.level),
            self.name,
            at_least,
            replace(entry, sections=()) if is_active else None,
            _ACTIVE_WAIT_S if is_active else _STANDBY_WAIT_S,
            is_pinned=self._spec.is_segmented,
        )
        return HostReader(self._hosts.places, place.slot, at)

    def _places(self, task_id: str) -> list[Place]:
        places = self._hosts.places.places(task_id)
        active = [one for one in places if one.role == "active"]
        if self.read_from == "active":
            return active
        standbys = [one for one in places if one.role == "standby"]
        return [*sorted(standbys, key=lambda one: -(one.version or 0)), *active]

    def _bound(self, head: Manifest) -> StoreBuilder:
        if self._bound_at is None or self._bound_at[0] != head.inferred_types:
            self._bound_at = (head.inferred_types, bound_to(self._spec, head))
        return self._bound_at[1]

    def _note(self, as_of: list[Epoch]) -> None:
        self.version = max(self.version, min(as_of, default=self.version))

    def _unavailable(self, task_id: str, problems: dict[str, str]) -> StoreUnavailableError:
        tried = "; ".join(f"{place}: {problem}" for place, problem in problems.items()) or "nobody has it"
        other = 'read_from="standby", ' if self.read_from == "active" else "a larger max_staleness_ms, "
        return StoreUnavailableError(
            f"store {self.name!r} of application {self._hosts.application_id!r}: no host has answered for "
            f"task {task_id} ({tried}). Likely cause: the application does not run in this process, or the "
            "host was lost, or its state is being restored. Remedy: ask again when it runs; or "
            f'{other}or read_from="replica"'
        )


class KeyValueHostStore(HostStore, KeyValueView):
    """A key-value store, read where it is. Timestamped ones show plain values.

    Pairs are ordered by key bytes within each partition.
    """

    kinds = StoreReplica.kinds

    def approximate_num_entries(self) -> int:
        return self._sum(lambda store: store.approximate_num_entries())

    def __len__(self) -> int:
        return sum(1 for _ in self.all())


class WindowHostStore(HostStore, WindowView):
    """A window store, read where it is. Timestamped ones show plain values."""

    kinds = WindowReplica.kinds


class SessionHostStore(HostStore, SessionView):
    """A session store, read where it is."""

    kinds = SessionReplica.kinds


class VersionedHostStore(HostStore, VersionedView):
    """A versioned store, read where it is."""

    kinds = VersionedReplica.kinds


class _PairsOfHosts(Iterator[tuple[Any, Any]]):
    """Pairs of several partitions, page by page. Each partition is at the version of its first page."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._parts: list[tuple[HostReader, Iterator[tuple[Any, Any]]]] = []

    def add(self, reader: HostReader, pairs: Iterator[tuple[Any, Any]]) -> None:
        """The pairs of one more partition, and what is let go behind them."""
        self._parts.append((reader, pairs))

    def __next__(self) -> tuple[Any, Any]:
        while self._parts:
            reader, pairs = self._parts[0]
            try:
                return next(pairs)
            except StopIteration:
                self._parts.pop(0)
                reader.close()
            except _ELSEWHERE as error:
                self.close()
                problem = str(error).rstrip(".")
                raise StoreUnavailableError(
                    f"an iterator of store {self._store!r} can't go on: {problem}. What it has given is of "
                    "one version, and what would come next is of another. Likely cause: the host was lost, "
                    "or the iterator was read too slowly for what is written meanwhile. Remedy: begin anew, "
                    f"with a smaller range; or app.store({self._store!r}), a replica in this process"
                ) from error
        raise StopIteration

    def close(self) -> None:
        """Let all of it go."""
        parts, self._parts = self._parts, []
        for reader, _ in parts:
            with suppress(Exception):  # it is let go after a while, whatever comes
                reader.close()

    def __del__(self) -> None:
        self.close()


def _begun(pairs: Pairs) -> tuple[Any, Iterator[tuple[Any, Any]]]:
    """The first pair, or None: so the version is chosen now. And the others, for later."""
    found = plain_pairs(pairs)
    return next(found, None), found


def _as_of(version: Version, task_id: str, head: Manifest) -> Epoch:
    """The last epoch of which it is known that a task's version was its last one."""
    return head.epoch if version == Version(head.tasks[task_id].version) else Epoch(version)
