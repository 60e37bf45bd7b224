"""What the tasks of a slot seal in an epoch: their small parts in one file, made durable with one sync.

To make a file takes longer than to write a few hundred bytes into it. But whoever shares a file ties its
tasks together: it stays for as long as anybody needs a part of it. So these have files of their own:

- large parts, whose file costs little beside them, and is synced while the next task runs;
- parts that are read again for years: of tasks with a store without a changelog, whose rows are there alone.

Nobody needs the others when no topic points into them any more, and maintenance rewrites topics that point
into files which are mostly of no use (:mod:`millstream.maintenance.collection`).
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.sealed_file import SealedContent, SealedFile, encoded_part
from millstream.durable import Chunk, SyncGroup

__all__ = ["SealGroup"]

LARGE_BYTES: Final = 256 << 10
"""A part of this size has a file of its own."""
MAX_SHARED_BYTES: Final = 4 << 20
"""A file that is shared is written when it has so many: they are in memory until then."""
_SUFFIX: Final = ".shared"


class SealGroup:
    """Seals what tasks made; durable when the `with` block has ended without an error.

    So nobody may hear of it before.
    """

    def __init__(self, storage: ApplicationStorage) -> None:
        self._storage = storage
        self._group = SyncGroup(storage.files)
        self._path: Path | None = None
        """Of the file that the next part is added to; None: it is the first."""
        self._chunks: list[Chunk] = []
        self._length = 0
        self._failure: BaseException | None = None
        """Of a file that is shared: parts were promised that are nowhere."""

    def seal(self, path: Path, content: SealedContent, *, is_read_again: bool) -> SealedFile:
        """Seal what an attempt of a task made, under its own name, or in a file named after its first task.

        `is_read_again`: it is needed for as long as the task does not seal again, and not only by topics.
        """
        self._check()
        part = encoded_part(content)
        self._group.ensure_private_folder(path.parent)
        if is_read_again or part.length >= LARGE_BYTES:
            self._group.create(path, part.chunks)
            return SealedFile(self._storage.relative(path), part.digest, part.sections_at(0))
        if self._path is None:
            self._path = path.with_name(path.name + _SUFFIX)
        start = self._length
        self._chunks += part.chunks
        self._length += part.length
        sealed = SealedFile(
            self._storage.relative(self._path), part.digest, part.sections_at(start), (start, part.length)
        )
        if self._length >= MAX_SHARED_BYTES:
            self._write_shared()
        return sealed

    def _write_shared(self) -> None:
        path, chunks = self._path, self._chunks
        self._path, self._chunks, self._length = None, [], 0
        if path is None:
            return
        try:
            self._group.create(path, [b"".join(chunks)])
        except BaseException as failure:
            self._failure = failure
            raise

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        self._group.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is left, and make all of it durable. After an error nothing is promised."""
        try:
            if error is None:
                self._check()
                self._write_shared()
        except BaseException as failure:
            self._group.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._group.__exit__(kind, error, trace)


def is_shared(path: Path) -> bool:
    """Whether several tasks have sealed in a file."""
    return path.name.endswith(_SUFFIX)
