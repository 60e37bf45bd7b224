"""What a snapshot is made of, as its manifest says it.

The manifest is one frame (see :mod:`millstream.durable.framing`): a cut or flipped one is recognised. Its
name begins with the version, so that the newest is found without opening any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from millstream.durable import DamagedFileError, FormatVersionError, FrameKind
from millstream.state.changelog.follow import StorePosition
from millstream.state.errors import DamagedSnapshotError, SnapshotFormatError
from millstream.state.snapshots.storage import SnapshotStorage
from millstream.types import Version

KIND: Final = FrameKind(b"MSSN", version=1, max_bytes=64 << 20)
_NAME: Final = re.compile(r"manifests/(\d{20})-(\w*)")
_FILE_NAME: Final = re.compile(r"\w[\w.+-]{0,254}")


class StoredFile(msgspec.Struct, frozen=True):
    """One file of a snapshot: its name in the store's folder, and the content that it has."""

    name: str
    digest: str
    size: int

    @property
    def stored_as(self) -> str:
        """The name of the content. Two databases make the same file names with different content."""
        return f"files/{self.digest}-{self.size}"


class Snapshot(msgspec.Struct, frozen=True):
    """A store at a version."""

    application_id: str
    task: str
    store: str
    backend: str
    format: int
    """The format version of the backend's files."""
    position: StorePosition = msgspec.field(name="marker")
    files: tuple[StoredFile, ...]

    @property
    def place(self) -> SnapshotPlace:
        """Where it belongs."""
        return SnapshotPlace(self.application_id, self.task, self.store, self.backend)

    @property
    def bytes(self) -> int:
        """How large it is."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """Whose snapshots."""

    application_id: str
    task: str
    store: str
    backend: str

    @property
    def folder(self) -> str:
        """Below which they are."""
        return f"{self.application_id}/{self.task}/{self.store}/{self.backend}"


@dataclass(frozen=True, slots=True, order=True)
class ManifestName:
    """What the name of a manifest tells: a version, and of which history."""

    version: Version
    sealed_digest: str

    def __str__(self) -> str:
        return f"manifests/{self.version:020d}-{self.sealed_digest}"

    @staticmethod
    def of(position: StorePosition) -> ManifestName:
        """The name of the snapshot of a store that stands there."""
        return ManifestName(position.version, position.sealed_digest)

    @staticmethod
    def parsed(name: str) -> ManifestName | None:
        """A name below a store's folder; None if it is not a manifest's.

        >>> ManifestName.parsed("manifests/00000000000000000812-0a1b")
        ManifestName(version=812, sealed_digest='0a1b')
        """
        match = _NAME.fullmatch(name)
        return None if match is None else ManifestName(Version(int(match[1])), match[2])


def read_snapshot(storage: SnapshotStorage, place: SnapshotPlace, name: ManifestName) -> Snapshot:
    """The snapshot of a manifest, if it is intact and what its name says."""
    where = storage.shown(f"{place.folder}/{name}")
    data = bytearray()
    try:
        for chunk in storage.read(f"{place.folder}/{name}"):
            data += chunk
            if len(data) > KIND.max_bytes + 64:
                raise DamagedSnapshotError(f"{where} is too long to be a snapshot's manifest.")
        snapshot = KIND.decode(bytes(data), Snapshot, where)
    except FileNotFoundError as error:
        raise DamagedSnapshotError(f"{where} is missing.") from error
    except FormatVersionError as error:
        raise SnapshotFormatError(str(error)) from error
    except DamagedFileError as error:
        raise DamagedSnapshotError(str(error)) from error
    if snapshot.place != place or ManifestName.of(snapshot.position) != name:
        raise DamagedSnapshotError(
            f"{where} holds version {snapshot.position.version} of store {snapshot.store!r} of task "
            f"{snapshot.task} of application {snapshot.application_id!r} on {snapshot.backend}: it was moved "
            "or renamed."
        )
    odd = [file.name for file in snapshot.files if not _FILE_NAME.fullmatch(file.name)]
    if odd:
        raise DamagedSnapshotError(f"{where} names a file {odd[0]!r}, which no snapshot has.")
    return snapshot
