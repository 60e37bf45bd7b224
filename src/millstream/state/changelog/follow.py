"""Follow a task's log up to a version: the one way in which a local copy of state moves forward.

Restoring an empty store, catching up after a commit, keeping a query replica current: all
read the store's changelog from where the copy stands to where the wanted version ends, and apply it in
batches. Each batch carries its own position into the store's marker, in the same atomic write, so a
killed follower goes on where it stopped. The log checks the checksum of every block it hands out.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Final, Protocol

import msgspec
import pyarrow as pa

from millstream import failpoints
from millstream.log.api import Compacted, Log, TopicPartition
from millstream.log.errors import OffsetOutOfRangeError
from millstream.state.backends.api import Backend, KeyRange
from millstream.state.changelog.external_sort import sorted_runs
from millstream.state.changelog.rows import last_of_each_key
from millstream.state.errors import (
    ChangelogCompactedError,
    ChangelogGapError,
    DamagedStoreError,
    StoreAheadError,
)
from millstream.state.stores.overlay import Entry
from millstream.state.stores.segments import NOTE_KEY, apply_changes, dropped_by
from millstream.types import Offset, Version

BATCH_ROWS: Final = 250_000
BATCH_BYTES: Final = 64 << 20
"""A batch is held in memory: it ends with whichever of the two it reaches first."""
SORTED_ROWS: Final = 2_000_000
"""From so many records on an empty store is restored by the order of its keys."""
RESTORING: Final = Version(-1)
"""The version of a store that is on its way: it has applied a prefix of the changelog, up to its position."""


class StorePosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a store holds: a version, and the next offset of its changelog."""

    version: Version
    offset: Offset = msgspec.field(name="position")
    sealed_digest: str = msgspec.field(name="sealed", default="")
    """Digest of the file that was sealed for the version: two histories may count the same versions."""
    toward: Version = Version(0)
    """While restoring: the version that the sealed file belongs to: there may be rows of it already."""

    def encoded(self) -> bytes:
        """The marker of the backend, by which it keeps this."""
        return msgspec.json.encode(self)


_START: Final = Offset(0)
EMPTY: Final = StorePosition(Version(0), _START)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a store has to get to."""

    store: str
    changelog: TopicPartition
    position: StorePosition
    segmented: bool = False
    """Whether rows expire by segments."""
    scratch: Path | None = None
    """A folder for the time of a large restore: see `millstream.state.changelog.external_sort`."""
    first: Offset = _START
    """Where a store that holds nothing begins to read."""
    compacted_before: Offset = _START
    """How far the log was compacted when the store began: what is missing up to there, it never had."""
    batch_bytes: int | None = None
    """How much is applied at once; None: as much as ever. Beside other work small steps are taken."""
    writes_of: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    """From rows of the log to rows of keys and values as the store has them; None: they are."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a restore is."""

    store: str
    partition: int
    records: int
    """So many are in the store. By key: one counts half when it is sorted, and half when it is there."""
    total_records: int
    bytes: int
    """Of the records that were read."""
    records_per_second: float
    seconds_left: float | None
    snapshot: Version | None = None
    """The version of the snapshot that is copied: its records count as its files arrive. None: changelog."""


class RestoreListener(Protocol):
    """Is told about restores. Called from the task that restores; must be quick."""

    def on_start(self, progress: Progress) -> None:
        """A store begins to follow."""

    def on_batch(self, progress: Progress) -> None:
        """A batch was applied."""

    def on_end(self, progress: Progress) -> None:
        """The store is where it was wanted."""

    def on_suspended(self, progress: Progress) -> None:
        """The restore ended early, by an error or a crash; the next one goes on from here."""


class _NoListener:
    def on_start(self, progress: Progress) -> None: ...
    def on_batch(self, progress: Progress) -> None: ...
    def on_end(self, progress: Progress) -> None: ...
    def on_suspended(self, progress: Progress) -> None: ...


NO_LISTENER: Final = _NoListener()


class ToldRestores(RestoreListener):
    """Tells another listener."""

    def __init__(self, other: RestoreListener) -> None:
        self._other = other

    def on_start(self, progress: Progress) -> None:
        self._other.on_start(progress)

    def on_batch(self, progress: Progress) -> None:
        self._other.on_batch(progress)

    def on_end(self, progress: Progress) -> None:
        self._other.on_end(progress)

    def on_suspended(self, progress: Progress) -> None:
        self._other.on_suspended(progress)


class CountedRestores(ToldRestores):
    """Counts the records of changelogs that were read."""

    def __init__(self, other: RestoreListener) -> None:
        super().__init__(other)
        self.records = 0

    def on_end(self, progress: Progress) -> None:
        self._count(progress)
        super().on_end(progress)

    def on_suspended(self, progress: Progress) -> None:
        self._count(progress)
        super().on_suspended(progress)

    def _count(self, progress: Progress) -> None:
        if progress.snapshot is None:  # its files are copied, not read as records
            self.records += progress.records


Report = Callable[[Offset, int], None]
"""Called when a restore has come to an offset, by so many bytes more."""


def position_of(backend: Backend, store: str) -> StorePosition:
    """Where a store stands; an empty one stands at the beginning."""
    data = backend.marker()
    if data is None:
        return EMPTY
    try:
        return msgspec.json.decode(data, type=StorePosition)
    except ValueError as error:  # also of bytes that are no text
        raise DamagedStoreError(
            f"Store {store!r} does not say which version it holds ({error}). Likely cause: a fault of the "
            "disk. Remedy: remove it; it is restored from its changelog."
        ) from error


def follow(backend: Backend, target: Target, log: Log, listener: RestoreListener = NO_LISTENER) -> None:
    """Bring a store to the target. It may stand anywhere before it, also in the middle of a restore."""
    here = position_of(backend, target.store)
    wanted = target.position
    if (here.version, here.offset) == (wanted.version, wanted.offset):
        return
    refuse_newer(target.store, target.changelog.partition, here, wanted)
    start = max(here.offset, target.first)
    before = log.compacted(target.changelog)
    # At the beginning, but on its way: it may have rows of a sorted restore that was killed.
    is_half_sorted = here.version == RESTORING and here.offset == 0
    if is_half_sorted and not here.toward:
        raise half_restored(target.store, "nobody knows to which version its rows belong")
    has_rows = here.offset > 0 or is_half_sorted
    # Compaction ends where the oldest version stands: up to there nothing has changed since the store began.
    is_as_it_was = wanted.offset <= target.compacted_before
    if has_rows and here.offset < before.deletes_gone_to and not is_as_it_was:
        raise _deletes_gone(target, here)
    is_restore = wanted.offset - start > BATCH_ROWS
    is_there = False
    with reported(target, start, listener) as report:
        if target.scratch is not None and not here.offset and wanted.offset - start >= SORTED_ROWS:
            _restore_sorted(backend, target, log, before, report, target.scratch)
            return
        for rows, position, size in _read(log, target, start):
            is_there = position == wanted.offset
            if is_there:
                _check_not_overtaken(log, target, here, before)
            # Half of a batch is as if it were not there: it is read and applied again from its start.
            apply_changes(
                backend,
                last_of_each_key(rows),
                wanted.encoded() if is_there else _on_the_way(wanted, position),
                segmented=target.segmented,
                bulk=is_restore,
                between=_on_the_way(wanted, start),
            )
            start = position
            failpoints.hit("follow.batch_applied")
            report(position, size)
        if not is_there:
            _check_not_overtaken(log, target, here, before)
            # Also without new rows: the version of every store of a task advances with each commit.
            backend.write((), marker=wanted.encoded())


def _restore_sorted(
    backend: Backend, target: Target, log: Log, before: Compacted, report: Report, scratch: Path
) -> None:
    """Restore a store that has nothing yet by the order of its keys.

    Until the last batch it stands at the beginning: one that is killed begins anew.
    """
    gone: KeyRange | None = None
    pending: list[Entry] = []
    done = 0
    half = (target.position.offset - target.first) // 2
    with sorted_runs(_reading(_read(log, target, target.first), report, target.first), scratch) as runs:
        _check_not_overtaken(log, target, EMPTY, before)
        for entries in runs.batches(BATCH_ROWS):
            if target.segmented and entries[0][0] == NOTE_KEY and entries[0][1] is not None:
                gone = dropped_by(entries[0][1])
            if pending:
                _apply_sorted(backend, pending, _on_the_way(target.position, Offset(0)), gone)
                report(Offset(target.first + half + half * done // runs.rows), 0)
            pending = entries
            done += len(entries)
        _apply_sorted(backend, pending, target.position.encoded(), gone)
        report(target.position.offset, 0)


def _reading(
    parts: Iterable[tuple[list[pa.RecordBatch], Offset, int]], report: Report, first: Offset
) -> Iterator[list[pa.RecordBatch]]:
    """Tell of rows that are read, to be sorted: to have sorted them is half of the work."""
    for rows, position, size in parts:
        yield rows
        report(Offset(first + (position - first) // 2), size)


def _apply_sorted(backend: Backend, entries: list[Entry], marker: bytes, gone: KeyRange | None) -> None:
    if gone is not None:  # all but the note, which comes first
        notes = entries[: 1 if entries[0][0] == NOTE_KEY else 0]
        entries = [*notes, *entries[bisect_left(entries, gone[1], key=itemgetter(0), lo=len(notes)) :]]
    backend.bulk_load(entries, marker=marker, drop=gone if entries and entries[0][0] == NOTE_KEY else None)
    failpoints.hit("follow.batch_applied")


def _check_not_overtaken(log: Log, target: Target, here: StorePosition, before: Compacted) -> None:
    """Compaction may have gone on while we read.

    It leaves out what later records replace: who stops before those has too little. And it leaves out old
    tombstones: who has read what they delete, and then not them, has too much.
    """
    now = log.compacted(target.changelog)
    is_new = here.version == RESTORING or here.offset < target.position.offset
    if is_new and max(target.position.offset, target.compacted_before) < now.to:
        raise ChangelogCompactedError(
            f"Version {target.position.version} of store {target.store!r} (offset {target.position.offset} "
            f"of {target.changelog}) can't be had any more: the changelog is compacted up to {now.to}. "
            "Likely cause: this process slept while the application went on. Remedy: ask for its last "
            "version; what was read so far is kept."
        )
    if here.offset < now.deletes_gone_to > before.deletes_gone_to:
        raise _deletes_gone(target, here)


def _deletes_gone(target: Target, here: StorePosition) -> DamagedStoreError:
    return DamagedStoreError(
        f"Store {target.store!r} was at offset {here.offset} of its changelog {target.changelog}, which no "
        "longer has the deletions of that time. It is removed and restored."
    )


def half_restored(store: str, why_not_on: str) -> DamagedStoreError:
    """The error for a store that is on its way, and can't go on."""
    return DamagedStoreError(
        f"Store {store!r} is half restored, and {why_not_on}. It is removed and begins anew."
    )


def _on_the_way(wanted: StorePosition, position: Offset) -> bytes:
    toward = wanted.version if wanted.sealed_digest else Version(0)
    return StorePosition(RESTORING, position, wanted.sealed_digest, toward).encoded()


def refuse_newer(store: str, partition: int, here: StorePosition, wanted: StorePosition) -> None:
    """Refuse a store that is newer than the version that is wanted, or that may hold rows of a newer one.

    Whoever would give it the wanted version asks here first, also where there is nothing to apply.
    """
    # One that is on its way may hold rows of the version that it was to get to.
    newest = max(here.version + 1, here.toward)
    if newest <= wanted.version and here.offset <= wanted.offset:
        return
    stands = f"at version {here.version}" if here.version != RESTORING else f"on its way to {here.toward}"
    raise StoreAheadError(
        f"Store {store!r} of partition {partition} is {stands} (changelog offset {here.offset}), but the "
        f"last commit is version {wanted.version} (offset {wanted.offset}). Nothing is rolled back. Likely "
        "cause: this task is of a commit of the past (a zombie), the application's log was restored from an "
        "older backup than the local state, or the state belongs to another log. Remedy: none for a zombie; "
        "else use the log that the state belongs to, or delete the local state: it is restored from the "
        "changelog."
    )


def _read(log: Log, target: Target, start: Offset) -> Iterator[tuple[list[pa.RecordBatch], Offset, int]]:
    """Rows in the order of the log, as many as may be held in memory, the offset behind them, their size."""
    end = target.position.offset
    if start == end:
        return
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    most = target.batch_bytes or BATCH_BYTES
    position = start
    try:
        for batch in log.read(target.changelog, start, end):
            pending.append(batch.records if target.writes_of is None else target.writes_of(batch.records))
            rows += len(batch)
            size += batch.records.nbytes
            position = batch.next_offset
            if rows >= BATCH_ROWS or size >= most:
                yield pending, position, size
                pending, rows, size = [], 0, 0
    except OffsetOutOfRangeError as error:
        raise ChangelogGapError(
            f"The changelog {target.changelog} has no records from offset {start} to {end}, which store "
            f"{target.store!r} needs to get to version {target.position.version} ({error}). Likely cause: "
            "records were deleted from the changelog, or the log was restored from a backup. Remedy: restore "
            "the log from a backup that holds them."
        ) from error
    if pending:
        yield pending, position, size


@contextmanager
def reported(
    target: Target, start: Offset, listener: RestoreListener, snapshot: Version | None = None
) -> Iterator[Report]:
    """Tell a listener how a restore goes, for the length of a `with` block."""
    began = time.monotonic()
    position, read = start, 0

    def progress() -> Progress:
        done, total = position - start, target.position.offset - start
        rate = done / max(time.monotonic() - began, 1e-9)
        left = (total - done) / rate if rate else None
        partition = target.changelog.partition
        return Progress(target.store, partition, done, total, read, rate, left, snapshot)

    def report(now: Offset, size: int) -> None:
        nonlocal position, read
        position = now
        read += size
        listener.on_batch(progress())

    listener.on_start(progress())
    try:
        yield report
    except BaseException:
        listener.on_suspended(progress())
        raise
    listener.on_end(progress())


def apply_local_changes(
    backend: Backend, changes: Iterable[list[Entry]], wanted: StorePosition, *, segmented: bool
) -> None:
    """Apply writes that come from elsewhere than the changelog, and arrive at a version."""
    merged: dict[bytes, bytes | None] = {}
    for entries in changes:
        merged.update(entries)
    apply_changes(backend, sorted(merged.items()), wanted.encoded(), segmented=segmented)
