"""The topics of an application: which ones it reads, which ones it needs, and how many partitions they have.

What the program reads must be there already. Changelogs get one partition per task, and sinks what the
settings say. State is kept by partition: where topics have grown so that keys would be elsewhere than their
state, the program is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.commit.manifest import Manifest
from millstream.commit.plan_changes import PlanChangedError
from millstream.commit.source_changelog import check_retention
from millstream.log.api import Log, TopicConfig
from millstream.state.changelog.rows import changelog_topic
from millstream.topology.plan import Plan, SubTopology


class ApplicationTopics:
    """Finds the topics of one application, makes those that are missing, and counts their partitions."""

    def __init__(self, application_id: str, log: Log, plan: Plan, *, default_partitions: int) -> None:
        self._application_id = application_id
        self._log = log
        self._plan = plan
        self._default_partitions = default_partitions
        self.counts: dict[str, int] = {}
        """Partitions of every topic, repartitions included."""

    def sources(self) -> list[str]:
        """The topics that are there and that the program reads."""
        known = self._log.topics()
        return sorted(
            topic
            for topic in known
            if any(sub.source_of(topic) is not None for sub in self._plan.all_subtopologies)
        )

    def repartitions(self) -> dict[str, int]:
        """Partitions of the topics that are inside the program."""
        return {topic: self.counts[topic] for topic in self._plan.repartition_topics}

    def have_grown(self) -> bool:
        """Whether a pattern has a new topic, or a topic that we read or write has more partitions."""
        watched = {*self.sources(), *self._static_sinks()}
        return any(self.counts.get(topic) != self._log.config(topic).partitions for topic in watched)

    def check(self) -> None:
        """Refuse what a new application could not begin with: no log, a topic that is missing."""
        external = {topic: self._log.config(topic).partitions for topic in self._log.topics()}
        self.counts = self._plan.partitions(external)
        check_retention(self._plan, self._log)

    def create(self, head: Manifest | None) -> None:
        """Count all partitions anew, and make what is missing, unless the state at the head does not fit."""
        before = self.counts
        external = {topic: self._log.config(topic).partitions for topic in self._log.topics()}
        self.counts = self._plan.partitions(external, {} if head is None else head.repartitions)
        check_retention(self._plan, self._log)
        try:
            for sub in self._plan.all_subtopologies:
                for name in sub.stores:
                    self._check_spread(sub, name, head)
        except PlanChangedError:
            self.counts = before
            raise
        self.create_missing(self._static_sinks())

    def create_missing(self, topics: Iterable[str]) -> None:
        """Make those of some topics that nobody has counted yet."""
        for topic in sorted(topics):
            if topic not in self.counts:
                self._create(topic, TopicConfig(self._default_partitions))

    def _create(self, topic: str, config: TopicConfig) -> None:
        if topic not in self._log.topics():
            self._log.create_topic(topic, config)
        self.counts[topic] = self._log.config(topic).partitions

    def _static_sinks(self) -> set[str]:
        named = {
            sink.topic for sub in self._plan.all_subtopologies for sink in sub.sinks if sink.topic is not None
        }
        return named - set(self._plan.repartition_topics)

    def _check_spread(self, sub: SubTopology, store: str, head: Manifest | None) -> None:
        """Refuse if the keys of a store would no longer be where they are; else it has its changelog."""
        tasks = self._plan.task_count(sub, self.counts)
        if sub.stores[store].has_changelog:
            topic = changelog_topic(self._application_id, store)
            self._create(topic, TopicConfig(tasks, is_compacted=True))
            spread = self.counts[topic]
        else:
            spread = self._tasks_before(sub, head) or tasks
        hashed = any(
            name in self._plan.repartition_topics for source in sub.sources for name in source.topics
        )
        if spread < tasks or (hashed and spread != tasks):
            raise PlanChangedError(
                f"Store {store!r} of application {self._application_id!r} is spread over {spread} "
                f"partitions, but the topics that feed it now ask for {tasks}. Nothing was changed. Likely "
                "cause: a topic was given more partitions, or a new topic that fits a pattern has more than "
                "the others. State is kept by partition, and the keys of new records would be elsewhere than "
                "their state. Remedy: start the program under another app_id, so that it builds its state "
                f"anew; or let records come through a topic with {spread} partitions. A stream that is "
                "regrouped (group_by, repartition) in front of the store does not depend on its topic's "
                "partitions."
            )

    def _tasks_before(self, sub: SubTopology, head: Manifest | None) -> int:
        """How many tasks a sub-topology had at the head, as far as records have come."""
        if head is None:
            return 0
        known = {topic: head.partitions(topic) for topic in self.sources()} | dict(head.repartitions)
        return max((count for topic, count in known.items() if sub.source_of(topic) is not None), default=0)
