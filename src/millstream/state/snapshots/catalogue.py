"""Which snapshots there are. Readers only: nothing is changed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millstream.log.api import TopicPartition
from millstream.state.changelog.follow import StorePosition
from millstream.state.changelog.rows import changelog_topic
from millstream.state.snapshots.errors import DamagedSnapshotError
from millstream.state.snapshots.manifest import ManifestName, SnapshotPlace, read_snapshot
from millstream.state.snapshots.storage import SnapshotStorage
from millstream.types import Offset, Partition, Version

__all__ = [
    "Listing",
    "RetainedSnapshot",
    "changelog_positions",
    "listing",
    "newest_versions",
    "retained_snapshots",
    "retained_versions",
]


@dataclass(frozen=True, slots=True)
class Listing:
    """What is stored for one store."""

    manifests: list[ManifestName]
    """The newest first."""
    files: dict[str, int]
    """Content: its name, and how many bytes there are."""
    litter: list[str]
    """What a crash left behind."""


@dataclass(frozen=True, slots=True)
class RetainedSnapshot:
    """A snapshot that can be seen, and that a restore may begin with."""

    place: SnapshotPlace
    marker: StorePosition

    @property
    def changelog(self) -> TopicPartition:
        """The changelog that a restore from it goes on with."""
        partition = Partition(int(self.place.task.partition("_")[2]))
        return TopicPartition(changelog_topic(self.place.application_id, self.place.store), partition)


def listing(storage: SnapshotStorage, place: SnapshotPlace) -> Listing:
    """What is stored for a store."""
    manifests: list[ManifestName] = []
    files: dict[str, int] = {}
    litter: list[str] = []
    for name, size in storage.sizes(place.folder).items():
        manifest = ManifestName.parsed(name)
        if manifest is not None:
            manifests.append(manifest)
        elif name.startswith("files/."):
            litter.append(name)
        elif name.startswith("files/"):
            files[name] = size
        elif name.startswith("manifests/."):
            litter.append(name)
    return Listing(sorted(manifests, reverse=True), files, litter)


def retained_snapshots(storage: SnapshotStorage, application_id: str) -> list[RetainedSnapshot]:
    """All snapshots of an application that are intact as far as their manifests tell.

    A storage that can't be asked is an error: then nobody knows, and nothing may be deleted.
    """
    found: list[RetainedSnapshot] = []
    for place, name in _manifests(storage, application_id):
        try:
            snapshot = read_snapshot(storage, place, name)
        except DamagedSnapshotError:
            continue  # nobody can begin with it
        found.append(RetainedSnapshot(place, snapshot.marker))
    return found


def changelog_positions(
    storage: SnapshotStorage,
    application_id: str,
    *,
    is_known: Callable[[str, Version, str], bool] = lambda _task, _version, _sealed: True,
) -> dict[TopicPartition, tuple[Offset, ...]]:
    """At which offsets of which changelogs the retained snapshots stand, ascending.

    A restore begins at one of them and reads on: what compaction drops behind the first of them (tombstones
    above all) would be missed. ``is_known(task, version, sealed)`` leaves other histories out.
    """
    positions: dict[TopicPartition, set[Offset]] = {}
    for snapshot in retained_snapshots(storage, application_id):
        marker = snapshot.marker
        if is_known(snapshot.place.task, marker.version, marker.sealed):
            positions.setdefault(snapshot.changelog, set()).add(marker.position)
    return {place: tuple(sorted(offsets)) for place, offsets in positions.items()}


def retained_versions(storage: SnapshotStorage, application_id: str) -> set[Version]:
    """The versions that have snapshots, of whatever task; by their names only."""
    return {name.version for _, name in _manifests(storage, application_id)}


def newest_versions(storage: SnapshotStorage, application_id: str) -> dict[str, Version]:
    """Per task, the version up to which each store that has snapshots has one; by their names only."""
    newest: dict[tuple[str, str], Version] = {}
    for place, name in _manifests(storage, application_id):
        store = place.task, place.store  # on whatever backend
        newest[store] = max(newest.get(store, Version(0)), name.version)
    tasks: dict[str, Version] = {}
    for (task, _), version in newest.items():
        tasks[task] = min(tasks.get(task, version), version)
    return tasks


def _manifests(storage: SnapshotStorage, application_id: str) -> Iterator[tuple[SnapshotPlace, ManifestName]]:
    for path in sorted(storage.sizes(application_id)):
        parts = path.split("/", 3)
        name = ManifestName.parsed(parts[-1])
        if name is not None:
            yield SnapshotPlace(application_id, *parts[:3]), name
