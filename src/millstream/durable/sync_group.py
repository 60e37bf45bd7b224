"""Files that are written one after the other and made durable together.

A sync takes a disk about as long as the work that comes before it, and does not need the processor. So the
sync of a large file goes on beside whatever follows its writing, small ones are synced together in the end
(with all of their file system, if they are many), and the folders, which all files have in common, once.
Nothing is promised before the end of the `with` block: whoever writes into a group must tell nobody of its
files until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from millstream import failpoints
from millstream.durable.actions import disk_errors_named, removed_on_error, sync_folder, write_new
from millstream.durable.file_system_sync import MANY_FILES
from millstream.durable.folders import ensure_private_folder
from millstream.durable.layer import OS_FILES, Chunk, FileLayer
from millstream.threads import beside

__all__ = ["SyncGroup"]

_LARGE_BYTES: Final = 256 << 10
_FEW_FILES: Final = 8
_THREADS: Final = 4
"""That sync files side by side, if there are more than a few."""


class SyncGroup:
    """Creates files; they are durable when the `with` block has ended without an error.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with SyncGroup() as group:
    ...         group.create(Path(folder, "a"), [b"one"]), group.create(Path(folder, "b"), [b"two", b"!"])
    (3, 4)
    """

    def __init__(self, files: FileLayer = OS_FILES) -> None:
        self._files = files
        self._written: list[tuple[Path, int]] = []
        """Files that nobody syncs yet, and their descriptors."""
        self._syncs: list[Callable[[], None]] = []
        """Wait for a sync that has begun."""
        self._folders: dict[Path, None] = {}
        self._checked: set[Path] = set()

    def ensure_private_folder(self, folder: Path) -> None:
        """Make a folder, or check that it is ours alone: once in a group."""
        if folder not in self._checked:
            ensure_private_folder(folder, files=self._files)
            self._checked.add(folder)

    def create(self, path: Path, chunks: Iterable[Chunk]) -> int:
        """Create ``path`` with the given content; return its length. FileExistsError if the name is taken.

        1. Create the name exclusively and write.
        2. Begin to sync a large file, beside what comes next. Small ones are synced when the block ends: to
           hand one over to another thread takes as long.
        """
        fd, length = write_new(path, chunks, self._files)
        self._folders[path.parent] = None
        if self._files is OS_FILES and length >= _LARGE_BYTES:
            self._syncs.append(beside(partial(self._sync, path, fd)))
        else:
            self._written.append((path, fd))
        return length

    def _sync(self, path: Path, fd: int) -> None:
        with disk_errors_named(path), removed_on_error(path, fd, self._files):
            self._files.fsync(fd)
        failpoints.hit("durable.file_synced")

    def _sync_each(self, written: Sequence[tuple[Path, int]]) -> None:
        left = [*written]
        try:
            while left:
                self._sync(*left.pop())
        finally:
            self._close(left)

    def _sync_as_a_whole(self) -> None:
        """All at once, if they are many and it can be done; else they are left to be synced one by one."""
        written = self._written
        whole = self._files.whole_sync([fd for _, fd in written]) if len(written) >= MANY_FILES else None
        if whole is not None and whole():
            self._written = []
            self._close(written)
            failpoints.hit("durable.file_synced")

    def _close(self, written: Iterable[tuple[Path, int]]) -> None:
        for _, fd in written:
            self._files.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the syncs of all files, then sync their folders. After an error nothing is promised."""
        failure = error
        if failure is None:
            self._sync_as_a_whole()
        shares = _THREADS if len(self._written) > _FEW_FILES else 1
        works = [partial(self._sync_each, self._written[first::shares]) for first in range(shares)]
        if failure is not None:
            self._close(self._written)
        elif shares == 1:
            self._syncs += works
        else:
            self._syncs.append(self._files.begin(works))
        syncs, self._syncs = self._syncs, []  # they hold the group, which would be garbage to search for
        for wait in syncs:
            try:
                wait()
            except BaseException as other:  # noqa: BLE001 - raised below, when all files are closed
                failure = failure or other
        if failure is None:
            for folder in self._folders:
                sync_folder(folder, files=self._files)
        elif error is None:
            raise failure
