"""The stores of a task, brought to the version that its entry names: step 3, and step 10.

Whoever opens them does it in this way: an attempt of the task, a standby, a snapshot, a read from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from millstream import failpoints
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.commit.sealed_history import (
    changes_between,
    is_known,
    lost_file,
    refuse_zombie,
    sealed_changes,
)
from millstream.commit.worker import Worker
from millstream.log.api import TopicPartition
from millstream.state.backends.api import Backend
from millstream.state.changelog.follow import RestoreListener
from millstream.state.changelog.rows import changelog_topic
from millstream.state.errors import UnpublishedVersionError
from millstream.state.local.task_stores import (
    NewerStores,
    TaskStores,
    TaskVersion,
    can_be_shared,
    hold_task_stores,
    open_shared_stores,
    open_task_stores,
)
from millstream.state.stores.overlay import Entry
from millstream.topology.plan import SubTopology
from millstream.types import Offset, Version

T = TypeVar("T")


def opened_stores(
    worker: Worker,
    sub: SubTopology,
    planned: PlannedTask,
    entry: TaskEntry | None,
    *,
    newer: NewerStores = NewerStores.REFUSE,
    listener: RestoreListener | None = None,
) -> AbstractContextManager[dict[str, Backend]]:
    """The stores of a task at the version of its entry, open for the length of a `with` block.

    Global ones are open to read: all tasks of a host share them. The listener is the worker's, if none is
    given.
    """
    if worker.open_stores is not None and not sub.stores:
        return nullcontext({})
    opening = StoreOpening(worker, sub, planned, entry, listener)
    if sub.is_global and newer is NewerStores.REFUSE:
        copies = worker.global_copies
        if copies is not None and opening.can_be_read_together:
            return nullcontext(copies.opened(planned.task_id, partial(opening, open_shared_stores)))
        return opening(open_shared_stores)
    if worker.open_stores is not None and not sub.is_global:
        is_read_only = newer is NewerStores.TAKE  # they may be newer than they say, and are closed soon
        hold = partial(opening, hold_task_stores, newer=newer) if is_read_only else opening.hold
        return worker.open_stores.opened(planned.task_id, opening.wanted, hold, newer)
    return opening(open_task_stores, newer=newer)


def bring_for_read(worker: Worker, planned: PlannedTask, entry: TaskEntry, wait_s: float) -> None:
    """Have the stores of a task that runs here open, at a commit or a later one, for whoever reads them."""
    if worker.open_stores is not None:
        patient = replace(worker, lock_timeout_ms=min(worker.lock_timeout_ms, round(wait_s * 1000)))
        opening = StoreOpening(patient, worker.subtopology(planned.subtopology), planned, entry)
        worker.open_stores.brought_for_read(planned.task_id, opening.wanted, opening.hold, wait_s)


def apply_commit(worker: Worker, planned: PlannedTask, entry: TaskEntry) -> None:
    """Step 10: bring a task's local stores to the head. The next open would do it, too, only later."""
    sub = worker.subtopology(planned.subtopology)
    if sub.stores and worker.open_stores is not None and not sub.is_global:
        worker.open_stores.committed(planned.task_id, _version_of(worker, planned, entry))
    elif sub.stores:
        with opened_stores(worker, sub, planned, entry):
            pass
    failpoints.hit("commit.applied")


@dataclass(frozen=True, slots=True)
class StoreOpening:
    """How the stores of a task are brought to the version of its entry, whoever opens them."""

    worker: Worker
    sub: SubTopology
    planned: PlannedTask
    entry: TaskEntry | None
    listener: RestoreListener | None = None
    """None: that of the worker."""

    @property
    def wanted(self) -> TaskVersion:
        """What the stores must hold."""
        return _version_of(self.worker, self.planned, self.entry)

    @property
    def can_be_read_together(self) -> bool:
        """Whether others may read the stores while somebody has them open."""
        worker = self.worker
        return can_be_shared(self.sub.stores, worker.backend, worker.config.rocksdb_config_setter)

    def is_ours(self, version: Version, digest: str) -> bool:
        """Whether a store of that version is of this history."""
        if self.entry is not None and self.entry.previous == (version, digest):
            return True
        return is_known(self.worker.storage, self.planned.task_id, version, digest)

    def local_changes(self, store: str, after: Version, to: Version) -> list[list[Entry]] | None:
        """What an unlogged store needs to get from one version to another; None if it is not to be had."""
        storage, planned, entry = self.worker.storage, self.planned, self.entry
        is_next = entry is not None and entry.previous[0] == after
        try:
            if entry is not None and is_next:
                return sealed_changes(storage, entry, store)
            return changes_between(storage, planned.task_id, store, after, to)
        except FileNotFoundError as error:
            refuse_zombie(storage, planned.task_id, to)
            if is_next:
                raise lost_file(error, planned.task_id, to) from error
            return None  # it was so far behind that what came in between is collected

    def hold(self, **how: Any) -> TaskStores:
        """Open them until they are closed. Meanwhile they can be read from outside."""
        held = self(hold_task_stores, **how)
        if self.worker.readable is not None:
            self.worker.readable.add(self.planned.task_id, held)
        return held

    def __call__(self, open_stores: Callable[..., T], **how: Any) -> T:
        """Open them in one of the ways of `millstream.state.local.task_stores`."""
        worker = self.worker
        if worker.awaits_publication:
            self._check_published()
        return open_stores(
            worker.directory.task(worker.storage.application_id, self.planned.task_id),
            self.sub.stores,
            self.wanted,
            worker.log,
            default_backend=worker.backend,
            local_changes=self.local_changes,
            is_known=self.is_ours,
            lock_timeout_ms=worker.lock_timeout_ms,
            listener=self.listener or worker.listener,
            snapshots=worker.snapshots,
            rocksdb_config_setter=worker.config.rocksdb_config_setter,
            **how,
        )

    def _check_published(self) -> None:
        wanted = self.wanted
        for name, spec in self.sub.stores.items():
            if not spec.logging or spec.source_topic is not None:
                continue
            topic = changelog_topic(wanted.application_id, name)
            changelog = TopicPartition(topic, self.planned.partition)
            end = wanted.positions.get(name, Offset(0))
            if end and self.worker.log.latest(changelog) < end:
                raise UnpublishedVersionError(
                    f"Store {name!r} of task {self.planned.task_id} has to be at version {wanted.version}, "
                    f"but {changelog} does not have all of it yet. Likely cause: the epoch is committed and "
                    "just being published. Remedy: wait for that."
                )


def _version_of(worker: Worker, planned: PlannedTask, entry: TaskEntry | None) -> TaskVersion:
    """What a task's stores hold, as the head names it."""
    return TaskVersion(
        application_id=worker.storage.application_id,
        partition=planned.partition,
        version=Version(entry.version if entry else 0),
        positions=dict(entry.changelogs) if entry else {},
        sealed_digest=entry.digest if entry else "",
        origins=entry.origins if entry else {},
    )
