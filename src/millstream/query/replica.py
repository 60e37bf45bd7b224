"""A read-only copy of a store that follows the application's log.

It is never the task's own files: those may be open elsewhere, or be a commit behind. A replica shows
committed versions only, and every answer belongs to one of them (`version`). It looks for a later one before
each answer, or, if answers may be stale, not before the bound has passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container
from math import inf
from typing import Any, ClassVar, Final

import pyarrow as pa

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.commit.plan_changes import check_store
from millstream.errors import StoreError, UnknownStoreError
from millstream.io.tables import Tabular
from millstream.log import FileLog
from millstream.query.store_frames import bound_to, store_frame_parts, store_targets
from millstream.query.store_table import StoreTable
from millstream.state.backends.memory import MemoryBackend
from millstream.state.changelog.follow import Target, follow
from millstream.state.errors import ChangelogCompactedError, DamagedStoreError
from millstream.state.specs import StoreBuilder, StoreKind
from millstream.state.stores.factory import open_store
from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.state.stores.store import StateStore
from millstream.state.stores.views import (
    KeyValueView,
    SessionView,
    VersionedView,
    View,
    WindowView,
    plain,
    plain_pairs,
)
from millstream.topology.plan import Plan, SubTopology
from millstream.topology.stored_types import types_of
from millstream.types import Epoch


class Replica(View, Tabular):
    """One store over all its partitions, at the last commit. Its kind decides what it can be asked."""

    kinds: ClassVar[frozenset[StoreKind]]
    """Of which kinds of stores it can be a replica."""

    def __init__(
        self,
        storage: ApplicationStorage,
        log: FileLog,
        plan: Plan,
        store: str,
        frame_of_parts: Callable[..., Any] | None = None,
        max_staleness_ms: int = 0,
    ) -> None:
        self._max_staleness_s = max_staleness_ms / 1000
        self._looked = -inf
        self._storage = storage
        self._frame_of_parts = frame_of_parts
        self._log = log
        self._chain = ManifestChain(storage)
        self._sub, self._spec = find_store(plan, store)
        check_kind(self._spec, self.kinds)
        self.name = store
        self._types = types_of(self._spec)
        self._backends: dict[int, MemoryBackend] = {}
        self._stores: list[Any] = []
        self._answering = threading.Lock()
        self.version = Epoch(0)
        """The commit that the last answer comes from."""
        self._head: Manifest | None = None

    def to_arrow(self, epoch: int | None = None) -> pa.Table:  # type: ignore[override] # its only option
        """The store as an Arrow table: at the last commit, or as it was at an epoch that is retained.

        Its columns are `partition`, `key` and `value`; stores of windows have `start` and `end`, and those
        that keep timestamps `timestamp`. Of a versioned store it is the latest version of each key.
        """
        with self._answering:
            if epoch is None:
                self._refresh()
                head, backends = self._head, self._backends
            else:
                head = self._retained(epoch)
                backends = {}
                for partition, target in self._targets(head):
                    backends[partition] = MemoryBackend()
                    follow(backends[partition], target, self._log)
            table = StoreTable(bound_to(self._spec, head))
            parts = [table.of(number, table.rows_of(backends[number])) for number in sorted(backends)]
        filled = [part for part in parts if len(part)] or parts[:1] or [table.of(0, ())]
        return pa.concat_tables(filled, promote_options="permissive")

    def to_spark(self, spark: Any, epoch: int | None = None) -> Any:
        """The same as a Spark frame: lazy, a task per partition, each of which reads the changelog itself.

        `serdes.json` without a schema is shown as text, and what has no column form at all as bytes.
        """
        head = self._published() if epoch is None else self._retained(epoch)
        application_id = self._storage.application_id
        schema, parts = store_frame_parts(self._log.address, application_id, self._sub, self._spec, head)
        if self._frame_of_parts is None:
            raise StoreError("to_spark() is for stores that Streams gives: app.store(...).to_spark(spark)")
        return self._frame_of_parts(spark, schema, parts)

    def _retained(self, epoch: int) -> Manifest:
        """The manifest of an epoch that can still be read."""
        head = self._published()
        if head is None or not head.oldest <= epoch <= head.epoch:
            kept = "none yet" if head is None else f"{head.oldest} to {head.epoch}"
            raise StoreError(
                f"store {self._spec.name!r} can't be shown as it was at epoch {epoch}: the epochs that are "
                f"retained are {kept}. Likely cause: maintenance has removed it, or it is still to come. "
                "Remedy: choose one of these, or none for the last commit."
            )
        return self._chain.read(Epoch(epoch))

    def __repr__(self) -> str:
        application = self._storage.application_id
        return f"<{type(self).__name__} {self.name!r} of {application!r} at epoch {self.version}>"

    def _one(self, ask: Callable[[Any], Any], key: Any = None) -> Any:
        del key
        # The partitions in turn: a key is in one of them only.
        with self._answering:
            self._refresh()
            for store in self._stores:
                value = ask(store)
                if value is not None:
                    return plain(value)
        return None

    def _pairs(
        self, scan: Callable[[Any], KeyValueIterator[Any, Any]], key: Any = None
    ) -> KeyValueIterator[Any, Any]:
        del key
        # Taken now: all of them belong to one version, however late they are looked at.
        with self._answering:
            self._refresh()
            return KeyValueIterator(
                iter([pair for store in self._stores for pair in plain_pairs(scan(store))])
            )

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked < self._max_staleness_s:
            return
        head = self._published()
        while head is not None and head.epoch > self.version:
            check_store(self._storage.application_id, self._spec.name, self._types, head)
            try:
                for partition, target in self._targets(head):
                    self._follow(partition, target)
            except ChangelogCompactedError:
                # We were slow: the changelog is compacted beyond that commit. There must be a later one.
                later = self._published()
                if later is None or later.epoch == head.epoch:
                    raise
                head = later
            else:
                self._stores = _opened(self._spec, self._backends, head)
                self.version = head.epoch
                self._head = head
        self._looked = now

    def _published(self) -> Manifest | None:
        """The last commit that the changelogs show: the very last may be on its way, those before are not."""
        head = self._chain.latest()
        while head is not None and not self._shows(head):
            try:
                return self._chain.read(Epoch(head.epoch - 1))
            except FileNotFoundError:
                # We were slow: maintenance has removed it, for the sake of later ones.
                later = self._chain.latest()
                if later is None or later.epoch == head.epoch:
                    raise
                head = later
        return head

    def _shows(self, head: Manifest) -> bool:
        """Whether the changelogs have all of a commit."""
        return all(
            self._log.latest(target.changelog) >= target.position.offset for _, target in self._targets(head)
        )

    def _targets(self, head: Manifest) -> list[tuple[int, Target]]:
        """Where the copy of each partition has to get to."""
        return store_targets(self._storage.application_id, self._sub, self._spec, head)

    def _follow(self, partition: int, target: Target) -> None:
        try:
            follow(self._backends.setdefault(partition, MemoryBackend()), target, self._log)
        except DamagedStoreError:
            # It is so far behind that the changelog no longer has all deletions since: begin anew.
            self._backends[partition] = MemoryBackend()
            follow(self._backends[partition], target, self._log)


class StoreReplica(Replica, KeyValueView):
    """A key-value store over all its partitions, at the last commit. Timestamped ones show plain values.

    Pairs are ordered by key bytes within each partition.
    """

    kinds = frozenset({StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE})

    def approximate_num_entries(self) -> int:
        with self._answering:
            self._refresh()
            return sum(store.approximate_num_entries() for store in self._stores)

    def __len__(self) -> int:
        return sum(1 for _ in self.all())


class WindowReplica(Replica, WindowView):
    """A window store over all its partitions, at the last commit. Timestamped ones show plain values."""

    kinds = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW})


class SessionReplica(Replica, SessionView):
    """A session store over all its partitions, at the last commit."""

    kinds = frozenset({StoreKind.SESSION})


class VersionedReplica(Replica, VersionedView):
    """A versioned store over all its partitions, at the last commit."""

    kinds = frozenset({StoreKind.VERSIONED_KEY_VALUE})


_METHODS: Final = {
    StoreKind.KEY_VALUE: "store",
    StoreKind.TIMESTAMPED_KEY_VALUE: "store",
    StoreKind.WINDOW: "window_store",
    StoreKind.TIMESTAMPED_WINDOW: "window_store",
    StoreKind.SESSION: "session_store",
    StoreKind.VERSIONED_KEY_VALUE: "versioned_store",
}
"""The method of `Streams` that gives a replica of each kind."""


def _opened(spec: StoreBuilder, backends: dict[int, MemoryBackend], head: Manifest) -> list[StateStore[Any]]:
    bound = bound_to(spec, head)
    return [open_store(spec, backends[partition], bound.key, bound.value) for partition in sorted(backends)]


def check_kind(spec: StoreBuilder, kinds: Container[StoreKind]) -> None:
    """Refuse a store of another kind."""
    if spec.kind not in kinds:
        method = _METHODS.get(spec.kind)
        remedy = f"ask with {method}({spec.name!r})" if method else "it belongs to its operator alone"
        raise UnknownStoreError(f"store {spec.name!r} is a {spec.kind.value} store: {remedy}")


def find_store(plan: Plan, store: str) -> tuple[SubTopology, StoreBuilder]:
    """A store that can be read from outside, and the sub-topology whose tasks have it."""
    sub, spec = store_of(plan, store)
    if not spec.logging:
        raise UnknownStoreError(
            f"store {store!r} has no changelog, so it can't be read from outside. Remedy: ask the process "
            'that has it, with read_from="active"'
        )
    return sub, spec


def store_of(plan: Plan, store: str) -> tuple[SubTopology, StoreBuilder]:
    """A store, and the sub-topology whose tasks have it."""
    for sub in plan.all_subtopologies:
        if store in sub.stores:
            return sub, sub.stores[store]
    known = ", ".join(sorted(name for sub in plan.all_subtopologies for name in sub.stores)) or "none"
    raise UnknownStoreError(f"the topology has no store {store!r}. Stores are: {known}")
