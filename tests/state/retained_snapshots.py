"""Which snapshots an application has, as their manifests tell, and where in its changelogs they stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.log.api import TopicPartition
from millstream.state.changelog.follow import StorePosition
from millstream.state.changelog.rows import changelog_topic
from millstream.state.errors import DamagedSnapshotError
from millstream.state.snapshots.listing import manifests
from millstream.state.snapshots.manifest import SnapshotPlace, read_snapshot
from millstream.state.snapshots.storage import SnapshotStorage
from millstream.types import Offset, Partition, Version


@dataclass(frozen=True, slots=True)
class RetainedSnapshot:
    """A snapshot that can be seen, and that a restore may begin with."""

    place: SnapshotPlace
    position: StorePosition

    @property
    def changelog(self) -> TopicPartition:
        """The changelog that a restore from it goes on with."""
        partition = Partition(int(self.place.task.partition("_")[2]))
        return TopicPartition(changelog_topic(self.place.application_id, self.place.store), partition)


def retained_snapshots(storage: SnapshotStorage, application_id: str) -> list[RetainedSnapshot]:
    """All snapshots of an application that are intact as far as their manifests tell."""
    found: list[RetainedSnapshot] = []
    for place, name in manifests(storage, application_id):
        try:
            snapshot = read_snapshot(storage, place, name)
        except DamagedSnapshotError:
            continue  # nobody can begin with it
        found.append(RetainedSnapshot(place, snapshot.position))
    return found


def changelog_positions(
    storage: SnapshotStorage,
    application_id: str,
    *,
    is_known: Callable[[str, Version, str], bool] = lambda _task, _version, _sealed: True,
) -> dict[TopicPartition, tuple[Offset, ...]]:
    """At which offsets of which changelogs the retained snapshots stand, ascending."""
    positions: dict[TopicPartition, set[Offset]] = {}
    for snapshot in retained_snapshots(storage, application_id):
        position = snapshot.position
        if is_known(snapshot.place.task, position.version, position.sealed_digest):
            positions.setdefault(snapshot.changelog, set()).add(position.offset)
    return {place: tuple(sorted(offsets)) for place, offsets in positions.items()}
