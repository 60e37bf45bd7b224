"""The system calls that durable files are made of, behind one small protocol.

Everything that must survive a crash goes through a :class:`FileLayer`. The real one is a thin coat over
``os``; :mod:`tests.simulation.faulty_files` has one that loses whatever was not synced. A layer knows
bytes, names and syncs; it knows nothing of formats, and it never retries.

Names and bytes are durable separately: ``fsync`` of a file makes its bytes durable, ``sync_folder`` the names
in a folder. Whoever implements a layer may rely on callers keeping that apart.
"""

# ruff: noqa: PTH102, PTH104, PTH108  # system calls belong here

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from millstream.durable.file_system_sync import whole_sync
from millstream.threads import all_beside

_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync stops at the disk's cache

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700

Chunk: TypeAlias = bytes | bytearray | memoryview
"""A piece of a file's content."""


class FileLayer(Protocol):
    """What the durable actions need from a file system. Errors are ``OSError`` as the system raises them."""

    def open(self, path: Path, flags: int) -> int:
        """Open ``path`` (new files get mode 0600) and return a descriptor, closed on exec."""

    def close(self, fd: int) -> None:
        """Close a descriptor; says nothing about durability."""

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Return up to ``length`` bytes from ``position``; fewer only at the file's end."""

    def pwrite(self, fd: int, data: Chunk, position: int) -> int:
        """Write at ``position``; return how many bytes were taken, which may be fewer."""

    def truncate(self, fd: int, length: int) -> None:
        """Cut the file to ``length``."""

    def fsync(self, fd: int) -> None:
        """Make the file's bytes and length durable (not its name)."""

    def size(self, fd: int) -> int:
        """Return the file's length in bytes."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; FileExistsError if that name is taken."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file (replacing the target) or a folder (the target must not exist or be empty)."""

    def unlink(self, path: Path) -> None:
        """Remove a name."""

    def mkdir(self, path: Path) -> None:
        """Make a folder with mode 0700; FileExistsError if the name is taken."""

    def rmdir(self, path: Path) -> None:
        """Remove an empty folder."""

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""

    def whole_sync(self, fds: Sequence[int]) -> Callable[[], bool] | None:
        """What makes open files durable together, with the file system that they are on; None: sync each.

        If it answers False when it is called, each has to be, too.
        """

    def begin(self, works: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """Begin several short works that wait for files. No order among them, or with what follows, holds.

        What it returns waits until all have ended, and raises the first error.
        """


class OsFileLayer(FileLayer):
    """The real file system."""

    def __reduce__(self) -> str | tuple[object, ...]:
        """In other processes it is the one of there: who asks for it asks by identity."""
        return "OS_FILES" if self is OS_FILES else super().__reduce__()

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        data = os.pread(fd, length, position)
        if len(data) == length or not data:
            return data
        # Rare: a signal or a limit of the system (2 GiB) cut the read short.
        parts, got = [data], len(data)
        while got < length and (data := os.pread(fd, length - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pwrite(self, fd: int, data: Chunk, position: int) -> int:
        return os.pwrite(fd, data, position)

    def truncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def fsync(self, fd: int) -> None:
        if _FULL_SYNC is None:
            os.fsync(fd)
        else:
            fcntl.fcntl(fd, _FULL_SYNC)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path, FOLDER_MODE)

    def rmdir(self, path: Path) -> None:
        path.rmdir()

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

    def whole_sync(self, fds: Sequence[int]) -> Callable[[], bool] | None:
        return whole_sync(fds) if self is OS_FILES else None

    def begin(self, works: Sequence[Callable[[], None]]) -> Callable[[], None]:
        return all_beside(works)


OS_FILES: Final[FileLayer] = OsFileLayer()
"""The layer that everything uses unless a test injects another."""
