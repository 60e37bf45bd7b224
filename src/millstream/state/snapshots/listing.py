"""Which snapshots there are. Readers only: nothing is changed here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.state.snapshots.manifest import ManifestName, SnapshotPlace
from millstream.state.snapshots.storage import SnapshotStorage
from millstream.types import Version


@dataclass(frozen=True, slots=True)
class Listing:
    """What is stored for one store."""

    manifests: list[ManifestName]
    """The newest first."""
    files: dict[str, int]
    """Content: its name, and how many bytes there are."""
    temporaries: list[str]
    """What a crash left behind."""


def listing(storage: SnapshotStorage, place: SnapshotPlace) -> Listing:
    """What is stored for a store."""
    manifests: list[ManifestName] = []
    files: dict[str, int] = {}
    temporaries: list[str] = []
    for name, size in storage.sizes(place.folder).items():
        manifest = ManifestName.parsed(name)
        if manifest is not None:
            manifests.append(manifest)
        elif name.startswith(("files/.", "manifests/.")):
            temporaries.append(name)
        elif name.startswith("files/"):
            files[name] = size
    return Listing(sorted(manifests, reverse=True), files, temporaries)


def retained_versions(storage: SnapshotStorage, application_id: str) -> set[Version]:
    """The versions that have snapshots, of whatever task; by their names only."""
    return {name.version for _, name in manifests(storage, application_id)}


def newest_versions(storage: SnapshotStorage, application_id: str) -> dict[str, Version]:
    """Per task, the version up to which each store that has snapshots has one; by their names only."""
    newest: dict[tuple[str, str], Version] = {}
    for place, name in manifests(storage, application_id):
        store = place.task, place.store  # on whatever backend
        newest[store] = max(newest.get(store, Version(0)), name.version)
    tasks: dict[str, Version] = {}
    for (task, _), version in newest.items():
        tasks[task] = min(tasks.get(task, version), version)
    return tasks


def manifests(storage: SnapshotStorage, application_id: str) -> Iterator[tuple[SnapshotPlace, ManifestName]]:
    """All manifests of an application."""
    for path in sorted(storage.sizes(application_id)):
        parts = path.split("/", 3)
        name = ManifestName.parsed(parts[-1])
        if name is not None:
            yield SnapshotPlace(application_id, *parts[:3]), name
