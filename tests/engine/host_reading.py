"""A program with a store of each kind, and the objects by which a test asks hosts for them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tests.engine.hosts_in_threads import Hosts as HostsInThreads

from millstream import Processor, ProcessorContext, Record, StreamsBuilder, Topology, serdes, stores
from millstream.commit.manifest import ManifestChain
from millstream.engine.assignment.view import AssignedTask
from millstream.query.commit_times import CommitTimes
from millstream.query.host_reader import StateHosts
from millstream.query.host_stores import (
    Hosts,
    HostStore,
    KeyValueHostStore,
    ReadFrom,
    SessionHostStore,
    VersionedHostStore,
    WindowHostStore,
)
from millstream.query.replica import Replica, SessionReplica, StoreReplica, VersionedReplica, WindowReplica
from millstream.query.store_reads import StoreAt, begin_read
from millstream.record import ValueAndTimestamp, Window, Windowed

T = TypeVar("T")

ROWS = 300
"""So many rows of the store "wide" get the number of each record."""


class Everything(Processor[str, str, str, str]):
    """Writes each record into stores of all kinds, and its number into all rows of a wide one."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        names = ("plain", "stamped", "windows", "stamped-windows", "by-time", "sessions", "versions", "wide")
        self.stores: dict[str, Any] = {name: context.state_store(name) for name in names}
        self.stores["unlogged"] = context.state_store("unlogged")

    def process(self, record: Record[str, str]) -> None:
        made, key, time, number = self.stores, record.key, record.timestamp, record.timestamp
        if number % 7 == 3:
            made["plain"].delete(key)
        else:
            made["plain"].put(key, number)
        made["unlogged"].put(key, number)
        made["stamped"].put(key, ValueAndTimestamp(number, time))
        made["windows"].put(key, number, time - time % 10)
        made["stamped-windows"].put(key, ValueAndTimestamp(number, time), time - time % 10)
        made["by-time"].put(key, number, time - time % 10)
        made["sessions"].put(Windowed(key, Window(time - time % 10, time)), number)
        made["versions"].put(key, number, time)
        made["wide"].put_all([(f"{record.value}-{row:04}", number) for row in range(ROWS)])


def everything() -> Topology:
    """Records have the partition for a value; the time of each is its number in its partition."""
    builder = StreamsBuilder()
    numbers: dict[str, Any] = {"key": serdes.string, "value": serdes.int64}
    specs = [
        stores.key_value("plain", **numbers),
        stores.key_value("unlogged", logging=False, **numbers),
        stores.timestamped_key_value("stamped", **numbers),
        stores.window("windows", window_size_ms=10, retention_ms=100_000, **numbers),
        stores.timestamped_window("stamped-windows", window_size_ms=10, retention_ms=100_000, **numbers),
        stores.window("by-time", window_size_ms=10, retention_ms=100_000, time_ordered=True, **numbers),
        stores.session("sessions", retention_ms=100_000, **numbers),
        stores.versioned_key_value("versions", history_retention_ms=100_000, **numbers),
        stores.key_value("wide", **numbers),
    ]
    for spec in specs:
        builder.add_state_store(spec)
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.process(Everything, *(spec.name for spec in specs))
    return builder.build()


REPLICAS: dict[str, tuple[type[Replica], type[HostStore]]] = {
    "plain": (StoreReplica, KeyValueHostStore),
    "stamped": (StoreReplica, KeyValueHostStore),
    "wide": (StoreReplica, KeyValueHostStore),
    "windows": (WindowReplica, WindowHostStore),
    "stamped-windows": (WindowReplica, WindowHostStore),
    "by-time": (WindowReplica, WindowHostStore),
    "sessions": (SessionReplica, SessionHostStore),
    "versions": (VersionedReplica, VersionedHostStore),
}


class CountedHosts(StateHosts):
    """Counts which slots were asked, and lets a test do something before each time."""

    def __init__(self, app: HostsInThreads) -> None:
        self._engine = app.engine
        self.asked: Counter[int] = Counter()
        """Reads that have begun, by slot ..."""
        self.roles: Counter[str] = Counter()
        """... and by what the slot is to the task."""
        self.before: Callable[[int, Callable[..., object]], None] = lambda slot, work: None

    def places(self, task_id: str) -> Sequence[AssignedTask]:
        return self._engine.places(task_id)

    def ask(self, slot: int, work: Callable[..., T], *arguments: Any, timeout_s: float) -> T:
        self.before(slot, work)
        if work is begin_read:
            self.asked[slot] += 1
            at: StoreAt = arguments[0]
            here = [one.role for one in self._engine.places(at.planned.task_id) if one.slot == slot]
            self.roles.update(here)
        return self._engine.ask(slot, work, *arguments, timeout_s=timeout_s)

    def tell(self, slot: int, work: Callable[..., object], *arguments: Any) -> None:
        self._engine.tell(slot, work, *arguments)


class Reading:
    """Stores of an application that runs on hosts in threads."""

    def __init__(self, app: HostsInThreads, clock: Callable[[], float] = time.monotonic) -> None:
        self.app = app
        self.commits = CommitTimes(ManifestChain(app.storage).latest, clock)
        app.loop._listeners = (lambda result: self.commits.note(result.manifest),)
        self.hosts = CountedHosts(app)
        coordinator = app.loop.coordinator
        self._reads = Hosts("app", app.plan, self.hosts, self.commits, lambda: coordinator.counts)

    def store(self, name: str, read_from: ReadFrom, max_staleness_ms: int = 0) -> Any:
        """A store as hosts have it."""
        kind = REPLICAS.get(name, (StoreReplica, KeyValueHostStore))[1]
        return kind(self._reads, name, read_from, max_staleness_ms)

    def replica(self, name: str) -> Any:
        """A store as its replica has it."""
        return REPLICAS[name][0](self.app.storage, self.app.lab.log, self.app.plan, name)

    def slots(self, task_id: str, role: str) -> list[int]:
        """The slots that have a task in a role."""
        return [one.slot for one in self.app.engine.places(task_id) if one.role == role]
