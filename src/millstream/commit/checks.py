"""What must hold before an application is taken over, and before it commits.

Changelogs that end where the head says.
(That the program fits the state of the one before it: :mod:`millstream.commit.plan_changes`.)
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.commit.manifest import Manifest
from millstream.errors import MillstreamError
from millstream.log.api import Log, TopicPartition
from millstream.state.changelog.rows import changelog_topic
from millstream.topology.plan import Plan
from millstream.types import Partition


class ForeignChangelogError(MillstreamError):
    """A changelog holds rows that the application did not write."""


def check_changelogs(
    application_id: str, log: Log, plan: Plan, head: Manifest | None, task_ids: Iterable[str]
) -> None:
    """A changelog ends where the head says: positions are counted, so a foreign row would shift them."""
    stores = {sub.number: sub.stores for sub in plan.all_subtopologies}
    for task_id in task_ids:
        number, partition = (int(part) for part in task_id.split("_"))
        entry = None if head is None else head.tasks.get(task_id)
        for name, spec in stores.get(number, {}).items():
            if not spec.has_changelog:
                continue
            place = TopicPartition(changelog_topic(application_id, name), Partition(partition))
            wanted = 0 if entry is None else entry.changelogs.get(name, 0)
            found = log.latest(place)
            if found != wanted:
                raise ForeignChangelogError(
                    f"The changelog {place} of store {name!r} ends at offset {found}, but the last "
                    f"commit wrote it up to {wanted}. Nothing was committed. Likely cause: another "
                    "program, or another application whose names give the same topic, writes to it. "
                    "Remedy: give the store or the application another name, or restore the log."
                )
