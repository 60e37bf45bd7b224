"""Manifests: one per epoch, and the only truth about what was committed.

A manifest says how far every source was read, which version every task's stores have, which files hold
what the epoch made, and what tasks remember besides their stores. It names its parent by digest, so the
manifests of an application form a chain; the last one is the head. Writing manifest N *is* the commit of
epoch N: it is created exclusively and all at once, so of two coordinators that try, one wins.

A witness file says which manifest was the last. If it names one that is not there, a manifest was lost,
and going on would overwrite history: refused, like a gap or damage in the chain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from itertools import pairwise
from typing import Any, Final

import msgspec

from millstream import failpoints
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.lease import LeaseLostError
from millstream.durable import FrameKind, publish_exclusive, read_bounded, replace_durably, sync_folder
from millstream.errors import MillstreamError
from millstream.state.changelog.source_changelog import StoreStart
from millstream.topology.stored_types import StoredTypes
from millstream.types import Epoch, Offset, Partition, Term

__all__ = ["LostManifestError", "Manifest", "ManifestChain", "Section", "TaskEntry"]

_KIND: Final = FrameKind(b"MSMF", version=1, max_bytes=256 << 20)
_WITNESS: Final = FrameKind(b"MSHD", version=1, max_bytes=4096)

STANDING_MANIFESTS: Final = 100
"""How many manifests stay at most because a task has last sealed with them, however long ago.

Each names every task: one per idle task would be quadratic in their number.
"""


class LostManifestError(MillstreamError):
    """The chain of manifests is not whole. Nothing is written until that is repaired."""


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
    operator_times: Mapping[str, tuple[int, int, int, int]] | msgspec.UnsetType = msgspec.UNSET
    """Per operator of windows, the fields of its `OperatorTimes`; unset if there is none."""


class Manifest(msgspec.Struct, frozen=True):
    """One commit."""

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
        """What the next manifest names as its parent."""
        return hashlib.blake2b(self.encoded(), digest_size=16).hexdigest()

    def position(self, topic: str, partition: Partition) -> Offset | None:
        """The next offset to read of a source; None if it was never read."""
        for at, number, offset in self.positions:
            if (at, number) == (topic, partition):
                return offset
        return None

    def partitions(self, topic: str) -> int:
        """How many partitions of a source have been read so far."""
        return max((number + 1 for at, number, _ in self.positions if at == topic), default=0)

    def encoded(self) -> bytes:
        """The manifest as it stands in its file."""
        return _KIND.encode(self)


class _Witness(msgspec.Struct, frozen=True):
    epoch: Epoch
    digest: str


class ManifestChain:
    """The manifests of an application."""

    def __init__(self, storage: ApplicationStorage) -> None:
        self._storage = storage

    def head(self) -> Manifest | None:
        """The last manifest, after the chain of those that are kept was checked; None before the first."""
        witness = self._witness()  # before the manifests: one that is written meanwhile is not lost
        epochs = self._epochs()
        oldest = self.read(epochs[-1]).oldest if epochs else 1
        manifests = [self.read(epoch) for epoch in epochs if epoch >= oldest]
        if manifests and manifests[0].epoch != oldest:
            raise self._lost(f"there is no manifest before {manifests[0].epoch}")
        for before, after in pairwise(manifests):
            if after.epoch != before.epoch + 1:
                raise self._lost(f"manifest {before.epoch + 1} is missing between others")
            if after.parent != before.digest():
                raise self._lost(f"manifest {after.epoch} does not continue manifest {before.epoch}")
        self._check_witness(witness, manifests)
        return manifests[-1] if manifests else None

    def kept(self, head: Manifest) -> Iterator[Manifest]:
        """The manifests that are kept, from the oldest to the head."""
        return (self.read(Epoch(number)) for number in range(head.oldest, head.epoch + 1))

    def not_maintained(self) -> list[Manifest]:
        """The head and those before it that nobody has removed, without a gap, as far as they can be read.

        Those that are kept were checked by :meth:`head`; nobody needs the others. Older ones behind a gap are
        there because a snapshot or an idle task needs them, and not because maintenance has not run.
        """
        found: list[Manifest] = []
        for epoch in reversed(self._epochs()):
            with suppress(MillstreamError, FileNotFoundError):
                manifest = self.read(epoch)
                if found and found[-1].epoch != epoch + 1:
                    break
                found.append(manifest)
        return found[::-1]

    def remove_unneeded(self, head: Manifest, pinned: Container[int] = ()) -> int:
        """Remove the manifests that the head does without, but those that are pinned; return how many.

        The head says which ones are kept, so a crash in the middle, or an overtaken coordinator, does no
        harm. The manifest with which a task has last sealed stays, if it is one of the newest
        ``STANDING_MANIFESTS`` of that kind: it tells whose a snapshot is that is taken of the task just now.
        Without it the task's next snapshot is of use only when the task has sealed again.
        """
        removed = 0
        idle = {entry.version for entry in head.tasks.values() if entry.version < head.oldest}
        standing = set(nlargest(STANDING_MANIFESTS, idle))
        for epoch in self._epochs():
            if epoch < head.oldest and epoch not in standing and epoch not in pinned:
                self._storage.files.unlink(self._storage.manifests / f"{epoch:020d}")
                failpoints.hit("maintenance.manifest_removed")
                removed += 1
        return removed

    def latest(self) -> Manifest | None:
        """The last manifest, for a reader that changes nothing: the chain is not checked."""
        epochs = self._epochs() if self._storage.manifests.is_dir() else []
        while epochs:
            try:
                return self.read(epochs[-1])
            except FileNotFoundError:
                seen, epochs = epochs[-1], self._epochs()
                if epochs and epochs[-1] <= seen:
                    raise  # it was not removed for the sake of later ones
        return None

    def complete_head(self, head: Manifest | None) -> None:
        """Finish what the head's coordinator may have left undone: its name's sync, the witness."""
        sync_folder(self._storage.manifests, files=self._storage.files)
        if head is not None and self._witness() != _Witness(head.epoch, head.digest()):
            self._write_witness(head)

    def read(self, epoch: Epoch) -> Manifest:
        """One manifest."""
        path = self._storage.manifests / f"{epoch:020d}"
        data = read_bounded(path, _KIND.max_bytes + 64, files=self._storage.files)
        manifest = _KIND.decode(data, Manifest, str(path))
        if manifest.epoch != epoch or manifest.application_id != self._storage.application_id:
            raise self._lost(
                f"{path} holds manifest {manifest.epoch} of application {manifest.application_id!r}"
            )
        return manifest

    def place(self, manifest: Manifest) -> Manifest:
        """Step 1: commit, and return what is committed.

        The manifest is written under its name, exclusively and all at once. This is the commit. If an
        earlier try of the same coordinator failed only after that, its manifest stands and is returned.
        """
        path = self._storage.manifests / f"{manifest.epoch:020d}"
        try:
            publish_exclusive(path, [manifest.encoded()], files=self._storage.files)
        except FileExistsError:
            other = self.read(manifest.epoch)
            if other.term == manifest.term:
                sync_folder(self._storage.manifests, files=self._storage.files)
                return other
            raise _overtaken(manifest, other.term) from None
        self._refuse_if_passed_by(manifest)
        failpoints.hit("commit.manifest_written")
        return manifest

    def _refuse_if_passed_by(self, manifest: Manifest) -> None:
        """Take a manifest back whose place was free only because the one that stood there was removed.

        Manifests are removed long after others follow them. So whoever slept that long can find its place
        free again; all that the newest one says is kept was never removed.
        """
        last = self._epochs()[-1]
        if last <= manifest.epoch:
            return
        newest = self.read(last)
        if manifest.epoch < newest.oldest:
            self._storage.files.unlink(self._storage.manifests / f"{manifest.epoch:020d}")
            raise _overtaken(manifest, newest.term)

    def witness(self, manifest: Manifest) -> None:
        """Step 2: say which manifest was the last. An overtaken coordinator says nothing."""
        self._write_witness(manifest)
        failpoints.hit("commit.witness_written")

    def _epochs(self) -> list[Epoch]:
        return sorted(
            Epoch(int(path.name)) for path in self._storage.manifests.iterdir() if path.name.isdigit()
        )

    def _witness(self) -> _Witness | None:
        path = self._storage.witness
        try:
            data = read_bounded(path, _WITNESS.max_bytes + 64, files=self._storage.files)
        except FileNotFoundError:
            return None
        return _WITNESS.decode(data, _Witness, str(path))

    def _write_witness(self, manifest: Manifest) -> None:
        known = self._witness()
        if known is not None and known.epoch > manifest.epoch:
            return
        witness = _Witness(manifest.epoch, manifest.digest())
        replace_durably(self._storage.witness, [_WITNESS.encode(witness)], files=self._storage.files)

    def _check_witness(self, witness: _Witness | None, manifests: Sequence[Manifest]) -> None:
        last = manifests[-1].epoch if manifests else Epoch(0)
        if witness is None:
            if last > 1:
                raise self._lost(
                    f"{self._storage.witness} is missing, so nobody knows whether epoch {last} was the last"
                )
            return
        if witness.epoch > last:
            raise self._lost(f"epoch {witness.epoch} was committed, but the last manifest is {last}")
        for manifest in manifests:
            if manifest.epoch == witness.epoch and manifest.digest() != witness.digest:
                raise self._lost(f"manifest {witness.epoch} is not the one that was committed")

    def _lost(self, what: str) -> LostManifestError:
        return LostManifestError(
            f"The history of application {self._storage.application_id!r} is not whole: {what}. Nothing was "
            f"changed. Likely cause: files in {self._storage.path} were deleted or restored from different "
            "backups. Remedy: restore the folder as a whole, or start the application under another app_id."
        )


def _overtaken(manifest: Manifest, term: Term) -> LeaseLostError:
    return LeaseLostError(
        f"Epoch {manifest.epoch} of application {manifest.application_id!r} was committed by another "
        f"coordinator (term {term}, this one has term {manifest.term}). Nothing of this epoch is visible. "
        "Likely cause: this coordinator was stopped or cut off for longer than its lease. Remedy: end it; "
        "the other one goes on."
    )
