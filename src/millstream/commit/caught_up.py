"""Which tasks an epoch leaves behind: records that can reach them wait in the log, and it does not read them.

Windows close by the clock only in the other tasks. It is asked per task, so that a busy topic does not hold
up those that it has nothing to do with. Records reach the tasks whose records can meet (these are cut
together: see :mod:`millstream.commit.epoch_bounds`), and through a topic that the application writes those
that read it. Records of global topics reach no window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from millstream.commit.epoch_bounds import meeting_tasks
from millstream.log.api import TopicPartition
from millstream.topology.plan import Plan, SubTopology

__all__ = ["tasks_behind"]


def tasks_behind(plan: Plan, counts: Mapping[str, int], waiting: Iterable[TopicPartition]) -> frozenset[str]:
    """The ids of the tasks that records of some partitions can reach."""
    places = list(waiting)
    if not places:
        return frozenset()
    meeting = meeting_tasks(plan, counts)
    groups = {
        sub.number: {meeting.find((sub.number, number)) for number in range(plan.task_count(sub, counts))}
        for sub in plan.subtopologies
    }
    reached = {
        meeting.find((sub.number, place.partition))
        for place in places
        for sub in plan.subtopologies
        if sub.source_of(place.topic) is not None
    }
    before = -1
    while len(reached) > before:
        before = len(reached)
        for sub in plan.subtopologies:
            if not reached.isdisjoint(groups[sub.number]):
                reached.update(*(groups[reader.number] for reader in _readers(plan, sub)))
    return frozenset(
        sub.task_id(number)
        for sub in plan.subtopologies
        for number in range(plan.task_count(sub, counts))
        if meeting.find((sub.number, number)) in reached
    )


def _readers(plan: Plan, writer: SubTopology) -> Iterator[SubTopology]:
    """Who reads topics that a sub-topology writes. One that an extractor names may be any."""
    written = {sink.topic for sink in writer.sinks} - plan.repartition_topics.keys()
    for sub in plan.subtopologies:
        topics = {topic for source in sub.sources for topic in source.topics} - plan.repartition_topics.keys()
        if topics and (None in written or not topics.isdisjoint(written)):
            yield sub
