"""Maintenance: what keeps an application's files few over the years. The one place that deletes them.

Part of step 10: it runs beside the epochs, under the coordinator's lease. They wait for it only if changes
would pile up otherwise (:mod:`millstream.maintenance.background`).

1. Manifests that the head does without are removed.
2. Topics that the application writes or reads are rewritten: rows that lie in sealed files and small segments
   are brought together, compacted topics (changelogs are) are compacted, and retention is applied.
3. Sealed files that nobody needs any more are collected; those that are mostly of no use, after the topics
   that still point into them were rewritten.

What is deleted, and when:

============================== ===========================================================================
a manifest                     if the head's ``oldest`` is above it, no task has last sealed with it (of such
                               manifests the newest hundred stay), and no snapshot needs it
a sealed file that is named    if its manifest is not kept, it is not its task's last (or is shared with
                               other tasks), and no index of any topic points into it
a sealed file that is not      if its epoch is committed: the attempt that wrote it has lost
a segment of a topic           if a rewritten one has taken its place, or retention let it go
a record of a changelog        if a later one replaces it, or it has expired, and every manifest that is
                               kept stands behind it
============================== ===========================================================================

A file of an epoch above the head is never touched: its epoch may be running. What this coordinator knows can
only be older than the truth, and then it deletes less. A crash anywhere leaves files for the next run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, replace

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CommitCoordinator
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.commit.manifest_retention import Urgency
from millstream.errors import MillstreamError
from millstream.log.api import SealedLog, TopicPartition
from millstream.maintenance.collection import collect
from millstream.maintenance.compaction import Compaction
from millstream.topology.plan import Plan
from millstream.types import Epoch

_LOGGER = logging.getLogger("millstream")
MIN_ENTRIES = 256
"""A segment of a topic is closed to be merged when so many epochs have written to it."""


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What one run did."""

    manifests_removed: int
    partitions_rewritten: int
    files_collected: int


def maintain(
    storage: ApplicationStorage,
    log: SealedLog,
    plan: Plan,
    head: Manifest,
    pinned: Container[int] | None = (),
    *,
    min_entries: int | None = None,
    is_early: bool = False,
    chain: ManifestChain | None = None,
    collected_to: int = 0,
) -> MaintenanceReport:
    """Do all of it once.

    ``pinned`` are epochs whose manifests somebody else needs; None if nobody can tell: then all stay. If it
    comes early, what was published is large: it is closed at once. ``chain`` and ``collected_to`` are of an
    earlier run: what it has read, and the epoch up to which it has collected.
    """
    chain = ManifestChain(storage) if chain is None else chain
    min_entries = MIN_ENTRIES if min_entries is None else min_entries
    compaction = Compaction(storage, log, plan, min_entries, 1 if is_early else min_entries)
    removed = 0 if pinned is None else chain.remove_unneeded(head, pinned)  # 1.
    oldest = chain.read(Epoch(head.oldest))
    rewritten = compaction.rewrite_changelogs(oldest) + compaction.rewrite_topics(head)  # 2.

    def rewrite(places: Collection[TopicPartition]) -> int:
        nonlocal rewritten
        now = replace(compaction, only=places, min_entries=1, min_entries_of_ours=1)
        done = now.rewrite_changelogs(oldest) + now.rewrite_topics(head) if places else 0
        rewritten += done
        return done

    collected = collect(storage, log, chain, head, collected_to, rewrite)  # 3.
    return MaintenanceReport(removed, rewritten, collected)


class Maintenance:
    """Maintains what is behind the head of a coordinator, under its lease.

    `pinned` tells the epochs that snapshots need.
    """

    def __init__(
        self,
        coordinator: CommitCoordinator,
        log: SealedLog,
        pinned: Callable[[], Container[int]] = tuple,
    ) -> None:
        self._coordinator = coordinator
        self._log = log
        self._pinned = pinned
        self._chain = ManifestChain(coordinator.storage)
        self._collected_to = Epoch(0)
        self._has_warned = False
        """Of pins that nobody knows: once, until they are known again."""

    def urgency(self) -> Urgency:
        """Whether so much was sealed since the last time that it is worth it now, or epochs should wait."""
        return self._coordinator.retention.urgency()

    def run(self, *, min_entries: int | None = None) -> MaintenanceReport:
        """Do all of it once."""
        coordinator = self._coordinator
        gone = coordinator.retention.gone
        head = coordinator.head
        coordinator.verify()
        is_early = self.urgency() >= Urgency.WORTH_IT
        try:
            report = maintain(
                coordinator.storage,
                self._log,
                coordinator.plan,
                head,
                self._pinned_epochs(),
                min_entries=min_entries,
                is_early=is_early,
                chain=self._chain,
                collected_to=self._collected_to,
            )
        except FileNotFoundError:
            coordinator.verify()  # another coordinator maintains this by now
            raise
        coordinator.retention.maintained(gone)
        self._collected_to = head.epoch
        return report

    def _pinned_epochs(self) -> Container[int] | None:
        try:
            pinned = self._pinned()
        except (MillstreamError, OSError) as error:
            if not self._has_warned:
                _LOGGER.warning("No manifest is removed: nobody knows which ones snapshots need. %s", error)
            self._has_warned = True
            return None
        self._has_warned = False
        return pinned
