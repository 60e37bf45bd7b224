"""Batches of records from outside, each in its topic exactly once: what jobs of others write.

A batch is made by many tasks, any of which may be run twice, and is committed by one driver, which may die at
any moment and do it again. So it goes the way of an epoch: tasks seal files, the driver names them in one
file, exclusively and all at once, and only then topics show them::

    <root>/writers/<writer>/
      lock                                    one driver at a time
      batches/00000000000000000008            what batch 7 is made of: writing it is the commit
      sealed/<folder>/<task>...               what tasks sealed; topics point into these files

A **writer** is who counts batches: a streaming query, or an application of the user's own. A batch whose
number was committed is not taken again, whatever is in it. A driver that died between commit and publication
is completed by the next one of the same writer, before anything else.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from millstream import failpoints
from millstream.clock import now_ms
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import Section
from millstream.commit.sealed_file import SealedContent, write_sealed
from millstream.config import check_application_id
from millstream.durable import FrameKind, ensure_private_folder, held_lock, publish_exclusive, read_bounded
from millstream.log import FileLog, TopicPartition
from millstream.log.api import SealedRange, Stamp
from millstream.log.errors import InvalidPublicationError, InvalidTopicError
from millstream.types import Epoch, Partition

_BATCH: Final = FrameKind(b"MSWB", version=1, max_bytes=64 << 20)
_LOCK_TIMEOUT_MS: Final = 60_000
_COLLECT_EVERY: Final = 50
"""After so many batches, files that topics no longer point into are deleted."""
_ABANDONED_S: Final = 86_400
"""If they are so old: those of a batch that is still being made are younger."""


class SealedPart(msgspec.Struct, frozen=True):
    """What one task made of a batch: a file, and which rows of it go where."""

    file: str
    sections: tuple[Section, ...]


class _Batch(msgspec.Struct, frozen=True):
    writer: str
    number: int
    parts: tuple[SealedPart, ...]


def writer_of_place(place: str) -> str:
    """A writer's name, from the one place that only it uses (a checkpoint).

    >>> writer_of_place("/checkpoints/a") == writer_of_place("/checkpoints/a/")
    True
    """
    return f"at-{hashlib.sha256(place.rstrip('/').encode()).hexdigest()[:24]}"


@dataclass(frozen=True, slots=True)
class BatchWriter:
    """Commits the batches of one writer."""

    log: FileLog
    writer: str

    def __post_init__(self) -> None:
        check_application_id(self.writer)

    @property
    def path(self) -> Path:
        """The writer's own folder."""
        return self.log.root / "writers" / self.writer

    def begin(self) -> str:
        """The name of a new folder for tasks to seal in; several batches may share it."""
        name = secrets.token_hex(8)
        ensure_private_folder(self.path / "batches")
        ensure_private_folder(self.path / "sealed" / name)
        return name

    def seal(
        self, folder: str, task: str, rows: Mapping[tuple[str, Partition], pa.RecordBatch]
    ) -> SealedPart:
        """What a task does: write its rows, durably; nobody sees them yet."""
        if not rows:
            return SealedPart("", ())
        content = SealedContent(task, Epoch(0), rows, {}, now_ms())
        path = self.path / "sealed" / folder / f"{task}-{secrets.token_hex(4)}"
        sealed = write_sealed(ApplicationStorage(self.log.root, self.writer), path, content)
        failpoints.hit("writer.sealed")
        return SealedPart(sealed.path, sealed.sections)

    def commit(self, number: int | None, parts: Sequence[SealedPart]) -> bool:
        """What the driver does: let all of a batch be seen, once. Whether that was news.

        1. Lock out other drivers of the writer, and publish its last batch, if that failed.
        2. Commit: write down what the batch is made of. Without a number it gets the next one.
        3. Publish: topics point into the sealed files, each range with (writer, task, number) on it.
        4. Forget batches before it, and files that nobody points into any more.
        """
        ensure_private_folder(self.path / "batches")
        with held_lock(self.path / "lock", timeout_ms=_LOCK_TIMEOUT_MS):
            # 1
            last = self._last()
            if last is not None:
                self._publish(last)
            if last is not None and number is not None and number <= last.number:
                self.discard(parts)
                return False
            # 2
            following = 0 if last is None else last.number + 1
            named = tuple(part for part in parts if part.sections)
            self._check_there(named)
            committed = _Batch(self.writer, following if number is None else number, named)
            publish_exclusive(self._file(committed.number), [_BATCH.encode(committed)])
            failpoints.hit("writer.committed")
            # 3
            self._publish(committed)
            failpoints.hit("writer.published")
            # 4
            self._forget(committed)
        return True

    def complete(self) -> None:
        """Publish the last batch, if its driver has died between commit and publication."""
        if (self.path / "batches").is_dir():
            with held_lock(self.path / "lock", timeout_ms=_LOCK_TIMEOUT_MS):
                last = self._last()
                if last is not None:
                    self._publish(last)

    def discard(self, parts: Iterable[SealedPart]) -> None:
        """Delete what tasks have sealed for a batch that is not committed."""
        for part in parts:
            if part.file:
                (self.log.root / part.file).unlink(missing_ok=True)

    def _check_there(self, parts: Sequence[SealedPart]) -> None:
        """What is committed can be published: it is not committed otherwise."""
        gone = [part.file for part in parts if not (self.log.root / part.file).is_file()]
        if gone:
            raise InvalidPublicationError(
                f"A batch of writer {self.writer!r} is not committed: its file {gone[0]!r} is gone. Likely "
                "cause: it took longer than a day, and was collected as abandoned. Remedy: write it again."
            )

    def _last(self) -> _Batch | None:
        numbers = self._numbers()
        if not numbers:
            return None
        path = self._file(numbers[-1])
        return _BATCH.decode(read_bounded(path, _BATCH.max_bytes + 64), _Batch, str(path))

    def _numbers(self) -> list[int]:
        folder = self.path / "batches"
        return sorted(int(path.name) - 1 for path in folder.iterdir() if path.name.isdigit())

    def _file(self, number: int) -> Path:
        return self.path / "batches" / f"{number + 1:020d}"

    def _publish(self, batch: _Batch) -> None:
        self.log.publish_all(
            (
                TopicPartition(section.topic, section.partition),
                SealedRange(
                    file=part.file,
                    start=section.start,
                    length=section.length,
                    count=section.count,
                    min_timestamp=section.min_timestamp,
                    max_timestamp=section.max_timestamp,
                    stamp=Stamp(f"writer:{self.writer}", str(index), Epoch(batch.number + 1)),
                ),
            )
            for index, part in enumerate(batch.parts)
            for section in part.sections
        )

    def _forget(self, committed: _Batch) -> None:
        numbers = self._numbers()
        for number in numbers:
            if number < committed.number:
                self._file(number).unlink(missing_ok=True)
        if committed.number % _COLLECT_EVERY == _COLLECT_EVERY - 1:
            self._collect(committed)

    def _collect(self, committed: _Batch) -> None:
        """Delete sealed files that topics have taken over into segments, and those of failed attempts."""
        needed = self.log.references().keys() | {part.file for part in committed.parts}
        youngest = time.time() - _ABANDONED_S
        for folder in (self.path / "sealed").iterdir():
            for path in folder.iterdir():
                is_needed = path.relative_to(self.log.root).as_posix() in needed
                if not is_needed and path.stat().st_mtime < youngest:
                    path.unlink(missing_ok=True)
            with suppress(OSError):  # there are others in it
                folder.rmdir()


def check_writable(log: FileLog, topic: str, owners: Sequence[str] = ("-changelog", "-repartition")) -> int:
    """How many partitions a topic has that others may write to; a changelog is its application's alone."""
    if topic.endswith(tuple(owners)):
        raise InvalidTopicError(
            f"{topic!r} is a topic of an application's own: a record of somebody else would damage its "
            "state. Nothing was written. Remedy: write to a topic of yours."
        )
    return log.config(topic).partitions
