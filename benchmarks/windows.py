"""Windows on Spark, against what Spark offers itself; and what it costs that many windows are open.

Both sides get the same records in batches of the same size, as in :mod:`.throughput`: 100,000 keys, windows
of a second, of which each key has 100 that still take records. Few records of a key fall into one second, so
there are nearly as many results as records. Time goes on with the records, out of order by up to a second.
Sessions are those of keys that are active for a while: some records close together, then a pause.

Open windows: one task with a window store, without Spark. An epoch touches 1,000 of them.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, functions

from benchmarks.applications import (
    PARTITIONS,
    append,
    application,
    run_to_the_end,
    spark_context,
    workplace,
)
from benchmarks.figures import Figure, Scale, at_least, at_most, measured, ratio
from benchmarks.one_task import APPLICATION, TASK
from benchmarks.spark_native import native_session, seconds_per_batch, write_files
from benchmarks.timing import seconds
from millstream import SessionWindows, StreamsBuilder, TimeWindows, Topology, serdes, timestamp
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.log.errors import TopicExistsError
from millstream.state.backends import Backend
from millstream.state.changelog.rows import changelog_rows, changelog_topic
from millstream.state.local.directory import open_state_directory
from millstream.state.local.task_stores import TaskVersion, open_task_stores
from millstream.state.specs import StoreBuilder, StoreKind, timestamped_window
from millstream.state.stores.factory import open_store
from millstream.state.stores.store import changes_of
from millstream.types import Offset, Partition, Version

__all__ = ["windows"]

_SECOND = 1_000
_LIVE = 100
"""So many windows of a key take records at a time."""
_GAP_MS = 500
_SESSION_RECORDS = 5
_TURNS = 2
_STORE = "windows"
_TOUCHED = 1_000
_GOALS = {"tumbling count, row tier": 2, "tumbling count, column tier": 4, "session count": 2}


@dataclass(frozen=True, slots=True)
class _Work:
    """Records for several batches."""

    name: str
    batches: list[pa.RecordBatch]

    @property
    def records(self) -> int:
        """How many there are in a batch."""
        return self.batches[0].num_rows


def windows(scale: Scale) -> list[Figure]:
    """Tumbling and session windows, and epochs with few and many open windows."""
    return [*_throughput(scale), *_open_windows(scale)]


# Against Spark.


def _throughput(scale: Scale) -> list[Figure]:
    per_batch, keys, batches = scale.of(1_000_000, 100_000), scale.of(100_000, 10_000), scale.of(4, 3)
    tumbling = _Work("tumbling", [_in_order(per_batch, keys, batches, n) for n in range(batches)])
    sessions = _Work("sessions", [_active(per_batch, keys, n) for n in range(batches)])
    ours: dict[str, list[float]] = {}
    native: dict[str, list[float]] = {}
    with workplace() as root:
        for number in range(scale.of(_TURNS, 1)):
            folder = root / str(number)
            folder.mkdir()
            with spark_context(folder) as spark:
                for name, work, build in (
                    ("tumbling count, row tier", tumbling, _tumbling),
                    ("tumbling count, column tier", tumbling, _tumbling_in_columns),
                    ("session count", sessions, _sessions),
                ):
                    ours.setdefault(name, []).extend(_ours(folder, spark, work, name, build))
            for name, runs in _native(folder, tumbling, sessions).items():
                native.setdefault(name, []).extend(runs)
    found = [_best(f"{name}: Spark native", runs) for name, runs in native.items()]
    by_name = dict(zip(native, found, strict=True))
    for name, runs in ours.items():
        figure = _best(f"{name}: Millstream", runs)
        other = by_name["session count" if "session" in name else "tumbling count"]
        found += [figure, at_least(ratio(f"{name}: times Spark native", figure, other), _GOALS[name])]
    return found


def _best(name: str, runs: list[float]) -> Figure:
    """The best batch counts: whatever else runs there only slows them."""
    group = "session count" if "session" in name else "tumbling count"
    return Figure(name, max(runs), "records/s", runs, group=f"{group}: records per second")


def _in_order(count: int, keys: int, batches: int, number: int) -> pa.RecordBatch:
    """All batches together cover twice as many windows as are open at a time."""
    chance = random.Random(number)
    data = [b"key-%08d" % chance.randrange(keys) for _ in range(count)]
    span = 2 * _LIVE * _SECOND // batches
    times = [
        _SECOND + number * span + place * span // count - chance.randrange(_SECOND) for place in range(count)
    ]
    return record_batch(data, data, times)


def _active(count: int, keys: int, number: int) -> pa.RecordBatch:
    """Each key has a session in every batch: a few records, closer together than the gap."""
    chance = random.Random(number)
    rows: list[tuple[int, bytes]] = []
    span = count * 20 * _GAP_MS // (keys * _SESSION_RECORDS)
    while len(rows) < count:
        key, begin = b"key-%08d" % chance.randrange(keys), number * span + chance.randrange(span)
        rows += [(begin + place * _GAP_MS // 2, key) for place in range(_SESSION_RECORDS)]
    rows = sorted(rows[:count])
    data = [key for _, key in rows]
    return record_batch(data, data, [time for time, _ in rows])


def _tumbling() -> Topology:
    builder = StreamsBuilder()
    windowed = (
        builder.stream("in", key=serdes.string, value=serdes.string).group_by_key().windowed_by(_WINDOWS)
    )
    windowed.count(store="counts").to_stream().to("out", value=serdes.int64)
    return builder.build()


def _tumbling_in_columns() -> Topology:
    builder = StreamsBuilder()
    rows = builder.stream("in", key=serdes.string, value=serdes.string).filter(timestamp >= 0)
    counts = rows.group_by_key().windowed_by(_WINDOWS).count(store="counts")
    counts.to_stream().to("out", value=serdes.int64)
    return builder.build()


def _sessions() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    counts = grouped.windowed_by(SessionWindows(_GAP_MS, grace=_LIVE * _SECOND)).count(store="counts")
    counts.to_stream().to("out", value=serdes.int64)
    return builder.build()


_WINDOWS = TimeWindows(_SECOND, grace=(_LIVE - 1) * _SECOND)


def _ours(
    folder: Path, spark: SparkContext, work: _Work, name: str, build: Callable[[], Topology]
) -> list[float]:
    place = folder / name.replace(" ", "-").replace(",", "")
    log = FileLog(place / "log")
    for batch in work.batches:
        append(log, "in", batch)
    per_partition = int(1.02 * work.records / PARTITIONS)
    with application(build(), place, spark=spark, max_records=per_partition) as app:
        results = run_to_the_end(app)
    _check(log, work)
    # The last epoch is a small rest: partitions are not exactly equal.
    return [result.records / result.seconds for result in results[1:] if result.records > work.records // 2]


def _check(log: FileLog, work: _Work) -> None:
    """The last counts of all windows that were not merged into others add up to all records."""
    last: dict[bytes, int] = {}
    for number in range(PARTITIONS):
        for batch in log.read(TopicPartition("out", Partition(number)), Offset(0)):
            columns = (batch.records.column(0).to_pylist(), batch.records.column(1).to_pylist())
            last |= {key: int.from_bytes(count or b"") for key, count in zip(*columns, strict=True)}
    expected = sum(batch.num_rows for batch in work.batches)
    if sum(last.values()) != expected:
        raise RuntimeError(f"{sum(last.values()):,} were counted, and not {expected:,}")


def _native(folder: Path, tumbling: _Work, sessions: _Work) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    with native_session(folder) as session:
        for name, work, query in (
            ("tumbling count", tumbling, _native_tumbling),
            ("session count", sessions, _native_sessions),
        ):
            files = folder / f"{work.name}-files"
            write_files(work.batches, files)
            checkpoint, output = folder / f"{work.name}-checkpoint", folder / f"{work.name}-output"
            mode = "update" if work is tumbling else "append"
            taken = seconds_per_batch(session, files, query, checkpoint, output, mode=mode)[1:]
            found[name] = [work.records / one for one in taken]
    return found


def _timed(rows: DataFrame) -> DataFrame:
    event = functions.timestamp_millis("timestamp").alias("event")
    return rows.select("key", event).withWatermark("event", f"{_LIVE - 1} seconds")


def _native_tumbling(rows: DataFrame) -> DataFrame:
    return _timed(rows).groupBy(functions.window("event", "1 second"), "key").count()


def _native_sessions(rows: DataFrame) -> DataFrame:
    # Spark sends sessions on close only: its update mode does not take session windows.
    return _timed(rows).groupBy(functions.session_window("event", f"{_GAP_MS} milliseconds"), "key").count()


# Open windows.


@dataclass(slots=True)
class _OneTask:
    """A task with one window store, a window per key, all of them open."""

    folder: Path
    version: int = 0
    position: int = 0
    spec: StoreBuilder = field(
        default_factory=lambda: timestamped_window(
            _STORE, window_size_ms=_SECOND, retention_ms=1_000 * _SECOND, key=serdes.int64, value=serdes.int64
        )
    )

    def opened(self) -> AbstractContextManager[dict[str, Backend]]:
        """The store at the last version."""
        wanted = TaskVersion(
            APPLICATION, Partition(0), Version(self.version), {_STORE: Offset(self.position)}
        )
        directory = open_state_directory(self.folder / "state").task(APPLICATION, TASK)
        return open_task_stores(
            directory,
            {_STORE: self.spec},
            wanted,
            self._log(),
            default_backend="lmdb",
            local_changes=lambda _store, _after, _to: None,
        )

    def epoch(self, keys: pl.Series, starts: pl.Series) -> None:
        """Read windows, and write each with one record more."""
        with self.opened() as stores:
            store: Any = open_store(self.spec, stores[_STORE], serdes.int64, serdes.int64)
            names = serdes_bytes(keys)
            found = store.load_windows(names, starts)
            data = found.fill_null(bytes(16))
            store.save_windows(names, starts, data, starts, pl.int_range(len(keys), eager=True))
            entries = changes_of(store)
        log, topic = self._log(), changelog_topic(APPLICATION, _STORE)
        with suppress(TopicExistsError):
            log.create_topic(topic)
        rows = changelog_rows(entries, StoreKind.TIMESTAMPED_WINDOW, 0)
        self.position += rows.num_rows
        self.version += 1
        log.append(TopicPartition(topic, Partition(0)), rows)

    def _log(self) -> FileLog:
        return FileLog(self.folder / "log")


def serdes_bytes(keys: pl.Series) -> pl.Series:
    """Numbers as `serdes.int64` writes them."""
    from millstream.serdes.columns import codec_of  # noqa: PLC0415

    codec = codec_of(serdes.int64)
    assert codec is not None
    return codec.encode(keys)


def _open_windows(scale: Scale) -> list[Figure]:
    few, many = scale.of(100_000, 10_000), scale.of(10_000_000, 100_000)
    figures = [_epochs(number, scale) for number in (few, many)]
    times = ratio(f"an epoch that touches 1,000 of {many:,} open windows, to one of {few:,}", *figures[::-1])
    return [*figures, at_most(times, 2)]


def _epochs(number: int, scale: Scale) -> Figure:
    with workplace() as folder:
        task, at_once = _OneTask(folder), 500_000
        per_key = _LIVE
        for first in range(0, number // per_key, at_once // per_key):
            last = min(number // per_key, first + at_once // per_key)
            some = pl.int_range(first, last, eager=True)
            windows_of = pl.DataFrame({"key": some}).join(
                pl.DataFrame({"start": pl.int_range(0, per_key * _SECOND, _SECOND, eager=True)}), how="cross"
            )
            task.epoch(windows_of["key"], windows_of["start"])
        chance = random.Random(1)
        taken: list[float] = []
        for _ in range(scale.of(20, 5)):
            touched = pl.Series(sorted(chance.sample(range(number), _TOUCHED)))
            keys, starts = touched // per_key, touched % per_key * _SECOND
            gc.collect()
            taken.append(seconds(lambda: task.epoch(keys, starts)))  # noqa: B023 - called here
    return measured(
        f"an epoch that touches 1,000 of {number:,} open windows", taken[2:], group="open windows"
    )
