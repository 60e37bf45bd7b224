"""The row tier against a plain loop: the same functions on the same input bytes, to the same output bytes.

Both start at the log's Arrow rows and end at Arrow rows as the log takes them, in one process on one core.
The loop is what one would write by hand: decode, call, encode, row by row. What it does not do: order,
handlers, headers, state that survives.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa

from benchmarks.figures import Figure, Scale, at_most, measured, ratio
from benchmarks.timing import alternately
from millstream import Store, StreamsBuilder, StreamsConfig, Topology, serdes
from millstream.log.blocks import record_batch
from millstream.state.backends.memory import MemoryBackend
from millstream.state.stores.factory import open_store
from millstream.task.metrics import Metrics
from millstream.task.records import RawBatch, records_of_batches
from millstream.task.routing import by_partition
from millstream.task.serde_book import SerdeBook
from millstream.task.task import Task, TaskEnvironment

__all__ = ["row_tier"]

KEYS = 20_000


def row_tier(scale: Scale) -> list[Figure]:
    """Five stateless operators, and count by key with caching on and off."""
    rows = _input(scale.of(1_000_000, 200_000))
    rounds = scale.of(5, 3)
    found: list[Figure] = []
    for name, loop, topology, goal in (
        ("five stateless operators", _loop_stateless, _stateless(), 1.6),
        ("count, caching on", _loop_count_last, _count(caching=True), 1.3),
        ("count, caching off", _loop_count_each, _count(caching=False), None),
    ):
        _check_same(loop(rows), _task(topology, rows))
        taken = alternately({"loop": lambda: loop(rows), "task": lambda: _task(topology, rows)}, rounds)  # noqa: B023 - called here
        plain = measured(f"{name}: plain loop", taken["loop"], group=name)
        task = measured(f"{name}: row tier", taken["task"], group=name)
        times = ratio(f"{name}: row tier to plain loop", task, plain)
        found += [plain, task, times if goal is None else at_most(times, goal)]
    return found


def _input(count: int) -> pa.RecordBatch:
    chance = random.Random(7)
    keys = [b"key-%06d" % chance.randrange(KEYS) for _ in range(count)]
    values = [b"%d:%s" % (chance.randrange(1000), b"river") for _ in range(count)]
    return record_batch(keys, values, range(count))


# The user's functions: the loop and the topology call the same ones.


def parse(value: str) -> tuple[int, str]:
    """Split a line."""
    number, word = value.split(":")
    return int(number), word


def is_small(_key: str, value: tuple[int, str]) -> bool:
    """Nine in ten."""
    return value[0] < 900  # noqa: PLR2004


def double(value: tuple[int, str]) -> tuple[int, str]:
    """Twice the number."""
    return value[0] * 2, value[1]


def by_word(key: str, value: tuple[int, str]) -> tuple[str, int]:
    """Another key."""
    return f"{value[1]}/{key}", value[0]


def is_even(_key: str, value: int) -> bool:
    """All of them, by now."""
    return value % 2 == 0


def _stateless() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=serdes.string, value=serdes.string)
        .map_values(parse)
        .filter(is_small)
        .map_values(double)
        .map(by_word)
        .filter(is_even)
        .to("out", key=serdes.string, value=serdes.int64)
    )
    return builder.build()


def _count(*, caching: bool) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=serdes.string)
        .group_by_key()
        .count(store=Store("counts", caching=caching))
        .to_stream()
        .to("out", key=serdes.string, value=serdes.int64)
    )
    return builder.build()


# The loops.

_INT64 = struct.Struct(">q")


def _loop_stateless(rows: pa.RecordBatch) -> pa.RecordBatch:
    keys: list[bytes] = []
    values: list[bytes] = []
    timestamps: list[int] = []
    for key_bytes, value_bytes, timestamp in _python_rows(rows):
        key = key_bytes.decode()
        parsed = parse(value_bytes.decode())
        if not is_small(key, parsed):
            continue
        new_key, number = by_word(key, double(parsed))
        if not is_even(new_key, number):
            continue
        keys.append(new_key.encode())
        values.append(_INT64.pack(number))
        timestamps.append(timestamp)
    return record_batch(keys, values, timestamps)


def _loop_count_last(rows: pa.RecordBatch) -> pa.RecordBatch:
    counts: dict[str, int] = {}
    times: dict[str, int] = {}
    for key_bytes, _, timestamp in _python_rows(rows):
        key = key_bytes.decode()
        # Each key at the place of its last update, as a cached table sends them.
        counts[key] = counts.pop(key, 0) + 1
        times[key] = max(timestamp, times.get(key, 0))
    return record_batch(
        [key.encode() for key in counts],
        [_INT64.pack(count) for count in counts.values()],
        [times[key] for key in counts],
    )


def _loop_count_each(rows: pa.RecordBatch) -> pa.RecordBatch:
    counts: dict[str, int] = {}
    times: dict[str, int] = {}
    keys: list[bytes] = []
    values: list[bytes] = []
    timestamps: list[int] = []
    for key_bytes, _, timestamp in _python_rows(rows):
        key = key_bytes.decode()
        count = counts[key] = counts.get(key, 0) + 1
        time = times[key] = max(timestamp, times.get(key, 0))
        keys.append(key.encode())
        values.append(_INT64.pack(count))
        timestamps.append(time)
    return record_batch(keys, values, timestamps)


def _python_rows(rows: pa.RecordBatch) -> zip[tuple[Any, Any, Any]]:
    return zip(*(rows.column(number).to_pylist() for number in range(3)), strict=True)


# The row tier: the task that an epoch runs, between a batch of the log and a batch for the log.


def _task(topology: Topology, rows: pa.RecordBatch) -> pa.RecordBatch:
    sub = topology.plan().subtopologies[0]
    book = SerdeBook()
    environment = TaskEnvironment(
        application_id="bench",
        config=StreamsConfig(),
        book=book,
        metrics=Metrics(),
        stores={
            name: open_store(
                spec,
                MemoryBackend(),
                book.bound(name, "key", spec.key),
                book.bound(name, "value", spec.value),
            )
            for name, spec in sub.stores.items()
        },
        global_stores={},
        clock=lambda: 0,
        partitions_of=lambda _topic: 1,
        is_internal=lambda _topic: False,
    )
    task = Task(sub, 0, environment)
    task.process([RawBatch.of("in", 0, 0, rows)])
    sealed = task.seal()
    task.close()
    parts = [part for output in sealed.outputs for _, part in by_partition(output, 1, 0)]
    records = records_of_batches(parts)
    assert isinstance(records, pa.RecordBatch)  # they are not few
    return records


def _check_same(expected: pa.RecordBatch, found: pa.RecordBatch) -> None:
    if not expected.equals(found):
        raise AssertionError("the loop and the row tier do not give the same bytes")
