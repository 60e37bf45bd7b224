"""Making a store from a snapshot: the newest one that is whole, of this history, and not too new.

What is wrong with a snapshot is told by a warning that names the file, and the next older one is tried. That
none is left is no error here: the changelog goes back to the beginning, or says that it does not.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream import failpoints
from millstream.durable import UnsafeFolderError, disk_errors_named, ensure_private_folder
from millstream.durable.layer import FILE_MODE
from millstream.log.api import Log
from millstream.state.backends.api import Backend
from millstream.state.changelog.follow import RestoreListener, Target, position_of, reported
from millstream.state.errors import (
    DamagedSnapshotError,
    DamagedStoreError,
    SnapshotStorageError,
    StoreFormatError,
)
from millstream.state.local.directory import RESTORING_FOLDER
from millstream.state.local.store_on_disk import StoreOnDisk
from millstream.state.snapshots.digests import copied
from millstream.state.snapshots.listing import listing
from millstream.state.snapshots.manifest import (
    ManifestName,
    Snapshot,
    SnapshotPlace,
    StoredFile,
    read_snapshot,
)
from millstream.state.snapshots.storage import SnapshotStorage
from millstream.types import Offset, Version

_LOGGER = logging.getLogger("millstream")
_BEFORE_ALL: Final = Offset(-1)
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Restorer:
    """Restores one store of a task. Needs the task's lock."""

    storage: SnapshotStorage
    place: SnapshotPlace
    store: StoreOnDisk
    wanted: Target
    log: Log | None
    """Of the changelog that goes on behind a snapshot; None if the store has none."""
    is_known: Callable[[Version, str], bool]
    listener: RestoreListener
    problems: list[str] = field(default_factory=list)
    """What was wrong with the snapshots that could not be used."""

    def restored(self, beyond: Offset = _BEFORE_ALL) -> Backend | None:
        """The store, made anew from a snapshot that stands beyond an offset; None if there is none.

        1. Fetch the files, and check each.
        2. Remove what is there of the store.
        3. Make the store from the files.
        """
        for snapshot in self._candidates(beyond):
            try:
                # 1.
                folder = self._fetched(snapshot)
                failpoints.hit("snapshot.fetched")
                # 2.
                self.store.remove()
                # 3.
                backend = self._made(snapshot, folder)
            except (DamagedSnapshotError, SnapshotStorageError) as error:
                self._tell(error)
            else:
                failpoints.hit("snapshot.restored")
                return backend
            finally:
                shutil.rmtree(self.store.directory.path / RESTORING_FOLDER, ignore_errors=True)
        return None

    def _candidates(self, beyond: Offset) -> Iterator[Snapshot]:
        """The newest first. Of other histories there may be any number: they are not even looked at."""
        try:
            names = listing(self.storage, self.place).manifests
        except (SnapshotStorageError, UnsafeFolderError) as error:
            self._tell(error)
            return
        for name in names:
            if not self._is_ours(name):
                continue
            try:
                snapshot = read_snapshot(self.storage, self.place, name)
            except (DamagedSnapshotError, SnapshotStorageError) as error:
                self._tell(error)
                continue
            if self._reaches(snapshot.position.offset) and beyond < snapshot.position.offset:
                yield snapshot

    def _reaches(self, offset: Offset) -> bool:
        """Whether the changelog goes on from there: it is not beyond its end, and no deletion was dropped."""
        if offset > self.wanted.position.offset:
            return False
        return self.log is None or offset >= self.log.compacted(self.wanted.changelog).deletes_gone_to

    def _is_ours(self, name: ManifestName) -> bool:
        wanted = self.wanted.position
        if name.version == wanted.version:
            return name.sealed_digest == wanted.sealed_digest
        return name.version < wanted.version and self.is_known(name.version, name.sealed_digest)

    def _fetched(self, snapshot: Snapshot) -> Path:
        folder = self.store.directory.path / RESTORING_FOLDER
        shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
        target = Target(self.wanted.store, self.wanted.changelog, snapshot.position)
        done = 0
        with (
            reported(target, Offset(0), self.listener, snapshot.position.version) as report,
            disk_errors_named(folder),
        ):
            ensure_private_folder(folder)
            for file in snapshot.files:
                self._fetch(file, folder / file.name)
                done += file.size
                share = snapshot.position.offset * done // max(1, snapshot.bytes)
                report(Offset(share), file.size)
        return folder

    def _fetch(self, file: StoredFile, target: Path) -> None:
        name = f"{self.place.folder}/{file.stored_as}"
        try:
            with os.fdopen(os.open(target, _FLAGS, FILE_MODE), "wb", buffering=0) as copy:
                digest, size = copied(self.storage.read(name), copy.write, file.size)
        except FileNotFoundError as error:
            raise self._damaged(name, "is missing") from error
        if size != file.size:
            raise self._damaged(name, f"does not have its {file.size} bytes")
        if digest != file.digest:
            raise self._damaged(name, "is damaged: its checksum does not match")

    def _made(self, snapshot: Snapshot, folder: Path) -> Backend:
        where = self.storage.shown(self.place.folder)
        try:
            backend = self.store.made_from(folder)
        except (DamagedStoreError, StoreFormatError) as error:
            raise DamagedSnapshotError(
                f"Version {snapshot.position.version} in {where} makes no store ({error})."
            ) from error
        if position_of(backend, self.place.store) != snapshot.position:
            backend.close()
            self.store.remove()
            raise DamagedSnapshotError(
                f"Version {snapshot.position.version} in {where} holds another version than its manifest "
                "says."
            )
        return backend

    def _damaged(self, name: str, how: str) -> DamagedSnapshotError:
        return DamagedSnapshotError(
            f"The snapshot file {self.storage.shown(name)} {how}. Likely cause: it was deleted, or a fault "
            "of the storage."
        )

    def _tell(self, error: Exception) -> None:
        self.problems.append(str(error))
        _LOGGER.warning(
            "Store %r of task %s can't be restored from a snapshot: %s It goes on with an older one, or with "
            "the changelog.",
            self.place.store,
            self.place.task,
            error,
        )
