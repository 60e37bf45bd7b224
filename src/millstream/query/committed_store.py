"""A store as its application's manifests describe it: to read it without the program."""

from __future__ import annotations

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.errors import StoreError, UnknownStoreError
from millstream.log import FileLog
from millstream.query.manifest_stores import plan_of
from millstream.query.store_frames import StorePart, for_spark_to_read, store_parts
from millstream.state.specs import StoreBuilder
from millstream.topology.plan import SubTopology
from millstream.types import Epoch, Offset


class CommittedParts:
    """The partitions of a store, with the types that Spark is shown."""

    def __init__(self, log: FileLog, storage: ApplicationStorage, store: str) -> None:
        self._log = log
        self._application_id = storage.application_id
        self._chain = ManifestChain(storage)
        head = self._chain.latest()
        if head is None:
            raise UnknownStoreError(f"Application {self._application_id!r} has committed nothing yet.")
        self._sub, spec = self._find(head, store)
        self.spec = for_spark_to_read(spec)
        self.head = self._published(head)

    def at(self, epoch: int) -> Manifest:
        """The manifest of an epoch, if it is retained."""
        if not self.head.oldest <= epoch <= self.head.epoch:
            raise StoreError(
                f"store {self.spec.name!r} can't be shown as it was at epoch {epoch}: the epochs that are "
                f"retained are {self.head.oldest} to {self.head.epoch}. Remedy: choose one of these"
            )
        return self._chain.read(Epoch(epoch))

    def parts(self, head: Manifest) -> list[StorePart]:
        """The partitions at a commit."""
        return store_parts(self._log.address, self._application_id, self._sub, self.spec, head)

    def _published(self, head: Manifest) -> Manifest:
        """The last commit that the changelogs show: the very last may be on its way."""
        for part in self.parts(head):
            target = part.target
            if self._log.latest(target.changelog) < Offset(part.offset):
                return self._chain.read(Epoch(head.epoch - 1))
        return head

    def _find(self, head: Manifest, store: str) -> tuple[SubTopology, StoreBuilder]:
        plan = plan_of(head)
        for sub in plan.all_subtopologies:
            if store in sub.stores:
                return sub, sub.stores[store]
        known = ", ".join(sorted(name for sub in plan.all_subtopologies for name in sub.stores)) or "none"
        raise UnknownStoreError(
            f"Application {self._application_id!r} has no store {store!r}. Stores are: {known}"
        )
