"""What a task has sealed in past epochs, as manifests name it: for stores that are brought to a version."""

from __future__ import annotations

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import ManifestChain, TaskEntry
from millstream.commit.sealed_file import read_sealed
from millstream.durable import DamagedFileError
from millstream.state.changelog.rows import entries_of
from millstream.state.errors import ZombieTaskError
from millstream.state.stores.overlay import Entry
from millstream.types import Epoch, Version


def is_known(storage: ApplicationStorage, task_id: str, version: Version, digest: str) -> bool:
    """Whether the manifest of a version, with which the task has sealed, names this very file."""
    try:
        entry = ManifestChain(storage).record(Epoch(version)).tasks.get(task_id)
    except FileNotFoundError:
        return False
    return entry is not None and entry.digest == digest


def changes_between(
    storage: ApplicationStorage, task_id: str, store: str, after: Version, to: Version
) -> list[list[Entry]]:
    """Writes of an unlogged store from the sealed files of the epochs in between."""
    chain = ManifestChain(storage)
    changes: list[list[Entry]] = []
    for number in range(after + 1, to + 1):
        record = chain.record(Epoch(number))
        if task_id in record.sealed:
            changes += sealed_changes(storage, record.tasks[task_id], store)
    return changes


def sealed_changes(storage: ApplicationStorage, entry: TaskEntry, store: str) -> list[list[Entry]]:
    """What one sealed file has for an unlogged store."""
    reader = read_sealed(storage, entry.file, entry.digest, entry.part)
    return [entries_of(rows) for rows in reader.local(store)]


def refuse_zombie(storage: ApplicationStorage, task_id: str, version: Version) -> None:
    """Refuse a task whose version is not its last one, after a file of that version was found missing.

    Maintenance collects a sealed file only after its task has sealed another one.
    """
    head = ManifestChain(storage).latest()
    last = head.tasks.get(task_id) if head is not None else None
    if last is not None and last.version > version:
        raise ZombieTaskError(
            f"Task {task_id} of application {storage.application_id!r} was to bring its stores to "
            f"version {version}, but has committed version {last.version} since, and the files of the past "
            "are collected. Nothing was changed. Likely cause: this attempt slept while others went on (a "
            "zombie). Remedy: none is needed; the attempts of today do its work."
        )


def lost_file(error: FileNotFoundError, task_id: str, version: Version) -> DamagedFileError:
    """What to say if the file is missing that a task needs for its last version."""
    return DamagedFileError(
        f"{error.filename} is missing: the file that task {task_id} sealed for its last version, {version}. "
        "Likely cause: somebody deleted it; maintenance does not. Remedy: restore it from a backup."
    )
