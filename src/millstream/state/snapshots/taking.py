"""Taking a snapshot of a task's stores: begun under the task's lock, everything that takes long without it.

Only where tasks run in the same process are local copies finished under the lock, too: they wait meanwhile.

Whoever takes one holds ``.snapshots/.lock`` in the task's directory, so that two on one host don't meet. Two
on different hosts (one of them long given up) can: content has the same name only if it is the same, and
whoever finds that files of its new snapshot were collected meanwhile takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from millstream import failpoints
from millstream.durable import disk_errors_named, ensure_private_folder, held_lock, remove_tree_in_steps
from millstream.errors import MillstreamError
from millstream.state.backends.api import Backend
from millstream.state.backends.folder import FORMAT_FILE, Format
from millstream.state.changelog.follow import StorePosition, position_of
from millstream.state.errors import DamagedSnapshotError, SnapshotFormatError, SnapshotStorageError
from millstream.state.local.directory import LOCK_FILE, SNAPSHOTS_FOLDER, TaskDirectory
from millstream.state.snapshots.digests import Digests
from millstream.state.snapshots.listing import Listing, listing
from millstream.state.snapshots.manifest import KIND, ManifestName, Snapshot, SnapshotPlace, read_snapshot
from millstream.state.snapshots.storage import SnapshotStorage, chunks_of
from millstream.types import Version

_NOTHING: Final = Version(0)

IsKnown = Callable[[Version, str], bool]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the snapshot of one store, or (without a store) of a task's."""

    task: str
    store: str | None
    version: Version = _NOTHING
    """0: there was nothing to take."""
    stored_bytes: int = 0
    """Of the files that no earlier snapshot had."""
    total_bytes: int = 0
    problem: str | None = None
    """Why there is no snapshot, or what is left to clean up. State is safe without it."""


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Where snapshots of a task go, and how many stay."""

    storage: SnapshotStorage
    places: Mapping[str, SnapshotPlace]
    """By store."""
    retained: int
    is_known: IsKnown
    """Whether a version of a digest is one of this history: others are neither counted nor preferred."""
    copies_under_lock: bool = False
    """The task's lock is held until the copies are finished. It must be where others of this process open the
    stores: LMDB can't be opened again in a process before a copy that was begun there is finished."""


def take_snapshots(
    directory: TaskDirectory,
    opened: AbstractContextManager[Mapping[str, Backend]],
    settings: SnapshotSettings,
) -> list[Outcome]:
    """Take a snapshot of every store that has changed since its last one.

    1. Begin a copy of each store, under the task's lock (``opened`` holds it): RocksDB makes hard links, LMDB
       begins to read. Finish the copies without the lock, unless the settings say otherwise.
    2. Store the files that no earlier snapshot has.
    3. Write the manifest. From here on the snapshot can be seen.
    4. Drop the manifests that are no longer retained.
    5. Delete the files that no manifest names.

    A failure of one store is told in its outcome, and does not keep the others from theirs.
    """
    task = next(iter(settings.places.values())).task
    outcomes: list[Outcome] = []
    with _told(outcomes, task), _scratch(directory) as scratch, ExitStack() as pins:
        before = {store: listing(settings.storage, place) for store, place in settings.places.items()}
        copies: list[_Copy] = []
        copied: list[_Copy] = []

        def finish_copies() -> None:
            for copy in copies:
                with _told(outcomes, task, copy.place.store), disk_errors_named(copy.folder):
                    copy.finish()
                    copied.append(copy)
            pins.close()

        # 1.
        with opened as backends:
            for store, backend in backends.items():
                with _told(outcomes, task, store), disk_errors_named(scratch / store):
                    position = position_of(backend, store)
                    if position.version > 0 and ManifestName.of(position) not in before[store].manifests:
                        finish = pins.enter_context(backend.begin_snapshot(scratch / store))
                        copies.append(_Copy(settings.places[store], position, scratch / store, finish))
            if settings.copies_under_lock:
                finish_copies()
        if not settings.copies_under_lock:
            finish_copies()
        failpoints.hit("snapshot.copied")
        for copy in copied:
            with _told(outcomes, task, copy.place.store):
                outcomes.append(_stored(copy, before[copy.place.store], settings))
    return outcomes


@dataclass(frozen=True, slots=True)
class _Copy:
    place: SnapshotPlace
    position: StorePosition
    folder: Path
    finish: Callable[[], None]


@contextmanager
def _told(outcomes: list[Outcome], task: str, store: str | None = None) -> Iterator[None]:
    """Make an outcome of a failure."""
    try:
        yield
    except (MillstreamError, OSError) as error:
        outcomes.append(Outcome(task, store, problem=str(error)))


@contextmanager
def _scratch(directory: TaskDirectory) -> Iterator[Path]:
    """A folder beside the stores, empty but for known digests; for one process at a time."""
    scratch = directory.path / SNAPSHOTS_FOLDER
    with disk_errors_named(scratch):
        ensure_private_folder(scratch)
        with held_lock(scratch / LOCK_FILE, timeout_ms=0):
            _empty(directory)  # what a killed process left
            try:
                yield scratch
            finally:
                with suppress(OSError):
                    _empty(directory)


def _empty(directory: TaskDirectory) -> None:
    for path in directory.remains_of_snapshots():
        remove_tree_in_steps(path)


def _stored(copy: _Copy, before: Listing, settings: SnapshotSettings) -> Outcome:
    place = copy.place
    try:
        form = _format(copy.folder)
        digests = Digests(copy.folder.with_name(f"{place.backend}-{place.store}.digests"), form.id)
        files = tuple(digests.of(file) for file in sorted(copy.folder.iterdir()))
        digests.keep()
        snapshot = Snapshot(
            place.application_id, place.task, place.store, place.backend, form.format, copy.position, files
        )
        # 2.
        stored_bytes = 0
        there = dict(before.files)
        for file in files:
            if there.get(file.stored_as) != file.size:  # else there already, and whole
                settings.storage.put(f"{place.folder}/{file.stored_as}", chunks_of(copy.folder / file.name))
                there[file.stored_as] = file.size
                stored_bytes += file.size
                failpoints.hit("snapshot.file_stored")
        # 3.
        name = ManifestName.of(copy.position)
        settings.storage.put(f"{place.folder}/{name}", [KIND.encode(snapshot)])
        failpoints.hit("snapshot.written")
        problem = _delete_old(snapshot, settings)
        return Outcome(place.task, place.store, copy.position.version, stored_bytes, snapshot.bytes, problem)
    finally:
        with suppress(OSError):
            remove_tree_in_steps(copy.folder)


def _format(folder: Path) -> Format:
    """What the copy's FORMAT says; a backend of the user's own may have none."""
    try:
        return msgspec.json.decode((folder / FORMAT_FILE).read_bytes(), type=Format)
    except (OSError, ValueError):
        return Format("", 0, "snapshot", "")


def _delete_old(new: Snapshot, settings: SnapshotSettings) -> str | None:
    """Steps 4 and 5; what could not be done, if anything."""
    place, storage = new.place, settings.storage
    now = listing(storage, place)
    missing = [file for file in new.files if now.files.get(file.stored_as) != file.size]
    if missing:
        storage.delete(f"{place.folder}/{ManifestName.of(new.position)}")
        raise SnapshotStorageError(
            f"{storage.shown(f'{place.folder}/{missing[0].stored_as}')} is gone, though it was stored for "
            f"version {new.position.version}. The snapshot is taken back. Likely cause: another process "
            "takes snapshots of the same task. Remedy: none is needed if that was a coordinator that is "
            "being replaced."
        )
    try:
        # 4.
        kept, problem = _kept(new, now, settings)
        if kept is None:
            return problem
        for name in now.manifests:
            if name not in kept:
                storage.delete(f"{place.folder}/{name}")
                failpoints.hit("snapshot.dropped")
        # 5.
        named = {file.stored_as for snapshot in kept.values() for file in snapshot.files}
        for stored in (*(file for file in now.files if file not in named), *now.temporaries):
            storage.delete(f"{place.folder}/{stored}")
            failpoints.hit("snapshot.file_deleted")
    except (MillstreamError, OSError) as error:
        return f"The snapshot was taken, but old ones could not be deleted: {error}"
    return problem


def _kept(
    new: Snapshot, now: Listing, settings: SnapshotSettings
) -> tuple[dict[ManifestName, Snapshot] | None, str | None]:
    """The snapshots that stay: the newest of this history, and what is newer and not of it.

    The latter may belong to a history that a backup undid, or to somebody else: it is not ours to delete
    until this history has passed it by. None if nobody can tell, because another release wrote one.
    """
    ours = ManifestName.of(new.position)
    kept: dict[ManifestName, Snapshot] = {}
    problem: str | None = None
    counted = 0
    for name in now.manifests:
        is_ours = name == ours or settings.is_known(name.version, name.sealed_digest)
        if counted >= settings.retained or (not is_ours and name.version <= ours.version):
            continue
        try:
            kept[name] = new if name == ours else read_snapshot(settings.storage, new.place, name)
        except SnapshotFormatError as error:
            return None, str(error)
        except DamagedSnapshotError as error:
            if not is_ours:
                return None, str(error)
            problem = f"A snapshot could not be read and is deleted: {error}"
        else:
            counted += is_ours
    return kept, problem


def problems(outcomes: Sequence[Outcome]) -> list[str]:
    """What a log should say about them."""
    return [_message(outcome) for outcome in outcomes if outcome.problem is not None]


def _message(outcome: Outcome) -> str:
    whose = f"task {outcome.task}"
    if outcome.store is not None:
        whose = f"store {outcome.store!r} of {whose}"
    if outcome.version:
        return f"Snapshot {outcome.version} of {whose}: {outcome.problem}"
    return f"There is no new snapshot of {whose}: {outcome.problem}"
