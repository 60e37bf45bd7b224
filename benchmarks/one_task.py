"""One task with one store in its changelog: what the cases about state measure with, without Spark.

Keys are 16 random bytes, values 100 bytes of which half compress. An epoch begins at the log's Arrow rows. It
is what a task does with a store: open it at the last version, which applies the segment of the epoch before,
read its distinct keys at once, and write the new segment durably.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millstream.log import FileLog, TopicPartition, record_batch
from millstream.log.errors import TopicExistsError
from millstream.state.backends import Backend, BackendSupplier, Row, supplier
from millstream.state.changelog.rows import changelog_rows, changelog_topic
from millstream.state.local.directory import TaskDirectory, open_state_directory
from millstream.state.local.task_stores import NewerStores, TaskVersion, open_task_stores
from millstream.state.snapshots.manifest import SnapshotPlace
from millstream.state.snapshots.storage import SnapshotStorage, open_storage
from millstream.state.snapshots.taking import Outcome, SnapshotSettings, take_snapshots
from millstream.state.specs import StoreKind, key_value
from millstream.state.stores.overlay import Entry, Overlay
from millstream.state.stores.written_columns import WrittenColumns
from millstream.types import Offset, Partition, Version

__all__ = ["KEY_BYTES", "VALUE_BYTES", "Drawn", "Keys", "OneTask", "drawn", "values"]

APPLICATION = "bench"
STORE = "counts"
TASK = "0_0"
KEY_BYTES = 16
VALUE_BYTES = 100
ROWS_PER_APPEND = 100_000
_FAR = 1_000_000
"""Versions only have to grow: another process's are passed by."""
_PADDING = b"m" * (VALUE_BYTES // 2)

Drawn: TypeAlias = tuple[pa.Array, pa.Array]
"""The keys of an epoch's records, and the value that each of them writes, as the log has them."""


class Keys:
    """So many random keys, as compact as they can be: at ten millions a list of them would be a gigabyte."""

    def __init__(self, count: int) -> None:
        self.count = count
        chance = random.Random(1)
        parts = [
            chance.randbytes(KEY_BYTES * min(ROWS_PER_APPEND, count - at))
            for at in range(0, count, ROWS_PER_APPEND)
        ]
        self._data = b"".join(parts)

    def sample(self, count: int, chance: random.Random) -> list[bytes]:
        """Some of them, each at most once, in no order."""
        return [self[number] for number in chance.sample(range(self.count), min(count, self.count))]

    def __getitem__(self, number: int) -> bytes:
        return self._data[number * KEY_BYTES : (number + 1) * KEY_BYTES]

    def batches(self) -> Iterator[pa.Array]:
        """All of them, in columns."""
        step = KEY_BYTES * ROWS_PER_APPEND
        for at in range(0, len(self._data), step):
            yield _column(self._data[at : at + step], KEY_BYTES)


def values(count: int, chance: random.Random) -> list[bytes]:
    """New values."""
    half = VALUE_BYTES // 2
    data = chance.randbytes(half * count)
    return [data[at : at + half] + _PADDING for at in range(0, len(data), half)]


def drawn(keys: Keys, count: int, chance: random.Random, times: int = 1) -> Drawn:
    """The records of an epoch: so many distinct keys, each so many times, in no order."""
    records = keys.sample(count, chance) * times
    chance.shuffle(records)
    return pa.array(records, pa.binary()), pa.array(values(len(records), chance), pa.binary())


def _column(data: bytes, width: int) -> pa.Array:
    fixed = pa.Array.from_buffers(pa.binary(width), len(data) // width, [None, pa.py_buffer(data)])
    return fixed.cast(pa.binary())


@dataclass(slots=True)
class OneTask:
    """The task. Several, on different backends, may share a log, one after the other."""

    folder: Path
    backend: str
    version: int = 0
    position: int = 0
    maker: BackendSupplier | None = None
    """Opens its store; None: with the settings that the backend has by itself."""
    _log: FileLog | None = field(default=None, repr=False)

    @property
    def log(self) -> FileLog:
        """Where its changelog is."""
        if self._log is None:
            self._log = FileLog(self.folder / "log")
        return self._log

    @property
    def changelog(self) -> TopicPartition:
        """Its changelog."""
        return TopicPartition(changelog_topic(APPLICATION, STORE), Partition(0))

    @property
    def directory(self) -> TaskDirectory:
        """Where its store is."""
        return open_state_directory(self.folder / f"state-{self.backend}").task(APPLICATION, TASK)

    @property
    def store_path(self) -> Path:
        """The folder of its store."""
        return self.directory.store_path(self.backend, STORE)

    @property
    def storage(self) -> SnapshotStorage:
        """Where its snapshots are."""
        return open_storage(str(self.folder / f"snapshots-{self.backend}"))

    def fill(self, keys: Keys) -> None:
        """Commit a value for each key; the store itself is still empty."""
        try:
            self.log.create_topic(self.changelog.topic)
        except TopicExistsError:
            self._committed()
            return
        chance = random.Random(2)
        for column in keys.batches():
            half = _column(chance.randbytes(VALUE_BYTES // 2 * len(column)), VALUE_BYTES // 2)
            padded = pc.binary_join_element_wise(half, pa.scalar(_PADDING), pa.scalar(b""))
            rows = record_batch(column, padded, pa.nulls(len(column), pa.int64()).fill_null(0))
            self.log.append(self.changelog, rows)
        self._committed()

    def opened(
        self, storage: SnapshotStorage | None = None, newer: NewerStores = NewerStores.REFUSE
    ) -> AbstractContextManager[dict[str, Backend]]:
        """The store at the last committed version."""
        wanted = TaskVersion(APPLICATION, Partition(0), Version(self.version), {STORE: Offset(self.position)})
        return open_task_stores(
            self.directory,
            {STORE: key_value(STORE)},
            wanted,
            self.log,
            default_backend=self.maker or self.backend,
            local_changes=lambda _store, _after, _to: None,
            snapshots=storage,
            newer=newer,
        )

    def epoch(self, keys: pa.Array, new: pa.Array) -> None:
        """Read the distinct keys of an epoch's records, and write the last value of each, as tables do."""
        with self.opened() as stores:
            overlay = Overlay(stores[STORE])
            records = pl.DataFrame({"key": keys}).with_row_index("row")
            last = records.group_by("key").agg(pl.col("row").last()).sort("key")
            overlay.get_ascending(last["key"].to_list())
            columns = (last["key"].to_arrow(), pl.Series(new).gather(last["row"]).to_arrow())
            overlay.put_columns(WrittenColumns(*columns, pa.nulls(len(last), pa.int64()).fill_null(0)))
            entries = overlay.sorted_entries()
        self.seal(entries)

    def seal(self, entries: Sequence[Entry]) -> None:
        """Write a segment durably, and commit it."""
        self.log.append(self.changelog, changelog_rows(entries, StoreKind.KEY_VALUE, 0))
        self._committed()

    def write(self, keys: list[bytes]) -> None:
        """Commit a new value for each key."""
        rows: list[Row] = sorted(zip(keys, values(len(keys), random.Random(self.version)), strict=True))
        self.seal(list(rows))

    def raw(self) -> Backend:
        """The backend itself, without task, lock and version."""
        return supplier(self.backend).open(self.store_path)

    def take(self) -> Outcome:
        """Take a snapshot."""
        place = SnapshotPlace(APPLICATION, TASK, STORE, self.backend)
        settings = SnapshotSettings(self.storage, {STORE: place}, 1, lambda _version, _sealed: True)
        (outcome,) = take_snapshots(self.directory, self.opened(newer=NewerStores.TAKE), settings)
        if outcome.problem is not None:
            raise RuntimeError(outcome.problem)
        return outcome

    def restore(self, storage: SnapshotStorage | None) -> None:
        """Lose the local state, and open the store again."""
        shutil.rmtree(self.directory.path, ignore_errors=True)
        with self.opened(storage):
            pass

    def copy_files(self) -> None:
        """Copy the snapshot's content to the disk of the state, durably."""
        target = self.folder / "copied"
        shutil.copytree(self.folder / f"snapshots-{self.backend}", target)
        for path in target.rglob("*"):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        shutil.rmtree(target)

    def caught_up(self) -> None:
        """Learn what another process has committed."""
        self._log = None
        ahead = int(self.log.latest(self.changelog))
        if ahead > self.position:
            self.position = ahead
            self.version += _FAR

    def _committed(self) -> None:
        self.position = int(self.log.latest(self.changelog))
        self.version += 1
