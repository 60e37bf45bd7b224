"""What a task needs of the place where it runs: the log, the storage, local state. An engine makes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.global_stores import GlobalCopies
from millstream.commit.seal_group import SealGroup
from millstream.config import StreamsConfig
from millstream.log.api import Log
from millstream.state.backends.api import BackendSupplier
from millstream.state.changelog.follow import NO_LISTENER, RestoreListener
from millstream.state.local.directory import StateDirectory
from millstream.state.local.open_stores import OpenStores
from millstream.state.local.readable_stores import ReadableStores
from millstream.state.snapshots.storage import SnapshotStorage
from millstream.task.metrics import Metrics
from millstream.topology.plan import Plan, SubTopology


@dataclass(frozen=True, slots=True)
class Worker:
    """What a task needs of the place where it runs."""

    plan: Plan
    config: StreamsConfig
    storage: ApplicationStorage
    log: Log
    directory: StateDirectory
    backend: str | BackendSupplier
    metrics: Metrics
    listener: RestoreListener = NO_LISTENER
    lock_timeout_ms: int = 60_000
    snapshots: SnapshotStorage | None = None
    shares_process: bool = False
    """Tasks run in this process while a snapshot of theirs is taken in it, too."""
    open_stores: OpenStores | None = None
    """The stores that stay open from epoch to epoch; None: each epoch opens and closes them."""
    readable: ReadableStores | None = None
    """The stores of this process that can be read from outside: of its tasks, and of copies; None: none."""
    seals: SealGroup | None = None
    """What tasks seal is in one file: see `for_tasks_of_an_epoch`; None: each has its own."""
    global_copies: GlobalCopies | None = None
    """The copies of global stores that the tasks of an epoch have open together; None: each by itself."""
    awaits_publication: bool = False
    """The last commit may not be published yet: stores that have to read it are refused until it is."""

    def subtopology(self, number: int) -> SubTopology:
        """The sub-topology of a number."""
        return self.plan.by_number[number]


@contextmanager
def for_tasks_of_an_epoch(worker: Worker) -> Iterator[Worker]:
    """A worker for several tasks of an epoch: what they have sealed is durable when the block has ended.

    So their reports must not leave it.
    """
    with SealGroup(worker.storage) as group, GlobalCopies() as copies:
        yield replace(worker, seals=group, global_copies=copies)
