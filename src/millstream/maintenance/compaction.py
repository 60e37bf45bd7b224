"""Compaction and merging: topics are rewritten, so that they stay few files and as large as what is in them.

Rows that lie in sealed files and small segments are brought together; compacted topics (changelogs are) lose
what a later record replaces.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import partial

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.commit.source_changelog import compaction_bound
from millstream.log.api import SealedLog, TopicPartition
from millstream.maintenance.retention import retain
from millstream.state.changelog.rows import changelog_topic
from millstream.state.stores.segments import dropped_by
from millstream.throttler import maybe_throttle
from millstream.topology.plan import Plan
from millstream.types import Offset, Partition


@dataclass(frozen=True, slots=True)
class Compaction:
    """Rewrites the topics that one application writes or reads."""

    storage: ApplicationStorage
    log: SealedLog
    plan: Plan
    min_entries: int
    """A segment of a topic is closed to be merged when so many epochs have written to it."""
    min_entries_of_ours: int
    """The same, for topics that the application itself writes."""
    only: Container[TopicPartition] | None = None
    """The partitions that are rewritten; None: all."""

    def rewrite_changelogs(self, oldest: Manifest) -> int:
        """A store may be asked for at any manifest that is kept: compaction ends where the oldest stands.

        The sealed files since are kept as well. Stores by segments write no tombstones for what expires:
        their changelogs are told by the note.
        """
        there = set(self.log.topics())
        rewritten = 0
        for sub in self.plan.all_subtopologies:
            for name, spec in sub.stores.items():
                topic = changelog_topic(self.storage.application_id, name)
                if not spec.has_changelog or topic not in there:
                    continue
                for place in self._partitions(topic):
                    entry = oldest.tasks.get(sub.task_id(place.partition))
                    rewritten += self.log.rewrite(
                        place,
                        min_entries=self.min_entries_of_ours,
                        up_to=Offset(0) if entry is None else entry.changelogs.get(name, Offset(0)),
                        expired=dropped_by if spec.is_segmented else None,
                        beyond="leave",
                    )
                    maybe_throttle()
        return rewritten

    def rewrite_topics(self, head: Manifest) -> int:
        """All other topics that it reads or writes, and their retention.

        Compaction of a source topic ends where a store stands that has it for a changelog, of whatever
        application.
        """
        subs = self.plan.all_subtopologies
        application_id = self.storage.application_id
        changelogs = {changelog_topic(application_id, name) for sub in subs for name in sub.stores}
        rewritten = 0
        chains: dict[str, ManifestChain] = {}
        for topic in sorted(set(self.log.topics()) - changelogs):
            is_read = any(sub.source_of(topic) is not None for sub in subs)
            for place in self._partitions(topic):
                is_ours = self._publishes_to(place)
                if is_read or is_ours:
                    up_to = partial(compaction_bound, self.storage.root, place, chains)
                    min_entries = self.min_entries_of_ours if is_ours else self.min_entries
                    rewritten += self.log.rewrite(place, min_entries=min_entries, up_to=up_to)
                    retain(self.log, place, head, is_read=is_read)
                maybe_throttle()
        return rewritten

    def _partitions(self, topic: str) -> list[TopicPartition]:
        places = [TopicPartition(topic, Partition(at)) for at in range(self.log.config(topic).partitions)]
        return [place for place in places if self.only is None or place in self.only]

    def _publishes_to(self, place: TopicPartition) -> bool:
        """Whatever the plan says: sinks may choose a topic per record, and there are dead letters."""
        return any(publisher == self.storage.application_id for publisher, _ in self.log.publications(place))
