"""Maintenance: what keeps an application's files few over the years. The one place that deletes them.

Part of step 10: it runs beside the epochs, under the coordinator's lease. They wait for it only if changes
would pile up otherwise (:mod:`millstream.maintenance.background`).

1. Manifests that the head does without are removed.
2. Topics that the application writes or reads are rewritten: rows that lie in sealed files and small segments
   are brought together, compacted topics (changelogs are) are compacted, and retention is applied.
3. Sealed files that nobody needs any more are collected.

What is deleted, and when:

============================== ===========================================================================
a manifest                     if the head's ``oldest`` is above it, no task has last sealed with it (of such
                               manifests the newest hundred stay), and no snapshot needs it
a sealed file that is named    if its manifest is not kept, it is not its task's last, and no index of any
                               topic points into it
a sealed file that is not      if its epoch is committed: the attempt that wrote it has lost
a segment of a topic           if a rewritten one has taken its place, or retention let it go
a record of a changelog        if a later one replaces it, or it has expired, and every manifest that is
                               kept stands behind it
============================== ===========================================================================

A file of an epoch above the head is never touched: its epoch may be running. What this coordinator knows can
only be older than the truth, and then it deletes less. A crash anywhere leaves files for the next run.
"""

from __future__ import annotations

import errno
from collections.abc import Container
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from millstream import failpoints
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.commit.source_changelog import compaction_bound
from millstream.log.api import SealedLog, TopicPartition
from millstream.state.changelog.rows import changelog_topic
from millstream.state.stores.segments import dropped_by
from millstream.topology.plan import Plan
from millstream.types import Epoch, Offset, Partition

__all__ = ["Maintenance", "MaintenanceReport"]

MIN_ENTRIES = 256
"""A segment of a topic is closed for folding when so many epochs have written to it."""


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What one run did."""

    manifests_removed: int
    partitions_rewritten: int
    files_collected: int


class Maintenance:
    """Tidies up behind one application."""

    def __init__(
        self,
        folder: ApplicationStorage,
        log: SealedLog,
        plan: Plan,
        *,
        min_entries: int | None = None,
        is_early: bool = False,
    ) -> None:
        self._folder = folder
        self._log = log
        self._plan = plan
        self._chain = ManifestChain(folder)
        self._min_entries = MIN_ENTRIES if min_entries is None else min_entries
        self._min_entries_of_ours = 1 if is_early else self._min_entries
        """If it comes early, what was published is large: it is closed at once."""

    def run(self, head: Manifest, pinned: Container[int] | None = ()) -> MaintenanceReport:
        """Do all of it once.

        ``pinned`` are epochs whose manifests somebody else needs; None if nobody can tell: then all stay.
        """
        # 1.
        removed = 0 if pinned is None else self._chain.fold(head, pinned)
        # 2.
        oldest = self._chain.read(Epoch(head.oldest))
        rewritten = self._rewrite_changelogs(oldest) + self._rewrite_topics(head)
        # 3.
        return MaintenanceReport(removed, rewritten, self._collect(head))

    def _rewrite_changelogs(self, oldest: Manifest) -> int:
        """A store may be asked for at any manifest that is kept: compaction ends where the oldest stands.

        The sealed files since are kept as well. Stores by segments write no tombstones for what expires:
        their changelogs are told by the note.
        """
        there = set(self._log.topics())
        rewritten = 0
        for sub in self._plan.subtopologies:
            for name, spec in sub.stores.items():
                topic = changelog_topic(self._folder.application_id, name)
                if not spec.has_changelog or topic not in there:
                    continue
                for number in range(self._log.config(topic).partitions):
                    entry = oldest.tasks.get(sub.task_id(number))
                    rewritten += self._log.rewrite(
                        TopicPartition(topic, Partition(number)),
                        min_entries=self._min_entries_of_ours,
                        up_to=Offset(0) if entry is None else entry.changelogs.get(name, Offset(0)),
                        expired=dropped_by if spec.is_segmented else None,
                        beyond="leave",
                    )
        return rewritten

    def _rewrite_topics(self, head: Manifest) -> int:
        """All other topics that it reads or writes; of those that it reads, nothing is let go unread.

        Compaction of a source topic ends where a store stands that has it for a changelog, of whatever
        application.
        """
        subs = self._plan.subtopologies
        changelogs = {
            changelog_topic(self._folder.application_id, name) for sub in subs for name in sub.stores
        }
        rewritten = 0
        for topic in sorted(set(self._log.topics()) - changelogs):
            is_read = any(sub.source_of(topic) is not None for sub in subs)
            for number in range(self._log.config(topic).partitions):
                place = TopicPartition(topic, Partition(number))
                is_ours = self._publishes_to(place)
                if is_read or is_ours:
                    up_to = partial(compaction_bound, self._folder.log_root, place)
                    min_entries = self._min_entries_of_ours if is_ours else self._min_entries
                    rewritten += self._log.rewrite(place, min_entries=min_entries, up_to=up_to)
                    unread = head.position(topic, place.partition) or Offset(0)
                    self._log.retain(place, spare=unread if is_read else None)
        return rewritten

    def _publishes_to(self, place: TopicPartition) -> bool:
        """Whatever the plan says: sinks may choose a topic per record, and there are dead letters."""
        return any(publisher == self._folder.application_id for publisher, _ in self._log.publications(place))

    def _collect(self, head: Manifest) -> int:
        """Delete the sealed files that nobody needs."""
        needed = self._log.referenced_files()
        needed.update(entry.file for entry in head.tasks.values())
        needed.update(
            manifest.tasks[task].file for manifest in self._chain.kept(head) for task in manifest.sealed
        )
        collected = 0
        for epoch, folder in self._folder.epoch_folders():
            if epoch > head.epoch:
                break
            paths = list(folder.iterdir())
            garbage = [path for path in paths if self._folder.relative(path) not in needed]
            for path in garbage:
                self._folder.files.unlink(path)
                failpoints.hit("maintenance.file_collected")
            if len(garbage) == len(paths):
                self._remove(folder)
            collected += len(garbage)
        return collected

    def _remove(self, folder: Path) -> None:
        """Remove the folder of an epoch, unless a task that was given up long ago seals in it just now."""
        try:
            self._folder.files.rmdir(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
