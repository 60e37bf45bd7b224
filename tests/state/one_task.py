"""One task and its changelogs, with commits written by hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millstream.log import FileLog, TopicPartition
from millstream.state.backends import Backend, Row, memory
from millstream.state.changelog.follow import NO_LISTENER, Progress, RestoreListener
from millstream.state.changelog.rows import changelog_rows, changelog_topic
from millstream.state.local.directory import TaskDirectory
from millstream.state.local.task_stores import NewerStores, TaskVersion, open_task_stores
from millstream.state.snapshots.manifest import SnapshotPlace
from millstream.state.snapshots.storage import SnapshotStorage
from millstream.state.snapshots.taking import Outcome, SnapshotSettings, take_snapshots
from millstream.state.specs import StoreBuilder, StoreKind, key_value
from millstream.state.stores.overlay import Entry
from millstream.types import Partition, Version

APPLICATION = "app"
PARTITION = Partition(0)

Writes = Mapping[bytes, bytes | None]


@dataclass
class Listener:
    """Notes what a restore says."""

    told: list[tuple[str, Progress]] = field(default_factory=list)

    def on_start(self, progress: Progress) -> None:
        self.told.append(("start", progress))

    def on_batch(self, progress: Progress) -> None:
        self.told.append(("batch", progress))

    def on_end(self, progress: Progress) -> None:
        self.told.append(("end", progress))

    def on_suspended(self, progress: Progress) -> None:
        self.told.append(("suspended", progress))

    def records(self) -> list[tuple[str, str, int, int]]:
        """Event, store, and how many of how many records."""
        return [(event, p.store, p.records, p.total_records) for event, p in self.told]


@dataclass
class OneTask:
    """A task's folder, its log, what was committed, and what its stores must therefore hold."""

    log: FileLog
    directory: TaskDirectory
    backend: str
    stores: dict[str, StoreBuilder] = field(default_factory=dict)
    version: int = 0
    model: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    sealed: dict[int, dict[str, list[Entry]]] = field(default_factory=dict)
    """What the sealed file of each version holds for stores without a changelog."""
    snapshots: SnapshotStorage | None = None
    history: str = ""
    """Marks the digests of this history's sealed files, if there are to be any."""
    digests: dict[int, str] = field(default_factory=dict)

    def add_store(self, name: str, *, logging: bool = True, backend: str | None = None) -> None:
        """Let the task have a store."""
        self.stores[name] = key_value(name, logging=logging, backend=backend)
        self.model[name] = {}
        if logging:
            self.log.create_topic(changelog_topic(APPLICATION, name))

    def commit(self, **writes: Writes) -> None:
        """Commit an epoch in which the task wrote this to its stores. No local store knows of it yet."""
        self.version += 1
        if self.history:
            self.digests[self.version] = f"{self.history}{self.version}"
        for name, entries in writes.items():
            if self.stores[name].logging:
                rows = changelog_rows(sorted(entries.items()), StoreKind.KEY_VALUE, 0)
                self.log.append(self.changelog(name), rows)
            else:
                self.sealed.setdefault(self.version, {})[name] = sorted(entries.items())
            after = {**self.model[name], **entries}
            self.model[name] = {key: value for key, value in after.items() if value is not None}

    def changelog(self, store: str) -> TopicPartition:
        """The changelog of a store."""
        return TopicPartition(changelog_topic(APPLICATION, store), PARTITION)

    def head(self) -> TaskVersion:
        """What the stores must hold."""
        logged = [name for name, spec in self.stores.items() if spec.logging]
        positions = {name: self.log.latest(self.changelog(name)) for name in logged}
        sealed = self.digests.get(self.version, "")
        return TaskVersion(APPLICATION, PARTITION, Version(self.version), positions, sealed)

    def is_known(self, version: Version, sealed: str) -> bool:
        """Whether this history has such a version."""
        return self.digests.get(version, "") == sealed and version <= self.version

    @contextmanager
    def opened(
        self,
        wanted: TaskVersion | None = None,
        *,
        listener: RestoreListener = NO_LISTENER,
        lock_timeout_ms: int = 0,
        newer: NewerStores = NewerStores.REFUSE,
    ) -> Iterator[dict[str, Backend]]:
        """The stores, open at a version (default: the head)."""
        with open_task_stores(
            self.directory,
            self.stores,
            wanted or self.head(),
            self.log,
            default_backend=self.backend,
            local_changes=self.local_changes,
            lock_timeout_ms=lock_timeout_ms,
            listener=listener,
            is_known=self.is_known,
            snapshots=self.snapshots,
            newer=newer,
        ) as backends:
            yield backends

    def take(self, *, retained: int = 2, wanted: TaskVersion | None = None) -> list[Outcome]:
        """Take snapshots of all stores."""
        assert self.snapshots is not None
        places = {name: self.place(name) for name in self.stores}
        settings = SnapshotSettings(self.snapshots, places, retained, self.is_known)
        return take_snapshots(self.directory, self.opened(wanted, newer=NewerStores.TAKE), settings)

    def place(self, store: str) -> SnapshotPlace:
        """Whose snapshots those of a store are."""
        backend = self.stores[store].backend or self.backend
        return SnapshotPlace(APPLICATION, self.directory.path.name, store, backend)

    def lose(self) -> None:
        """The local disk is gone, and so is the process."""
        shutil.rmtree(self.directory.path)
        memory._kept.clear()

    def local_changes(self, store: str, after: Version, to: Version) -> list[list[Entry]] | None:
        """What `sealed` holds for a store; None if a file is missing."""
        wanted = range(after + 1, to + 1)
        if not all(version in self.sealed for version in wanted):
            return None
        return [self.sealed[version].get(store, []) for version in wanted]

    def path(self, store: str) -> Path:
        """Where a store is."""
        return self.directory.store_path(self.stores[store].backend or self.backend, store)

    def expected(self) -> dict[str, list[Row]]:
        """All rows of all stores, by the plain fold of what was committed."""
        return {name: sorted(rows.items()) for name, rows in self.model.items()}


def rows_of(backends: Mapping[str, Backend]) -> dict[str, list[Row]]:
    """All rows of all stores."""
    return {name: list(backend.scan()) for name, backend in backends.items()}
