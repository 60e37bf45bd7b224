"""Where snapshots go: a folder, or anything that :mod:`pyarrow.fs` has an URI for.

A storage is a flat space of names with ``/`` in them. It promises little, because object stores do: a name
that was put is there, durably, when :meth:`SnapshotStorage.put` returns; a put that failed may leave a prefix
of the content, or nothing. So whoever reads checks: content is named by its digest and size, and manifests
are framed and checksummed. Nothing is ever renamed, appended to or created exclusively.

A folder is written by the durable actions that the log is written by, so that a power cut takes nothing back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from millstream.durable import (
    OS_FILES,
    Chunk,
    FileLayer,
    check_private_folder,
    disk_errors_named,
    ensure_private_folder,
    remove_in_steps,
    replace_durably,
    sync_folder,
    temporary_name,
)
from millstream.errors import ConfigError
from millstream.state.errors import SnapshotStorageError

_CHUNK_BYTES: Final = 1 << 20
_SCHEMES: Final = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "mock")
_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class SnapshotStorage(Protocol):
    """Names and their content. What can't be done raises SnapshotStorageError or DiskFullError."""

    def shown(self, name: str) -> str:
        """The place of a name, for people: without secrets."""

    def sizes(self, folder: str) -> dict[str, int]:
        """All names below a folder, relative to it, and how many bytes each has; none if it is not there."""

    def put(self, name: str, chunks: Iterable[Chunk]) -> None:
        """Store content under a name; what was there before is replaced."""

    def read(self, name: str) -> Iterator[bytes]:
        """Content, chunk by chunk. FileNotFoundError if there is no such name."""

    def delete(self, name: str) -> None:
        """Remove a name, if it is there, durably."""


@dataclass(frozen=True, slots=True)
class FolderStorage(SnapshotStorage):
    """A folder that all hosts of the application see, or the disk of the only one."""

    root: Path
    files: FileLayer = OS_FILES

    def shown(self, name: str) -> str:
        return str(self.root / name)

    def sizes(self, folder: str) -> dict[str, int]:
        base = self.root / folder
        found: dict[str, int] = {}
        with _named(self.shown(folder)):
            if self.root.exists():
                check_private_folder(self.root)
            for path in base.rglob("*"):
                with suppress(FileNotFoundError):  # just deleted
                    if path.is_file():
                        found[path.relative_to(base).as_posix()] = path.stat().st_size
        return found

    def put(self, name: str, chunks: Iterable[Chunk]) -> None:
        path = self.root / name
        with _named(str(path)), disk_errors_named(path):
            ensure_private_folder(path.parent, files=self.files)
            replace_durably(path, chunks, files=self.files)

    def read(self, name: str) -> Iterator[bytes]:
        with _named(self.shown(name)):
            yield from chunks_of(self.root / name)

    def delete(self, name: str) -> None:
        path = self.root / name
        with _named(str(path)):
            if path.exists():
                # Out of the way first: under its own name somebody may put it here anew.
                going = temporary_name(path)
                self.files.rename(path, going)
                remove_in_steps(going, files=self.files)
                # A manifest must not come back after its files are gone.
                sync_folder(path.parent, files=self.files)


class ArrowStorage(SnapshotStorage):
    """Any file system of pyarrow: an object store, HDFS. It is opened when it is first used."""

    def __init__(self, location: str, opened: tuple[fs.FileSystem, str] | None = None) -> None:
        self._location = location
        self._label = _without_secrets(location).rstrip("/")
        self._opened = opened

    def shown(self, name: str) -> str:
        return f"{self._label}/{name}"

    def sizes(self, folder: str) -> dict[str, int]:
        with self._at(folder) as (filesystem, path):
            infos = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
        return {
            info.path.removeprefix(path).lstrip("/"): info.size or 0
            for info in infos
            if info.type == fs.FileType.File
        }

    def put(self, name: str, chunks: Iterable[Chunk]) -> None:
        with self._at(name) as (filesystem, path):
            filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            with filesystem.open_output_stream(path) as stream:
                for chunk in chunks:
                    stream.write(chunk)

    def read(self, name: str) -> Iterator[bytes]:
        with self._at(name) as (filesystem, path), filesystem.open_input_stream(path) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk

    def delete(self, name: str) -> None:
        with self._at(name) as (filesystem, path):
            if filesystem.get_file_info(path).type != fs.FileType.NotFound:
                filesystem.delete_file(path)

    @contextmanager
    def _at(self, name: str) -> Iterator[tuple[fs.FileSystem, str]]:
        """The file system and a path in it; errors name the place."""
        with _named(self.shown(name), secret=self._location):
            if self._opened is None:
                filesystem, root = fs.FileSystem.from_uri(self._location)
                self._opened = filesystem, root.rstrip("/")
            filesystem, root = self._opened
            yield filesystem, f"{root}/{name}"


def chunks_of(file: Path) -> Iterator[bytes]:
    """The content of a file, chunk by chunk."""
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK_BYTES):
            yield chunk


def open_storage(location: str, *, files: FileLayer = OS_FILES) -> SnapshotStorage:
    """The storage of a folder or an URI. Whether it can be reached is seen when it is used.

    >>> open_storage("/var/lib/snapshots").shown("app")
    '/var/lib/snapshots/app'
    >>> open_storage("s4://bucket")
    Traceback (most recent call last):
    millstream.errors.ConfigError: snapshot_uri is 's4://bucket', which pyarrow.fs can't open. Remedy: ...
    """
    if not _URI.match(location):
        return FolderStorage(Path(location), files)
    parts = urlsplit(location)
    scheme = parts.scheme.lower()
    if scheme == "file":
        return FolderStorage(Path(unquote(parts.path)), files)
    if scheme not in _SCHEMES:
        raise ConfigError(
            f"snapshot_uri is {_without_secrets(location)!r}, which pyarrow.fs can't open. Remedy: give a "
            f"folder, or an URI that begins with one of {', '.join(_SCHEMES)}, such as "
            "'s3://bucket/path?region=eu-central-1'."
        )
    return ArrowStorage(location)


def absolute_location(location: str | Path) -> str:
    """A location that means the same in every process.

    >>> absolute_location("s3://bucket/path"), absolute_location("/var/lib/snapshots")
    ('s3://bucket/path', '/var/lib/snapshots')
    """
    text = str(location)
    return text if _URI.match(text) else str(Path(text).expanduser().resolve())


def _without_secrets(location: str) -> str:
    """An URI without user, password and query.

    >>> _without_secrets("s3://key:secret@bucket/path?region=eu")
    's3://bucket/path'
    """
    parts = urlsplit(location)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@contextmanager
def _named(place: str, secret: str = "") -> Iterator[None]:
    """Name the place in errors of the storage. That something is not there is for the caller to judge."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        what = (str(error) or type(error).__name__).splitlines()[0]
        if secret:
            what = what.replace(secret, _without_secrets(secret))
        raise SnapshotStorageError(
            f"The storage of snapshots failed at {place} ({what}). Likely cause: it can't be reached, or "
            "refuses access. Remedy: check snapshot_uri and its rights; state is safe without it."
        ) from (None if secret else error)
