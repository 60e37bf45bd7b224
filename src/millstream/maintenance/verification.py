"""Every byte of a log is read and compared with its checksum; what is not as it was written is told.

Records of topics, block by block; the chain of each application's manifests; the sealed files that the head
names. Nothing is changed, and others may read and write meanwhile. Local stores are not looked at: they are
copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millstream.commit.application_storage import ApplicationStorage, application_ids
from millstream.commit.manifest import ManifestChain
from millstream.commit.sealed_file import read_sealed
from millstream.errors import MillstreamError
from millstream.log import FileLog, TopicPartition
from millstream.types import Partition


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found of one thing that can be damaged by itself."""

    what: str
    """A partition, or an application."""
    records: int
    bytes: int
    damage: str | None
    """What is wrong, the likely cause and the remedy; None if all is as it was written."""


def verify(log: FileLog) -> Iterator[Verified]:
    """Read everything, partition by partition, then the applications."""
    for topic in log.topics():
        try:
            partitions = log.config(topic).partitions
        except (MillstreamError, OSError) as error:
            yield Verified(topic, 0, 0, str(error))
            continue
        for number in range(partitions):
            yield _verified(f"{topic}-{number}", _Records(log, TopicPartition(topic, Partition(number))))
    for application_id in application_ids(log.root):
        storage = ApplicationStorage(log.root.resolve(), application_id)
        yield _verified(f"application {application_id}", _Application(storage))


@dataclass(slots=True)
class _Records:
    """The records of a partition."""

    log: FileLog
    place: TopicPartition
    records: int = 0
    bytes: int = 0

    def check(self) -> None:
        for batch in self.log.read(self.place, self.log.earliest(self.place)):
            self.records += len(batch)
            self.bytes += batch.records.nbytes


@dataclass(slots=True)
class _Application:
    """The manifests of an application, and the files that tasks have sealed last."""

    storage: ApplicationStorage
    records: int = 0
    bytes: int = 0

    def check(self) -> None:
        head = ManifestChain(self.storage).head()
        for entry in () if head is None else head.tasks.values():
            path = self.storage.root / entry.file
            is_past = head is not None and entry.version < head.oldest
            if not entry.file or (is_past and entry.is_shared and not path.exists()):
                continue  # topics have all that is needed of it
            self.bytes += entry.part[1] or path.stat().st_size
            read_sealed(self.storage, entry.file, entry.digest, entry.part)


def _verified(what: str, part: _Records | _Application) -> Verified:
    check: Callable[[], None] = part.check
    try:
        check()
    except FileNotFoundError as error:
        damage = (
            f"{error.filename} is missing. Likely cause: it was deleted by hand, or not restored. Remedy: "
            "restore it from a backup."
        )
    except (MillstreamError, OSError) as error:
        damage = str(error)
    else:
        return Verified(what, part.records, part.bytes, None)
    return Verified(what, part.records, part.bytes, damage)
