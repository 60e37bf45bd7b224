"""The local stores of one task, opened together at one committed version.

`open_task_stores` holds the lock of the task's directory while the stores are open. A store that is
behind follows its changelog; one that is damaged, or that may have been torn by a power cut, is removed
and restored, from a snapshot if there is one; one that is ahead is refused. Every store of a task gets the
same version, also those that an epoch did not write to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, Self

from millstream import failpoints
from millstream.durable import disk_errors_named
from millstream.log.api import Log
from millstream.state.backends import supplier
from millstream.state.backends.api import Backend, BackendSupplier, ReadOnly
from millstream.state.backends.base import closed_on_error
from millstream.state.changelog.follow import (
    EMPTY,
    NO_LISTENER,
    RESTORING,
    RestoreListener,
    StorePosition,
    Target,
    apply_local_changes,
    follow,
    half_restored,
    position_of,
    refuse_newer,
)
from millstream.state.changelog.source_changelog import StoreStart, target_of
from millstream.state.errors import ChangelogGapError, DamagedStoreError, TaskLockedError
from millstream.state.local.directory import SORTING_FOLDER, Checkpoint, TaskDirectory
from millstream.state.local.hot_cells import CellBudget, HotCells
from millstream.state.local.store_on_disk import StoreOnDisk
from millstream.state.local.whole_version import WholeVersion
from millstream.state.snapshots.manifest import SnapshotPlace
from millstream.state.snapshots.restoring import Restorer
from millstream.state.snapshots.storage import SnapshotStorage
from millstream.state.specs import StoreBuilder
from millstream.state.stores.overlay import CommittedReader, Entry
from millstream.state.stores.segments import SEGMENT_BYTES, apply_changes
from millstream.types import Offset, Partition, Version

_SHORT_WAIT_MS: Final = 2
"""So long it is waited for the lock to bring shared stores to a version before they are looked at again, and
twice as long each time."""
_MOST_TRIES: Final = 10
"""How often stores that are shared are brought to a version before it is given up to read them there."""

LocalChanges = Callable[[str, Version, Version], list[list[Entry]] | None]
"""Writes of an unlogged store after one version up to another; None if they are not to be had."""


@dataclass(frozen=True, slots=True)
class TaskVersion:
    """What a task's stores must hold."""

    application_id: str
    partition: Partition
    version: Version
    positions: Mapping[str, Offset]
    """Per logged store, the next offset of its changelog, or of the topic that does for one."""
    sealed_digest: str = ""
    """Digest of the file that the task sealed for this version: it tells one history from another."""
    origins: Mapping[str, StoreStart] = field(default_factory=dict)
    """Per store with a source topic for a changelog, how it began. One that is missing has had no records."""


class NewerStores(Enum):
    """What to do about a store that is newer than the version that is wanted."""

    REFUSE = "refuse"
    """An epoch can't run on it: the wanted version is the last commit, so another one was lost."""
    TAKE = "take"
    """A snapshot can: commits went on since the version was chosen. It must be of the same history."""


IsKnown = Callable[[Version, str], bool]
"""Whether the task sealed a file of that digest for that version, in the history that goes on."""


class TaskStores:
    """The stores of one task, open at one version, and the lock of its directory. A context manager."""

    def __init__(
        self,
        directory: TaskDirectory,
        specs: Mapping[str, StoreBuilder],
        version: TaskVersion,
        log: Log,
        listener: RestoreListener,
        backends: dict[str, Backend],
        resources: ExitStack,
    ) -> None:
        self.backends = backends
        self.version = version
        self._directory = directory
        self._specs = specs
        self._log = log
        self._listener = listener
        self._resources = resources
        self._cells: dict[str, HotCells] = {}
        self._positions: dict[str, StorePosition] = {}
        """Where stores stand that were advanced: nobody else writes to them, for the lock is held."""
        self.whole = WholeVersion(directory.path.name, version.version)
        """For threads that read the stores beside the one that uses them."""

    def remember_cells(self, budget: CellBudget) -> None:
        """Keep in memory what is read and written from now on. Not of segments: they expire as a whole."""
        self._cells = {
            name: HotCells(backend, budget)
            for name, backend in self.backends.items()
            if not self._specs[name].is_segmented
        }

    @property
    def readers(self) -> Mapping[str, CommittedReader]:
        """The stores as an epoch reads them."""
        return {**self.backends, **self._cells}

    def advance(self, wanted: TaskVersion, changes: Mapping[str, Sequence[Entry]]) -> None:
        """Apply the changes of an epoch to the stores, which are at the version before it.

        They are the rows of the changelog, so the stores get the bytes that following it would give them.
        What has a source topic for a changelog follows that one.
        """
        with self.whole.moved_to(wanted.version):
            self._advance(wanted, changes)

    def _advance(self, wanted: TaskVersion, changes: Mapping[str, Sequence[Entry]]) -> None:
        for name, spec in self._specs.items():
            backend, cells = self.backends[name], self._cells.get(name)
            here = self._positions.pop(name, None)
            if spec.source_topic is not None and _has_rows(spec, wanted):
                target = _target(spec, wanted, self._directory.path / SORTING_FOLDER)
                follow(backend, target, self._log, self._listener)
                if cells is not None:
                    cells.forget()
            else:
                position = _wanted_position(spec, wanted)
                refuse_newer(name, wanted.partition, here or position_of(backend, name), position)
                entries = () if spec.source_topic is not None else changes[name]
                apply_changes(backend, entries, position.encoded(), segmented=spec.is_segmented)
                self._positions[name] = position
                if cells is not None:
                    cells.written(entries)
            failpoints.hit("commit.store_applied")
        self.version = wanted
        with disk_errors_named(self._directory.path):
            self._directory.write_checkpoint(Checkpoint(wanted.version, dict(wanted.positions)))

    def follow(
        self,
        wanted: TaskVersion,
        *,
        local_changes: LocalChanges,
        is_known: IsKnown,
        batch_bytes: int | None = None,
    ) -> None:
        """Bring the stores to a later version by their changelogs, as whoever opens them does."""
        with self.whole.moved_to(wanted.version):
            self._follow(wanted, local_changes, is_known, batch_bytes)

    def _follow(
        self, wanted: TaskVersion, local_changes: LocalChanges, is_known: IsKnown, batch_bytes: int | None
    ) -> None:
        self._forget_cells()
        self._positions.clear()
        scratch = self._directory.path / SORTING_FOLDER
        for name, spec in self._specs.items():
            _bring_to_version(
                spec,
                wanted,
                replace(_target(spec, wanted, scratch), batch_bytes=batch_bytes),
                self._log if _has_rows(spec, wanted) else None,
                local_changes,
                self._listener,
                is_known,
                NewerStores.REFUSE,
                self.backends[name],
            )
            failpoints.hit("commit.store_applied")
        self.version = wanted
        with disk_errors_named(self._directory.path):
            self._directory.write_checkpoint(Checkpoint(wanted.version, dict(wanted.positions)))

    def close(self) -> None:
        """Close the stores, and let the lock go."""
        self.whole.close()
        self._forget_cells()
        self._resources.close()

    def _forget_cells(self) -> None:
        for cells in self._cells.values():
            cells.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hold_task_stores(
    directory: TaskDirectory,
    stores: Mapping[str, StoreBuilder],
    wanted: TaskVersion,
    log: Log,
    *,
    default_backend: str | BackendSupplier,
    local_changes: LocalChanges,
    is_known: IsKnown = lambda _version, _digest: True,
    lock_timeout_ms: int = 60_000,
    listener: RestoreListener = NO_LISTENER,
    snapshots: SnapshotStorage | None = None,
    newer: NewerStores = NewerStores.REFUSE,
    rocksdb_config_setter: object = None,
    batch_bytes: int | None = None,
    in_slices: bool = False,
) -> TaskStores:
    """Open all stores at the wanted version, until they are closed.

    `in_slices`: a store that is interrupted on its way goes on from there when it is opened again, whatever
    that costs.
    """
    scratch = None if in_slices else directory.path / SORTING_FOLDER
    with ExitStack() as resources:
        resources.enter_context(directory.lock(timeout_ms=lock_timeout_ms))
        _forget_what_a_power_cut_may_have_torn(directory)
        directory.note_unsynced_writes()
        opened: dict[str, Backend] = {}
        for name, spec in stores.items():
            chosen = supplier_of(spec, default_backend, rocksdb_config_setter)
            store = StoreOnDisk(directory, chosen, name, SEGMENT_BYTES if spec.is_segmented else 0)
            target = replace(_target(spec, wanted, scratch), batch_bytes=batch_bytes)
            changelog = log if _has_rows(spec, wanted) else None
            restorer = None
            if snapshots is not None and wanted.version > 0:
                place = SnapshotPlace(wanted.application_id, directory.path.name, name, chosen.name)
                restorer = Restorer(snapshots, place, store, target, changelog, is_known, listener)
            bring = partial(
                _bring_to_version, spec, wanted, target, changelog, local_changes, listener, is_known, newer
            )
            backend = _open(store, bring, restorer)
            opened[name] = resources.enter_context(backend)
            failpoints.hit("commit.store_applied")
        with disk_errors_named(directory.path):
            directory.write_checkpoint(
                Checkpoint(wanted.version, dict(wanted.positions))
                if newer is NewerStores.REFUSE
                else _checkpoint(stores, opened)
            )
        return TaskStores(directory, stores, wanted, log, listener, opened, resources.pop_all())


@contextmanager
def open_task_stores(
    directory: TaskDirectory,
    stores: Mapping[str, StoreBuilder],
    wanted: TaskVersion,
    log: Log,
    *,
    default_backend: str | BackendSupplier,
    local_changes: LocalChanges,
    is_known: IsKnown = lambda _version, _digest: True,
    lock_timeout_ms: int = 60_000,
    listener: RestoreListener = NO_LISTENER,
    snapshots: SnapshotStorage | None = None,
    newer: NewerStores = NewerStores.REFUSE,
    rocksdb_config_setter: object = None,
) -> Iterator[dict[str, Backend]]:
    """Open all stores at the wanted version, for the length of a `with` block."""
    with hold_task_stores(
        directory,
        stores,
        wanted,
        log,
        default_backend=default_backend,
        local_changes=local_changes,
        is_known=is_known,
        lock_timeout_ms=lock_timeout_ms,
        listener=listener,
        snapshots=snapshots,
        newer=newer,
        rocksdb_config_setter=rocksdb_config_setter,
    ) as held:
        yield held.backends


@contextmanager
def open_shared_stores(
    directory: TaskDirectory,
    stores: Mapping[str, StoreBuilder],
    wanted: TaskVersion,
    log: Log,
    *,
    default_backend: str | BackendSupplier,
    local_changes: LocalChanges,
    is_known: IsKnown = lambda _version, _digest: True,
    lock_timeout_ms: int = 60_000,
    listener: RestoreListener = NO_LISTENER,
    snapshots: SnapshotStorage | None = None,
    rocksdb_config_setter: object = None,
) -> Iterator[dict[str, Backend]]:
    """The same, to read: as many processes of the host as like may have the stores open at once.

    1. Under a shared lock: open them to read, if they are at the version.
    2. Else bring them there under the lock that one alone can have, as everybody else does, and go back to 1.
       If somebody has it, or reads, that may be because they are there by now: so it is not waited for long.

    A backend that can be open in one process only is held by one reader at a time.
    """
    suppliers = _suppliers(stores, default_backend, rocksdb_config_setter)
    opening = partial(
        open_task_stores,
        directory,
        stores,
        wanted,
        log,
        default_backend=default_backend,
        local_changes=local_changes,
        is_known=is_known,
        listener=listener,
        snapshots=snapshots,
        rocksdb_config_setter=rocksdb_config_setter,
    )
    if not can_be_shared(stores, default_backend, rocksdb_config_setter):
        with opening(lock_timeout_ms=lock_timeout_ms) as opened:
            yield opened
        return
    deadline = time.monotonic() + lock_timeout_ms / 1000
    brought, wait_ms = 0, _SHORT_WAIT_MS
    while brought < _MOST_TRIES:
        with ExitStack() as resources:
            # 1.
            resources.enter_context(directory.shared_lock(timeout_ms=lock_timeout_ms))
            found = _read_at(directory, stores, suppliers, wanted, resources)
            if found is not None:
                yield found
                return
        # 2.
        try:
            with opening(lock_timeout_ms=min(lock_timeout_ms, wait_ms)):
                brought += 1
        except TaskLockedError:
            if time.monotonic() >= deadline:
                raise
            wait_ms *= 2
    raise TaskLockedError(
        f"The stores in {directory.path} were brought to version {wanted.version} {_MOST_TRIES} times, and "
        "every time were not there any more to be read. Likely cause: somebody deletes local state while the "
        "application runs. Remedy: stop that; the state is restored."
    )


def _read_at(
    directory: TaskDirectory,
    stores: Mapping[str, StoreBuilder],
    suppliers: Mapping[str, BackendSupplier],
    wanted: TaskVersion,
    resources: ExitStack,
) -> dict[str, Backend] | None:
    """The stores, open to read; None if one of them is not at the version, or not to be trusted."""
    if directory.lost_in_a_power_cut():
        return None
    opened: dict[str, Backend] = {}
    for name, spec in stores.items():
        chosen = suppliers[name]
        path = directory.store_path(chosen.name, name)
        if not path.is_dir() or not isinstance(chosen, ReadOnly):
            return None
        segment_bytes = SEGMENT_BYTES if spec.is_segmented else 0
        try:
            backend = resources.enter_context(chosen.open_read_only(path, segment_bytes=segment_bytes))
            here = position_of(backend, name)
        except DamagedStoreError:
            return None
        if (here.version, here.sealed_digest) != (wanted.version, wanted.sealed_digest):
            return None
        opened[name] = backend
    return opened


def _checkpoint(stores: Mapping[str, StoreBuilder], opened: Mapping[str, Backend]) -> Checkpoint:
    """What the stores hold, whatever was wanted."""
    positions = {name: position_of(backend, name) for name, backend in opened.items()}
    version = max((position.version for position in positions.values()), default=Version(0))
    return Checkpoint(version, {name: positions[name].offset for name in stores if stores[name].logging})


def positions_on_disk(
    directory: TaskDirectory,
    stores: Mapping[str, StoreBuilder],
    default_backend: str | BackendSupplier,
    *,
    rocksdb_config_setter: object = None,
) -> dict[str, StorePosition]:
    """Where each store stands that is kept on disk: at version 0 if it is not there, half restored, or lost.

    Lost is what is damaged, and what a power cut may have torn: that is not even opened.
    """
    found = standing_on_disk(directory, stores, default_backend, rocksdb_config_setter=rocksdb_config_setter)
    return {name: EMPTY if here.version == RESTORING else here for name, here in found.items()}


def standing_on_disk(
    directory: TaskDirectory,
    stores: Mapping[str, StoreBuilder],
    default_backend: str | BackendSupplier,
    *,
    rocksdb_config_setter: object = None,
) -> dict[str, StorePosition]:
    """The same, but those that are on their way stand where they have come to."""
    found: dict[str, StorePosition] = {}
    with directory.lock(timeout_ms=0):
        is_lost = directory.lost_in_a_power_cut()
        for name, spec in stores.items():
            chosen = supplier_of(spec, default_backend, rocksdb_config_setter)
            if not chosen.persistent:
                continue
            found[name] = EMPTY
            if not is_lost and directory.store_path(chosen.name, name).is_dir():
                with (
                    suppress(DamagedStoreError),
                    chosen.open(directory.store_path(chosen.name, name)) as backend,
                ):
                    found[name] = position_of(backend, name)
    return found


def can_be_shared(
    stores: Mapping[str, StoreBuilder],
    default_backend: str | BackendSupplier,
    rocksdb_config_setter: object = None,
) -> bool:
    """Whether several processes may have stores open to read at once."""
    suppliers = _suppliers(stores, default_backend, rocksdb_config_setter)
    return all(isinstance(one, ReadOnly) for one in suppliers.values())


def _suppliers(
    stores: Mapping[str, StoreBuilder], default_backend: str | BackendSupplier, rocksdb_config_setter: object
) -> dict[str, BackendSupplier]:
    return {name: supplier_of(spec, default_backend, rocksdb_config_setter) for name, spec in stores.items()}


def supplier_of(
    spec: StoreBuilder, default_backend: str | BackendSupplier, rocksdb_config_setter: object = None
) -> BackendSupplier:
    """The supplier of a store's backend."""
    choice = spec.backend if spec.backend is not None else default_backend
    return supplier(choice, rocksdb_config_setter=rocksdb_config_setter)


def _open(store: StoreOnDisk, bring: Callable[[Backend], None], restorer: Restorer | None) -> Backend:
    """Open a store and bring it to its version; one that turns out to be damaged is made anew."""
    try:
        # Twice with snapshots: the damage may be in one, from before it was taken.
        for way in [restorer] if restorer is None else [restorer, restorer]:
            try:
                return _brought(_opened_or_restored(store, way), bring)
            except DamagedStoreError:
                store.remove()
        return _brought(store.open(), bring)
    except ChangelogGapError as gap:
        # The changelog begins later than the store stands: a snapshot beyond that will do.
        backend = None if restorer is None else restorer.restored(_position(store))
        if backend is not None:
            return _brought(backend, bring)
        if restorer is None or not restorer.problems:
            raise
        tried = " ".join(dict.fromkeys(restorer.problems))
        raise ChangelogGapError(f"{gap} No snapshot could take its place: {tried}") from gap


def _opened_or_restored(store: StoreOnDisk, restorer: Restorer | None) -> Backend:
    """The store as it is; one that holds nothing yet as its newest snapshot has it."""
    if restorer is None:
        return store.open()
    if store.is_there:
        with closed_on_error(store.open()) as backend:
            if backend.marker() is not None:
                return backend
        backend.close()
    return restorer.restored() or store.open()


def _position(store: StoreOnDisk) -> Offset:
    with store.open() as backend:
        return position_of(backend, store.name).offset


def _brought(opened: Backend, bring: Callable[[Backend], None]) -> Backend:
    with closed_on_error(opened) as backend:
        bring(backend)
    return backend


def _bring_to_version(
    spec: StoreBuilder,
    wanted: TaskVersion,
    target: Target,
    changelog: Log | None,
    local_changes: LocalChanges,
    listener: RestoreListener,
    is_known: IsKnown,
    newer: NewerStores,
    backend: Backend,
) -> None:
    name = spec.name
    here = position_of(backend, name)
    _refuse_foreign(here, name, wanted, is_known)
    if (
        newer is NewerStores.TAKE
        and here.version > wanted.version
        and is_known(here.version, here.sealed_digest)
    ):
        return
    if changelog is not None:
        follow(backend, target, changelog, listener)
        return
    if here.version == wanted.version:
        return
    refuse_newer(name, wanted.partition, here, StorePosition(wanted.version, here.offset))
    if here.version == RESTORING:
        raise half_restored(name, f"at version {wanted.version} it has no log to go on with")
    changes = [] if spec.logging else local_changes(name, here.version, wanted.version)
    if changes is None:
        changes = [[(key, None) for key, _ in backend.scan()]]
    position = StorePosition(wanted.version, Offset(0), wanted.sealed_digest)
    apply_local_changes(backend, changes, position, segmented=spec.is_segmented)


def _has_rows(spec: StoreBuilder, wanted: TaskVersion) -> bool:
    """Whether there is a topic to follow: a source topic may have fewer partitions than there are tasks."""
    return spec.logging and (spec.source_topic is None or spec.name in wanted.origins)


def _target(spec: StoreBuilder, wanted: TaskVersion, scratch: Path | None) -> Target:
    position, origin = _wanted_position(spec, wanted), wanted.origins.get(spec.name)
    return replace(
        target_of(spec, wanted.application_id, wanted.partition, position, origin), scratch=scratch
    )


def _wanted_position(spec: StoreBuilder, wanted: TaskVersion) -> StorePosition:
    offset = wanted.positions.get(spec.name, Offset(0)) if spec.logging else Offset(0)
    return StorePosition(wanted.version, offset, wanted.sealed_digest)


def _refuse_foreign(here: StorePosition, name: str, wanted: TaskVersion, is_known: IsKnown) -> None:
    """A store of another history (another log, or a branch that a backup undid) is as good as damaged."""
    if not here.sealed_digest or here.sealed_digest == wanted.sealed_digest or here.version > wanted.version:
        return
    if not is_known(here.toward or here.version, here.sealed_digest):
        raise DamagedStoreError(
            f"Store {name!r} is at version {here.version} of another history of the application. It is "
            "removed and restored from its changelog."
        )


def _forget_what_a_power_cut_may_have_torn(directory: TaskDirectory) -> None:
    if not directory.lost_in_a_power_cut():
        return
    # All of them, whatever backend or plan they were written with: the note is about the whole task.
    folders = [path for path in directory.path.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for backend in folders:
        for store in [path.name for path in backend.iterdir() if not path.name.startswith(".")]:
            directory.remove_store(backend.name, store)
    directory.note_synced()
