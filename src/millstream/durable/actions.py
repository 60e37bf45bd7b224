"""Durable file actions: create, publish, replace, append, read.

Each promises: when it returns, a power cut changes nothing about its result; when it raises, nothing of it is
visible under the final name. Each lists its steps, and each step ends in a failpoint. What the bytes mean is
not known here (see :mod:`millstream.durable.framing`).

Clean-up happens on ``OSError`` only: after a simulated or real crash there is nobody left to clean up, and
whoever comes next must cope.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from millstream import failpoints
from millstream.durable.errors import AccessDeniedError, DamagedFileError, DiskFullError
from millstream.durable.layer import OS_FILES, Chunk, FileLayer
from millstream.threads import repeated

_TEMPORARY: Final = ".tmp"
SYNC_STEP_BYTES: Final = 4 << 20
_SYNC_BREAK_S: Final = 0.005
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_NO_ACCESS: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


def create_exclusive(path: Path, chunks: Iterable[Chunk], *, files: FileLayer = OS_FILES) -> int:
    """Create ``path`` with the given content; return its length. FileExistsError if the name is taken.

    1. Create the name exclusively and write.
    2. Sync the file.
    3. Sync the folder.

    Until step 3 is done the name may exist with a prefix of the content: readers must either know the file
    from elsewhere (a manifest names sealed files) or use :func:`publish_exclusive`.
    """
    length = _write_new(path, chunks, files)
    sync_folder(path.parent, files=files)
    return length


def publish_by_link(temporary: Path, path: Path, *, files: FileLayer = OS_FILES) -> None:
    """Give a complete, synced temporary file its final name. FileExistsError if the name is taken.

    1. Link (exclusive, and atomic: the name is there with all of its content or not at all).
    2. Sync the folder.
    3. Remove the temporary name; losing this step leaves garbage, nothing else.
    """
    with disk_errors_named(path):
        files.link(temporary, path)
    failpoints.hit("durable.linked")
    sync_folder(path.parent, files=files)
    with suppress(OSError):
        files.unlink(temporary)


def publish_exclusive(path: Path, chunks: Iterable[Chunk], *, files: FileLayer = OS_FILES) -> int:
    """Create ``path`` with all of its content at once; return its length. FileExistsError if it is there.

    1. Write and sync a temporary file beside it.
    2. :func:`publish_by_link`.
    """
    with _written_beside(path, chunks, files) as (temporary, length):
        publish_by_link(temporary, path, files=files)
    return length


def replace_durably(path: Path, chunks: Iterable[Chunk], *, files: FileLayer = OS_FILES) -> int:
    """Put new content under ``path``, whether it exists or not; return its length.

    1. Write and sync a temporary file beside it.
    2. Rename it over ``path`` (atomic: readers see the old content or the new).
    3. Sync the folder.
    """
    with _written_beside(path, chunks, files) as (temporary, length), disk_errors_named(path):
        files.rename(temporary, path)
    failpoints.hit("durable.replaced")
    sync_folder(path.parent, files=files)
    return length


def sync_folder(folder: Path, *, files: FileLayer = OS_FILES) -> None:
    """Make the names in ``folder`` durable."""
    with disk_errors_named(folder):
        files.sync_folder(folder)
    failpoints.hit("durable.folder_synced")


def read_bounded(path: Path, max_bytes: int, *, files: FileLayer = OS_FILES) -> bytes:
    """Return the content of a small file; refuse one that is larger than it can rightly be."""
    with opened(path, os.O_RDONLY, files=files) as fd:
        size = files.size(fd)
        if size > max_bytes:
            raise DamagedFileError(
                f"{path} has {size} bytes, but such a file never has more than {max_bytes}. Likely cause: "
                "the file was overwritten by something else. Remedy: restore it from a backup."
            )
        return files.pread(fd, size, 0)


def write_all(fd: int, chunks: Iterable[Chunk], position: int, *, files: FileLayer = OS_FILES) -> int:
    """Write the chunks one after the other from ``position``; return where they end. Does not sync.

    The one place through which every durable byte passes, so that a failpoint can tear it.
    """
    for chunk in chunks:
        torn = failpoints.take_torn_write()
        if torn is not None:
            half = memoryview(chunk).cast("B")[: memoryview(chunk).nbytes // 2]
            files.pwrite(fd, half, position)
            torn.die()
        if type(chunk) is bytes and chunk:  # the common case, without a view
            taken = files.pwrite(fd, chunk, position)
            position += taken
            if taken == len(chunk):
                continue
            chunk = chunk[taken:]  # noqa: PLW2901
        view = memoryview(chunk).cast("B")
        while len(view):
            taken = files.pwrite(fd, view, position)
            view = view[taken:]
            position += taken
    return position


class opened:  # noqa: N801 - a function to whoever uses it
    """Open a file for the length of a ``with`` block.

    A class, as the next one: an epoch of a thousand tasks opens some ten thousand files, and a generator
    would take longer than the system call.
    """

    __slots__ = ("_fd", "_files", "_flags", "_path")

    def __init__(self, path: Path, flags: int, *, files: FileLayer = OS_FILES) -> None:
        self._path = path
        self._flags = flags
        self._files = files
        self._fd = -1

    def __enter__(self) -> int:
        try:
            self._fd = self._files.open(self._path, self._flags)
        except PermissionError as error:
            raise access_denied(self._path, error) from None
        return self._fd

    def __exit__(self, *_: object) -> None:
        self._files.close(self._fd)


class disk_errors_named:  # noqa: N801 - a function to whoever uses it
    """Turn "no space left" and "no access" into errors of ours that say so; let other errors pass."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise_named(self._path, error)


def raise_named(path: Path, error: OSError) -> None:
    """Raise an error of ours instead of "no space left" or "no access"; return if it is another one."""
    if error.errno in _NO_ACCESS:
        raise access_denied(path, error) from None
    if error.errno in _NO_SPACE:
        raise DiskFullError(
            f"The disk is full: {path} could not be written ({error.strerror}). Nothing of this write is "
            "visible or acknowledged. Likely cause: the volume or the user's quota has no space left. "
            "Remedy: free space or move the folder to a larger volume, then start again; no repair is needed."
        ) from error


def access_denied(path: Path, error: OSError) -> AccessDeniedError:
    """The error to raise when the system refuses access to a path.

    >>> print(access_denied(Path("/data"), OSError(errno.EROFS, "Read-only file system")))
    /data can't be used: Read-only file system. Likely cause: the volume is mounted read-only. Remedy: ...
    """
    cause, remedy = (
        "it belongs to another user, or its mode forbids it",
        "give it to this user (chown, chmod)",
    )
    if error.errno == errno.EROFS:
        cause, remedy = "the volume is mounted read-only", "mount it read-write"
    if error.errno == errno.ENOTDIR:
        cause, remedy = "a part of the path is a file", "move the file away"
    return AccessDeniedError(
        f"{error.filename or path} can't be used: {error.strerror}. Likely cause: {cause}. Remedy: {remedy}, "
        "or name another folder."
    )


def temporary_name(path: Path) -> Path:
    """Return a fresh name beside ``path`` for a file that is not yet complete."""
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}{_TEMPORARY}")


def is_temporary(name: str) -> bool:
    """Tell whether a file name was made by :func:`temporary_name`.

    >>> is_temporary(".HEAD.17.0a1b2c3d.tmp"), is_temporary("HEAD")
    (True, False)
    """
    return name.startswith(".") and name.endswith(_TEMPORARY)


def synced_meanwhile(path: Path) -> AbstractContextManager[None]:
    """Sync a file again and again while somebody else writes it: the same for files that others write."""

    def sync() -> None:
        with suppress(FileNotFoundError), opened(path, os.O_RDONLY) as fd:
            os.fsync(fd)

    return repeated(sync, _SYNC_BREAK_S, "millstream-sync")


@contextmanager
def _written_beside(path: Path, chunks: Iterable[Chunk], files: FileLayer) -> Iterator[tuple[Path, int]]:
    """Write and sync a temporary file beside ``path``; remove it if it can't be given its name."""
    temporary = temporary_name(path)
    length = _write_new(temporary, chunks, files)
    try:
        yield temporary, length
    except (OSError, DiskFullError, AccessDeniedError):
        with suppress(OSError):
            files.unlink(temporary)
        raise


def write_new(path: Path, chunks: Iterable[Chunk], files: FileLayer) -> tuple[int, int]:
    """Create a file exclusively and write it; return its open descriptor, and its length. Does not sync.

    A large one is synced in steps nevertheless, or its last sync would hold up everybody else's.
    """
    length = synced = 0
    with disk_errors_named(path):
        fd = files.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            for chunk in chunks:
                length = write_all(fd, [chunk], length, files=files)
                if length - synced >= SYNC_STEP_BYTES:
                    files.fsync(fd)
                    synced = length
            failpoints.hit("durable.file_written")
        except BaseException as error:
            files.close(fd)
            if isinstance(error, OSError):
                with suppress(OSError):
                    files.unlink(path)
            raise
    return fd, length


@contextmanager
def removed_on_error(path: Path, fd: int, files: FileLayer) -> Iterator[None]:
    """Close a new file at the end of a ``with`` block, and remove it if the block fails."""
    try:
        yield
    except OSError:
        with suppress(OSError):
            files.unlink(path)
        raise
    finally:
        files.close(fd)


def _write_new(path: Path, chunks: Iterable[Chunk], files: FileLayer) -> int:
    """Write and sync a new file."""
    fd, length = write_new(path, chunks, files)
    with disk_errors_named(path), removed_on_error(path, fd, files):
        files.fsync(fd)
    failpoints.hit("durable.file_synced")
    return length
