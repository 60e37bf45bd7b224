"""The local stores of one task, opened together at one committed version.

`open_task_stores` holds the lock of the task's directory while the stores are open. A store that is
behind follows its changelog; one that is damaged, or that may have been torn by a power cut, is removed
and restored; one that is ahead is refused. Every store of a task gets the same version, also those that
an epoch did not write to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from millstream import failpoints
from millstream.durable import disk_errors_named
from millstream.log.api import Log, TopicPartition
from millstream.state.backends import supplier
from millstream.state.backends.api import Backend, BackendSupplier
from millstream.state.changelog import changelog_topic
from millstream.state.directory import Checkpoint, TaskDirectory
from millstream.state.errors import DamagedStoreError
from millstream.state.follow import (
    NO_LISTENER,
    Marker,
    RestoreListener,
    Target,
    ahead,
    apply_segments,
    follow,
    marker_of,
)
from millstream.state.overlay import Entry
from millstream.state.segments import SEGMENT_BYTES
from millstream.state.specs import StoreBuilder
from millstream.types import Offset, Partition, Version

__all__ = ["LocalSegments", "TaskVersion", "open_task_stores", "versions_on_disk"]

LocalSegments = Callable[[str, Version, Version], list[list[Entry]] | None]
"""Writes of an unlogged store after one version up to another; None if they are not to be had."""


@dataclass(frozen=True, slots=True)
class TaskVersion:
    """What a task's stores must hold."""

    application_id: str
    partition: Partition
    version: Version
    positions: Mapping[str, Offset]
    """Per logged store, the next offset of its changelog."""
    sealed: str = ""
    """Digest of the file that the task sealed for this version: it tells one history from another."""


IsKnown = Callable[[Version, str], bool]
"""Whether the task sealed a file of that digest for that version, in the history that goes on."""


def _trust(version: Version, sealed: str) -> bool:
    del version, sealed
    return True


@contextmanager
def open_task_stores(
    directory: TaskDirectory,
    stores: Mapping[str, StoreBuilder],
    wanted: TaskVersion,
    log: Log,
    *,
    default_backend: str | BackendSupplier,
    local_segments: LocalSegments,
    is_known: IsKnown = _trust,
    lock_timeout_ms: int = 60_000,
    listener: RestoreListener = NO_LISTENER,
) -> Iterator[dict[str, Backend]]:
    """Open all stores at the wanted version, for the length of a `with` block."""
    with ExitStack() as resources:
        resources.enter_context(directory.lock(timeout_ms=lock_timeout_ms))
        _forget_what_a_power_cut_may_have_torn(directory)
        directory.note_unsynced_writes()
        opened: dict[str, Backend] = {}
        for name, spec in stores.items():
            bring = partial(
                _bring_to_version,
                name=name,
                spec=spec,
                wanted=wanted,
                log=log,
                local_segments=local_segments,
                listener=listener,
                is_known=is_known,
            )
            backend = _open(directory, _maker(spec, default_backend), spec, bring)
            opened[name] = resources.enter_context(backend)
            failpoints.hit("commit.store_applied")
        with disk_errors_named(directory.path):
            directory.write_checkpoint(Checkpoint(wanted.version, dict(wanted.positions)))
        yield opened


def versions_on_disk(
    directory: TaskDirectory, stores: Mapping[str, StoreBuilder], default_backend: str | BackendSupplier
) -> dict[str, Version]:
    """The version of each store that is kept on disk: 0 if it is not there, half restored, or lost.

    Lost is what is damaged, and what a power cut may have torn: that is not even opened.
    """
    found: dict[str, Version] = {}
    with directory.lock(timeout_ms=0):
        is_lost = directory.lost_in_a_power_cut()
        for name, spec in stores.items():
            maker = _maker(spec, default_backend)
            if not maker.persistent:
                continue
            found[name] = Version(0)
            if not is_lost and directory.store_path(maker.name, name).is_dir():
                with (
                    suppress(DamagedStoreError),
                    maker.open(directory.store_path(maker.name, name)) as backend,
                ):
                    found[name] = Version(max(0, marker_of(backend, name).version))
    return found


def _maker(spec: StoreBuilder, default_backend: str | BackendSupplier) -> BackendSupplier:
    return supplier(spec.backend if spec.backend is not None else default_backend)


def _open(
    directory: TaskDirectory, maker: BackendSupplier, spec: StoreBuilder, bring: Callable[[Backend], None]
) -> Backend:
    """Open a store and bring it to its version; one that turns out to be damaged is made anew."""
    path = directory.store_path(maker.name, spec.name)
    segments = SEGMENT_BYTES if spec.is_segmented else 0
    try:
        return _brought(maker.open(path, segment_bytes=segments), bring)
    except DamagedStoreError:
        directory.remove_store(maker.name, spec.name)
        return _brought(maker.open(path, segment_bytes=segments), bring)


def _brought(backend: Backend, bring: Callable[[Backend], None]) -> Backend:
    try:
        bring(backend)
    except BaseException:
        backend.close()
        raise
    return backend


def _bring_to_version(
    backend: Backend,
    name: str,
    spec: StoreBuilder,
    wanted: TaskVersion,
    log: Log,
    local_segments: LocalSegments,
    listener: RestoreListener,
    is_known: IsKnown,
) -> None:
    _refuse_foreign(backend, name, wanted, is_known)
    if spec.logging:
        changelog = TopicPartition(changelog_topic(wanted.application_id, name), wanted.partition)
        marker = Marker(wanted.version, wanted.positions.get(name, Offset(0)), wanted.sealed)
        follow(backend, Target(name, changelog, marker, spec.is_segmented), log, listener)
        return
    here = marker_of(backend, name)
    if here.version == wanted.version:
        return
    if here.version > wanted.version:
        raise ahead(name, wanted.partition, here, Marker(wanted.version, here.position))
    segments = local_segments(name, here.version, wanted.version)
    if segments is None:
        segments = [[(key, None) for key, _ in backend.scan()]]
    marker = Marker(wanted.version, Offset(0), wanted.sealed)
    apply_segments(backend, segments, marker, segmented=spec.is_segmented)


def _refuse_foreign(backend: Backend, name: str, wanted: TaskVersion, is_known: IsKnown) -> None:
    """A store of another history (another log, or a branch that a backup undid) is as good as damaged."""
    here = marker_of(backend, name)
    if not here.sealed or here.sealed == wanted.sealed or here.version > wanted.version:
        return
    if not is_known(here.toward or here.version, here.sealed):
        raise DamagedStoreError(
            f"Store {name!r} is at version {here.version} of another history of the application. It is "
            "removed and restored from its changelog."
        )


def _forget_what_a_power_cut_may_have_torn(directory: TaskDirectory) -> None:
    if not directory.lost_in_a_power_cut():
        return
    # All of them, whatever backend or plan they were written with: the note is about the whole task.
    for backend in [path for path in directory.path.iterdir() if path.is_dir()]:
        for store in [path.name for path in backend.iterdir() if not path.name.startswith(".")]:
            directory.remove_store(backend.name, store)
    directory.note_synced()
