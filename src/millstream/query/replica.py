"""A read-only copy of a store that follows the application's log.

It is never the task's own files: those may be open elsewhere, or be a commit behind. A replica shows
committed versions only, and every answer belongs to one of them (`version`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from millstream.errors import UnknownStoreError
from millstream.log.api import Log, TopicPartition
from millstream.record import ValueAndTimestamp
from millstream.runtime.application_folder import ApplicationFolder
from millstream.runtime.manifest import Manifest, ManifestChain
from millstream.runtime.serde_book import SerdeBook
from millstream.serdes import Serde
from millstream.state.backends.memory import MemoryBackend
from millstream.state.changelog import changelog_topic
from millstream.state.errors import DamagedStoreError
from millstream.state.follow import Marker, Target, follow
from millstream.state.keyvalue import KeyValueStore
from millstream.state.opening import open_store
from millstream.state.specs import StoreBuilder
from millstream.topology.plan import Plan, SubTopology
from millstream.types import Epoch, Offset, Partition, Version

__all__ = ["StoreReplica"]


class StoreReplica:
    """One store over all its partitions, at the last commit."""

    def __init__(self, folder: ApplicationFolder, log: Log, plan: Plan, store: str) -> None:
        self._folder = folder
        self._log = log
        self._chain = ManifestChain(folder)
        self._sub, self._spec = _find(plan, store)
        self._backends: dict[int, MemoryBackend] = {}
        self._stores: list[KeyValueStore[Any, Any]] = []
        self._answering = threading.Lock()
        self.version = Epoch(0)
        """The commit that the last answer comes from."""

    def get(self, key: Any) -> Any:
        """The value of a key at the last commit, or None."""
        with self._answering:
            self._refresh()
            for store in self._stores:
                value = store.get(key)
                if value is not None:
                    return _plain(value)
        return None

    def range(self, start: Any, end: Any) -> Iterator[tuple[Any, Any]]:
        """Pairs from `start` to `end`, both inclusive, ordered by key bytes within each partition.

        All of them belong to one version, however late they are looked at.
        """
        return self._pairs(lambda store: store.range(start, end))

    def prefix_scan(self, prefix: Any, prefix_serde: Serde[Any]) -> Iterator[tuple[Any, Any]]:
        """Pairs whose key bytes begin with the serialized prefix."""
        return self._pairs(lambda store: store.prefix_scan(prefix, prefix_serde))

    def all(self) -> Iterator[tuple[Any, Any]]:
        """All pairs."""
        return self.range(None, None)

    def __len__(self) -> int:
        return sum(1 for _ in self.all())

    def _pairs(self, scan: Callable[[KeyValueStore[Any, Any]], Any]) -> Iterator[tuple[Any, Any]]:
        found: list[tuple[Any, Any]] = []
        with self._answering:
            self._refresh()
            for store in self._stores:
                with scan(store) as pairs:
                    found += [(key, _plain(value)) for key, value in pairs]
        return iter(found)

    def _refresh(self) -> None:
        head = self._chain.latest()
        if head is None or head.epoch == self.version:
            return
        for task_id, entry in head.tasks.items():
            number, partition = (int(part) for part in task_id.split("_"))
            if number == self._sub.number:
                marker = Marker(Version(entry.version), entry.changelogs.get(self._spec.name, Offset(0)))
                topic = changelog_topic(self._folder.application_id, self._spec.name)
                place = TopicPartition(topic, Partition(partition))
                self._follow(partition, Target(self._spec.name, place, marker))
        self._stores = _opened(self._spec, self._backends, head)
        self.version = head.epoch

    def _follow(self, partition: int, target: Target) -> None:
        try:
            follow(self._backends.setdefault(partition, MemoryBackend()), target, self._log)
        except DamagedStoreError:
            # It is so far behind that the changelog no longer has all deletions since: begin anew.
            self._backends[partition] = MemoryBackend()
            follow(self._backends[partition], target, self._log)


def _opened(
    spec: StoreBuilder, backends: dict[int, MemoryBackend], head: Manifest
) -> list[KeyValueStore[Any, Any]]:
    book = SerdeBook()
    book.restore({(name, part): kind for name, part, kind in head.learned})  # type: ignore[misc]
    key, value = book.bound(spec.name, "key", spec.key), book.bound(spec.name, "value", spec.value)
    return [open_store(spec, backends[partition], key, value) for partition in sorted(backends)]


def _find(plan: Plan, store: str) -> tuple[SubTopology, StoreBuilder]:
    for sub in plan.subtopologies:
        if store in sub.stores:
            spec = sub.stores[store]
            if not spec.logging:
                raise UnknownStoreError(f"store {store!r} has no changelog, so it can't be read from outside")
            return sub, spec
    known = ", ".join(sorted(name for sub in plan.subtopologies for name in sub.stores)) or "none"
    raise UnknownStoreError(f"the topology has no store {store!r}. Stores are: {known}")


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, ValueAndTimestamp) else value
