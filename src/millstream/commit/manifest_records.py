"""What a commit says, and how it stands in a file: as a whole, or as what has changed since the one before.

A whole manifest names every task, so of ten thousand tasks it has megabytes, however few of them had anything
to do. What has changed is as much as the epoch did. When which of them is written, and how they are read
again: :mod:`millstream.commit.manifest`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec

from millstream.durable import FrameKind
from millstream.state.changelog.source_changelog import StoreStart
from millstream.topology.stored_types import StoredTypes
from millstream.types import Epoch, Offset, Partition, Term

__all__ = [
    "MAX_BYTES",
    "WHOLE_FILE",
    "Manifest",
    "ManifestDelta",
    "Record",
    "Section",
    "TaskEntry",
    "decode_record",
    "delta_of",
]

MAX_BYTES: Final = 256 << 20
_WHOLE: Final = FrameKind(b"MSMF", version=1, max_bytes=MAX_BYTES)
_DELTA: Final = FrameKind(b"MSMD", version=1, max_bytes=MAX_BYTES)

WHOLE_FILE: Final = (0, 0)
"""The part of a file that one task has sealed alone."""

_Positions: TypeAlias = tuple[tuple[str, Partition, Offset], ...]


class Section(msgspec.Struct, frozen=True):
    """Rows in a sealed file that go to one topic partition."""

    topic: str
    partition: Partition
    start: int
    length: int
    count: int
    min_timestamp: int
    max_timestamp: int


class TaskEntry(msgspec.Struct, frozen=True):
    """A task as of its last sealed epoch."""

    version: Epoch
    file: str
    """The sealed file, relative to the log's root."""
    digest: str
    """Of what the task has sealed: of the file, or of its part of it."""
    sections: tuple[Section, ...]
    """What of the file is published."""
    changelogs: Mapping[str, Offset]
    """Per logged store, the next offset of its changelog (or of the source topic that does for one): where a
    store at this version stands."""
    stream_time: int
    partition_times: tuple[tuple[str, Partition, int], ...]
    punctuations: tuple[tuple[str, int, int], ...]
    """Node and clock, number there, when it is due. In the order of the queues: it decides between equals."""
    repartitioned: tuple[tuple[str, Partition, int], ...] = ()
    """How many rows came through each repartition so far: their offsets go on from here."""
    previous: tuple[int, str] = (0, "")
    """Version and digest of the task's epoch before this one, however long ago: where its store may stand."""
    origins: Mapping[str, StoreStart] = {}
    """Per store that has its source topic for a changelog, how it began."""
    part: tuple[int, int] = WHOLE_FILE
    """Where the task's part begins in a file that it shares with others, and how long it is."""
    operator_times: Mapping[str, tuple[int, int, int, int]] | msgspec.UnsetType = msgspec.UNSET
    """Per operator of windows, the fields of its `OperatorTimes`; unset if there is none."""

    @property
    def is_shared(self) -> bool:
        """Whether other tasks have sealed in the same file: then nobody but topics needs it for long."""
        return self.part != WHOLE_FILE

    def __reduce__(self) -> tuple[type[TaskEntry], tuple[Any, ...]]:
        """Without what is unset: to pickle that, Python goes through all modules that there are."""
        fields = msgspec.structs.astuple(self)
        return TaskEntry, fields[:-1] if self.operator_times is msgspec.UNSET else fields


class Manifest(msgspec.Struct, frozen=True, dict=True):
    """One commit, with all that is true after it."""

    application_id: str
    epoch: Epoch
    term: Term
    parent: str
    """Digest of the manifest before; empty for the first."""
    fingerprint: str
    """Of the plan that ran."""
    clock_ms: int
    positions: tuple[tuple[str, Partition, Offset], ...]
    """Per source topic and partition, the next offset to read."""
    tasks: Mapping[str, TaskEntry]
    sealed: tuple[str, ...]
    """The tasks that sealed in this epoch; the others keep their last version."""
    inferred_types: tuple[tuple[str, str, str], ...] = msgspec.field(name="learned")
    """What automatic serdes inferred: topic or store, key or value, type."""
    plan: Mapping[str, Any] = {}
    repartitions: Mapping[str, int] = {}
    """How many partitions each repartition has, for as long as the application lives."""
    oldest: int = 1
    """The first epoch whose manifest is kept. Those before it have done their service."""
    types: StoredTypes | msgspec.UnsetType = msgspec.UNSET
    """With which serdes the plan keeps what it keeps. Manifests of earlier releases do not say; unset is not
    written, so that they have the digests that they had."""

    def digest(self) -> str:
        """What the next manifest names as its parent: the digest of the file that this one stands in.

        One that stands nowhere yet has that of the file that it would be as a whole.
        """
        return self._digest

    def stands_in(self, data: bytes) -> Manifest:
        """The same, knowing the content of its file: all of it, or what has changed."""
        vars(self)["_digest"] = _digest_of(data)
        return self

    def is_in(self, data: bytes) -> bool:
        """Whether it is this manifest that stands in a file with some content."""
        return self._digest == _digest_of(data)

    def position(self, topic: str, partition: Partition) -> Offset | None:
        """The next offset to read of a source; None if it was never read."""
        return self._offsets.get((topic, partition))

    def partitions(self, topic: str) -> int:
        """How many partitions of a source have been read so far."""
        return self._partition_counts.get(topic, 0)

    def encoded(self) -> bytes:
        """The manifest as it stands in a file of its own."""
        return _WHOLE.encode(self)

    @cached_property
    def _digest(self) -> str:
        return _digest_of(self.encoded())

    @cached_property
    def _offsets(self) -> dict[tuple[str, Partition], Offset]:
        return {(topic, partition): offset for topic, partition, offset in self.positions}

    @cached_property
    def _partition_counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for topic, partition, _ in self.positions:
            counts[topic] = max(partition + 1, counts.get(topic, 0))
        return counts


class ManifestDelta(msgspec.Struct, frozen=True):
    """One commit, as what has changed since the one before."""

    application_id: str
    epoch: Epoch
    term: Term
    parent: str
    base: Epoch
    """The last commit before that stands in its file as a whole: all since are needed to read this one."""
    clock_ms: int
    positions: tuple[tuple[str, Partition, Offset], ...]
    tasks: Mapping[str, TaskEntry]
    sealed: tuple[str, ...]
    oldest: int
    inferred_types: tuple[tuple[str, str, str], ...] | msgspec.UnsetType = msgspec.UNSET
    """Unset if nothing was inferred since."""

    def applied_to(self, before: Manifest) -> Manifest:
        """What is true after it."""
        known = before.inferred_types
        return msgspec.structs.replace(
            before,
            epoch=self.epoch,
            term=self.term,
            parent=self.parent,
            clock_ms=self.clock_ms,
            positions=_moved(before.positions, self.positions),
            tasks={**before.tasks, **self.tasks},
            sealed=self.sealed,
            inferred_types=known if self.inferred_types is msgspec.UNSET else self.inferred_types,
            oldest=self.oldest,
        )

    def encoded(self) -> bytes:
        """The commit as it stands in its file."""
        return _DELTA.encode(self)


Record = Manifest | ManifestDelta
"""What stands in the file of an epoch. Either has the entries of all tasks that sealed in it."""


def delta_of(before: Manifest, after: Manifest, base: Epoch) -> ManifestDelta | None:
    """What a commit changes; None if that does not say all.

    Where sources stand, and tasks with their types: the rest changes with the program, not with epochs.
    """
    delta = ManifestDelta(
        application_id=after.application_id,
        epoch=after.epoch,
        term=after.term,
        parent=after.parent,
        base=base,
        clock_ms=after.clock_ms,
        positions=_new(before.positions, after.positions),
        tasks={
            task: entry
            for task, entry in after.tasks.items()
            if (known := before.tasks.get(task)) is not entry and known != entry
        },
        sealed=after.sealed,
        oldest=after.oldest,
        inferred_types=(
            msgspec.UNSET if before.inferred_types == after.inferred_types else after.inferred_types
        ),
    )
    follows = after.epoch == before.epoch + 1 and after.parent == before.digest()
    return delta if follows and delta.applied_to(before) == after else None


def decode_record(data: bytes, where: str) -> Record:
    """What the content of a file says. A manifest knows its digest then."""
    if data[: len(_DELTA.magic)] == _DELTA.magic:
        return _DELTA.decode(data, ManifestDelta, where)
    return _WHOLE.decode(data, Manifest, where).stands_in(data)


def _new(before: _Positions, after: _Positions) -> _Positions:
    known = dict.fromkeys(before)
    return tuple(position for position in after if position not in known)


def _moved(before: _Positions, changed: _Positions) -> _Positions:
    offsets = {(topic, partition): offset for topic, partition, offset in before}
    offsets.update(((topic, partition), offset) for topic, partition, offset in changed)
    ordered = offsets.items() if len(offsets) == len(before) else sorted(offsets.items())
    return tuple((topic, partition, offset) for (topic, partition), offset in ordered)


def _digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
