"""Files that are written one after the other and made durable together.

A sync takes a disk about as long as the work that comes before it, and does not need the processor. So the
sync of a file goes on beside whatever follows its writing, and the folders, which all files of a group have
in common, are synced once. Nothing is promised before the end of the `with` block: whoever writes into a
group must tell nobody of its files until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from millstream import failpoints
from millstream.durable.actions import disk_errors_named, removed_on_error, sync_folder, write_new
from millstream.durable.layer import OS_FILES, Chunk, FileLayer
from millstream.threads import beside

__all__ = ["SyncGroup"]


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

    def create(self, path: Path, chunks: Iterable[Chunk]) -> int:
        """Create ``path`` with the given content; return its length. FileExistsError if the name is taken.

        1. Create the name exclusively and write.
        2. Begin to sync the file, beside what comes next; where somebody else stands in for the operating
           system, when the block ends.
        """
        fd, length = write_new(path, chunks, self._files)
        self._folders[path.parent] = None
        if self._files is OS_FILES:
            self._syncs.append(beside(partial(self._sync, path, fd)))
        else:
            self._written.append((path, fd))
        return length

    def _sync(self, path: Path, fd: int) -> None:
        with disk_errors_named(path), removed_on_error(path, fd, self._files):
            self._files.fsync(fd)
        failpoints.hit("durable.file_synced")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the syncs of all files, then sync their folders. After an error nothing is promised."""
        failure = error
        while self._syncs or self._written:
            try:
                if self._syncs:
                    self._syncs.pop()()
                elif failure is None:
                    self._sync(*self._written.pop())
                else:
                    self._files.close(self._written.pop()[1])
            except BaseException as other:  # noqa: BLE001 - raised below, when all files are closed
                failure = failure or other
        if failure is None:
            for folder in self._folders:
                sync_folder(folder, files=self._files)
        elif error is None:
            raise failure
