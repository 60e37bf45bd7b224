"""Manifests: one per epoch, and the only truth about what was committed.

A manifest says how far every source was read, which version every task's stores have, which files hold
what the epoch made, and what tasks remember besides their stores. It names its parent by digest, so the
manifests of an application form a chain; the last one is the head. Writing manifest N *is* the commit of
epoch N: it is created exclusively and all at once, so of two coordinators that try, one wins.

A witness file says which manifest was the last. If it names one that is not there, a manifest was lost,
and going on would overwrite history: refused, like a gap or damage in the chain.

Where there are many tasks, most manifests stand in their files as deltas: as what has changed since the one
before (:mod:`millstream.commit.manifest_records`). Now and then one is written as a whole, as is the first
one of every coordinator. A delta needs all before it since then. So those stay as long as the delta is kept;
what an epoch itself has sealed is in its own file in any case.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from heapq import nlargest
from typing import Final, NamedTuple

import msgspec

from millstream import failpoints
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.lease import LeaseLostError
from millstream.commit.manifest_records import (
    MAX_BYTES,
    WHOLE_FILE,
    Manifest,
    ManifestDelta,
    Record,
    Section,
    TaskEntry,
    decode_record,
    delta_of,
)
from millstream.durable import FrameKind, publish_exclusive, read_bounded, replace_durably, sync_folder
from millstream.errors import MillstreamError
from millstream.throttler import maybe_throttle
from millstream.types import Epoch, Term

__all__ = [
    "WHOLE_FILE",
    "LostManifestError",
    "Manifest",
    "ManifestChain",
    "ManifestDelta",
    "Record",
    "Section",
    "TaskEntry",
]

_WITNESS: Final = FrameKind(b"MSHD", version=1, max_bytes=4096)

STANDING_MANIFESTS: Final = 100
"""How many manifests stay at most because a task has last sealed with them, however long ago.

Each may name every task: one per idle task would be quadratic in their number.
"""

MIN_BYTES_FOR_DELTAS: Final = 64 << 10
"""A manifest that takes less as a whole stands alone: a delta would not be written any faster."""
MOST_DELTAS: Final = 64
"""So many files at most are read besides the whole one to know a manifest."""
_REMEMBERED: Final = 3
"""Manifests that a reader has in memory, so that the next one costs only what has changed."""


class LostManifestError(MillstreamError):
    """The chain of manifests is not whole. Nothing is written until that is repaired."""


class _Witness(msgspec.Struct, frozen=True):
    epoch: Epoch
    digest: str


class _LastWhole(NamedTuple):
    """What was written since the last manifest that stands in its file as a whole, that one included."""

    epoch: Epoch
    size: int
    last: Manifest
    deltas: int = 0
    delta_bytes: int = 0


class ManifestChain:
    """The manifests of an application. One thread at most writes; others may read meanwhile."""

    def __init__(self, storage: ApplicationStorage) -> None:
        self._storage = storage
        self._written: _LastWhole | None = None
        """None until the first commit here, which is written as a whole."""
        self._remembered: dict[Epoch, Manifest] = {}

    def head(self) -> Manifest | None:
        """The last manifest, after the chain of those that are kept was checked; None before the first."""
        witness = self._witness()  # before the manifests: one that is written meanwhile is not lost
        epochs = self._epochs()
        if not epochs:
            self._check_witness(witness, {})
            return None
        oldest = Epoch(self.record(epochs[-1]).oldest)
        there = frozenset(epochs)
        if oldest not in there:
            raise self._lost(f"there is no manifest before {next(at for at in epochs if at > oldest)}")
        first = self._first_needed(oldest)
        head: Manifest | None = None
        digests: dict[Epoch, str] = {}
        for number in range(first, epochs[-1] + 1):
            if number not in there:
                raise self._lost(f"manifest {number} is missing between others")
            head = self._next(head, self._file(Epoch(number)), is_first=number == first)
            digests[head.epoch] = head.digest()
        self._check_witness(witness, digests)
        return head

    def _next(self, before: Manifest | None, file: tuple[Record, bytes], *, is_first: bool) -> Manifest:
        """The manifest behind another one, from what stands in its file."""
        record, data = file
        if not is_first and (before is None or record.parent != before.digest()):
            raise self._lost(f"manifest {record.epoch} does not continue manifest {record.epoch - 1}")
        if isinstance(record, Manifest):
            return record
        if before is None:
            raise self._lost(f"manifest {record.epoch} says only what has changed since {record.epoch - 1}")
        return record.applied_to(before).stands_in(data)

    def _first_needed(self, epoch: Epoch) -> Epoch:
        """The first manifest without which that of an epoch can't be read."""
        record = self.record(epoch)
        return record.base if isinstance(record, ManifestDelta) else epoch

    def kept(self, head: Manifest, after: int = 0) -> Iterator[Record]:
        """What the epochs that are kept have sealed, from the oldest (behind `after`) to the head."""
        return (self.record(Epoch(number)) for number in range(max(head.oldest, after + 1), head.epoch + 1))

    def not_maintained(self) -> list[Record]:
        """What the head and those before it have sealed that nobody has removed, without a gap.

        As far as they can be read: those that are kept were checked by :meth:`head`, and nobody needs the
        others. Older ones behind a gap are there because a snapshot or an idle task needs them, and not
        because maintenance has not run.
        """
        found: list[Record] = []
        for epoch in reversed(self._epochs()):
            with suppress(MillstreamError, FileNotFoundError):
                record = self.record(epoch)
                if found and found[-1].epoch != epoch + 1:
                    break
                found.append(record)
        return found[::-1]

    def remove_unneeded(self, head: Manifest, pinned: Container[int] = ()) -> int:
        """Remove the manifests that the head does without, but those that are pinned; return how many.

        Those that are needed to read the oldest that is kept stay. The head says which ones are kept, so a
        crash in the middle, or an overtaken coordinator, does no harm. The manifest with which a task has
        last sealed stays, if it is one of the newest ``STANDING_MANIFESTS`` of that kind: it tells whose a
        snapshot is that is taken of the task just now. Without it the task's next snapshot is of use only
        when the task has sealed again.
        """
        removed = 0
        idle = {entry.version for entry in head.tasks.values() if entry.version < head.oldest}
        standing = set(nlargest(STANDING_MANIFESTS, idle))
        first = self._first_needed(Epoch(head.oldest))
        for epoch in self._epochs():
            if epoch < first and epoch not in standing and epoch not in pinned:
                self._storage.files.unlink(self._storage.manifests / f"{epoch:020d}")
                failpoints.hit("maintenance.manifest_removed")
                removed += 1
                maybe_throttle()
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
        """One manifest, with all that is true after it. Costs what has changed since one that is known."""
        files: list[tuple[Record, bytes]] = []
        known = self._known(epoch)
        number = epoch
        while known is None:
            files.append(self._file(number))
            if isinstance(files[-1][0], Manifest):
                break
            number = Epoch(number - 1)
            known = self._remembered.get(number)
            if known is not None and known.digest() != files[-1][0].parent:
                known = None  # another one stands in its place by now
        manifest = known
        for file in reversed(files):
            manifest = self._next(manifest, file, is_first=manifest is None)
        assert manifest is not None  # there is a file at least
        self._remember(manifest)
        return manifest

    def record(self, epoch: Epoch) -> Record:
        """What stands in the file of an epoch: enough to know what it has sealed."""
        return self._file(epoch)[0]

    def _known(self, epoch: Epoch) -> Manifest | None:
        """A manifest that is remembered, if it is still what stands in its file."""
        known = self._remembered.get(epoch)
        return known if known is not None and known.is_in(self._content(epoch)) else None

    def _content(self, epoch: Epoch) -> bytes:
        path = self._storage.manifests / f"{epoch:020d}"
        return read_bounded(path, MAX_BYTES + 64, files=self._storage.files)

    def _file(self, epoch: Epoch) -> tuple[Record, bytes]:
        path = self._storage.manifests / f"{epoch:020d}"
        data = self._content(epoch)
        record = decode_record(data, str(path))
        if record.epoch != epoch or record.application_id != self._storage.application_id:
            raise self._lost(f"{path} holds manifest {record.epoch} of application {record.application_id!r}")
        return record, data

    def _remember(self, manifest: Manifest) -> None:
        remembered = dict(self._remembered)  # never changed in place: other threads look at it
        remembered.pop(manifest.epoch, None)
        remembered[manifest.epoch] = manifest
        self._remembered = dict(list(remembered.items())[-_REMEMBERED:])

    def place(self, manifest: Manifest) -> Manifest:
        """Step 1: commit, and return what is committed.

        The manifest is written under its name, exclusively and all at once. This is the commit. If an
        earlier try of the same coordinator failed only after that, its manifest stands and is returned.
        """
        path = self._storage.manifests / f"{manifest.epoch:020d}"
        data, written = self._to_write(manifest)
        self._written = None  # if this fails, nobody knows what stands there: the next one is a whole one
        try:
            publish_exclusive(path, [data], files=self._storage.files)
        except FileExistsError:
            other = self.read(manifest.epoch)
            if other.term == manifest.term:
                sync_folder(self._storage.manifests, files=self._storage.files)
                return other
            raise _overtaken(manifest, other.term) from None
        self._refuse_if_passed_by(manifest)
        self._written, placed = written, manifest.stands_in(data)
        failpoints.hit("commit.manifest_written")
        return placed

    def _to_write(self, manifest: Manifest) -> tuple[bytes, _LastWhole]:
        """The content of the file of the next commit, and what was written after it."""
        since = self._written
        if since is not None and since.size >= MIN_BYTES_FOR_DELTAS and since.deltas < MOST_DELTAS:
            delta = delta_of(since.last, manifest, since.epoch)
            data = b"" if delta is None else delta.encoded()
            delta_bytes = since.delta_bytes + len(data)
            if data and delta_bytes < since.size:  # else a whole one costs no more than those before it
                return data, since._replace(last=manifest, deltas=since.deltas + 1, delta_bytes=delta_bytes)
        data = manifest.encoded()
        return data, _LastWhole(manifest.epoch, len(data), manifest)

    def _refuse_if_passed_by(self, manifest: Manifest) -> None:
        """Take a manifest back whose place was free only because the one that stood there was removed.

        Manifests are removed long after others follow them. So whoever slept that long can find its place
        free again; all that the newest one says is kept was never removed.
        """
        last = self._epochs()[-1]
        if last <= manifest.epoch:
            return
        newest = self.record(last)
        if manifest.epoch < newest.oldest:
            self._storage.files.unlink(self._storage.manifests / f"{manifest.epoch:020d}")
            raise _overtaken(manifest, newest.term)

    def witness(self, manifest: Manifest) -> None:
        """Step 2: say which manifest was the last. An overtaken coordinator says nothing."""
        self._write_witness(manifest)
        failpoints.hit("commit.witness_written")

    def _epochs(self) -> list[Epoch]:
        names = os.listdir(self._storage.manifests)  # noqa: PTH208 - once per commit, and a path for each is slow
        return sorted(Epoch(int(name)) for name in names if name.isdigit())

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

    def _check_witness(self, witness: _Witness | None, digests: Mapping[Epoch, str]) -> None:
        last = max(digests, default=Epoch(0))
        if witness is None:
            if last > 1:
                raise self._lost(
                    f"{self._storage.witness} is missing, so nobody knows whether epoch {last} was the last"
                )
            return
        if witness.epoch > last:
            raise self._lost(f"epoch {witness.epoch} was committed, but the last manifest is {last}")
        if digests.get(witness.epoch, witness.digest) != witness.digest:
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
