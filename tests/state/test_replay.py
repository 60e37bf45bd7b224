"""A changelog replayed into an empty store gives the same bytes as the store: every kind, every backend."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.executor import InProcessExecutor

from millstream import (
    Buffered,
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    Topology,
    ValueAndTimestamp,
    Window,
    Windowed,
    serdes,
    stores,
)
from millstream.commit.manifest import Manifest
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.state.backends import NAMES, Row, supplier
from millstream.state.changelog.follow import StorePosition, Target, follow, position_of
from millstream.state.changelog.rows import changelog_topic
from millstream.state.specs import StoreBuilder, StoreKind
from millstream.types import Partition, Version

PARTITIONS = [Partition(0), Partition(1)]
EPOCHS = 3
VALUES = [None, "", "x", "y" * 100]
KEYS = ["", "\0", "a", "ab", "river", "ä", "long" * 300]

Write = Callable[[Any, str, str | None, int], object]


def put_timestamped(store: Any, key: str, value: str | None, timestamp: int) -> None:
    store.put(key, None if value is None else ValueAndTimestamp(value, timestamp))


def put_timestamped_window(store: Any, key: str, value: str | None, timestamp: int) -> None:
    store.put(key, None if value is None else ValueAndTimestamp(value, timestamp), timestamp)


def put_session(store: Any, key: str, value: str | None, timestamp: int) -> None:
    store.put(Windowed(key, Window(timestamp // 2, timestamp)), value)


def buffer(store: Any, key: str, value: str | None, timestamp: int) -> None:
    store.put(Buffered(key, value, timestamp, timestamp))
    store.evict_until(timestamp - 200)


TIMES: dict[str, Any] = {"retention_ms": 200, "segment_interval_ms": 60}
WINDOWS: dict[str, Any] = {"window_size_ms": 10, **TIMES}
SPECS: list[tuple[StoreBuilder, Write]] = [
    (stores.key_value("plain"), lambda store, key, value, _: store.put(key, value)),
    (stores.timestamped_key_value("timestamped"), put_timestamped),
    (
        stores.versioned_key_value("versioned", history_retention_ms=200, segment_interval_ms=60),
        lambda store, key, value, time: store.put(key, value, time),
    ),
    *(
        (
            stores.window(name, retain_duplicates=duplicates, time_ordered=ordered, **WINDOWS),
            lambda store, key, value, time: store.put(key, value, time),
        )
        for name, duplicates, ordered in [
            ("windows", False, False),
            ("windows-duplicates", True, False),
            ("windows-time", False, True),
            ("windows-time-duplicates", True, True),
        ]
    ),
    (stores.timestamped_window("timestamped-windows", **WINDOWS), put_timestamped_window),
    (
        stores.timestamped_window("timestamped-windows-time", time_ordered=True, **WINDOWS),
        put_timestamped_window,
    ),
    (stores.session("sessions", **TIMES), put_session),
    (stores.session("sessions-time", time_ordered=True, **TIMES), put_session),
    (stores.list_value("lists"), lambda store, key, value, _: store.put(key, value)),
    (stores.time_ordered_buffer("buffer"), buffer),
    (stores.time_ordered_buffer("buffer-duplicates", retain_duplicates=True), buffer),
]
"""A store of every shape, and how it is written to."""
SEGMENTED = {spec.name for spec, _ in SPECS if spec.is_segmented}


class WriteToAll(Processor[str, str, str, str]):
    """Writes every record to a store of each kind."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.stores = [(context.state_store(spec.name), write) for spec, write in SPECS]

    def process(self, record: Record[str, str]) -> None:
        for store, write in self.stores:
            write(store, record.key, record.value, record.timestamp)


def topology() -> Topology:
    builder = StreamsBuilder()
    for spec, _ in SPECS:
        builder.add_state_store(replace(spec, key=serdes.string, value=serdes.string))
    names = [spec.name for spec, _ in SPECS]
    builder.stream("writes", key=serdes.string, value=serdes.string).process(WriteToAll, *names)
    return builder.build()


def append_writes(log: FileLog, rng: random.Random, start: int) -> None:
    """Some writes and deletes for each partition; none for one of them, now and then. Time goes on."""
    for partition in PARTITIONS:
        rows = [
            (rng.choice(KEYS), rng.choice([None, "", "x", "y" * 100]))
            for _ in range(rng.choice([0, 1, 4, 8]))
        ]
        records = record_batch(
            [key.encode() for key, _ in rows],
            [None if value is None else value.encode() for _, value in rows],
            [start + rng.randint(0, 400) for _ in rows],
        )
        log.append(TopicPartition("writes", partition), records)


def rows_on_disk(state: Path, task: str, backend: str, store: str) -> tuple[StorePosition, list[Row]]:
    """What a local store holds, as it is."""
    with supplier(backend).open(state / "app" / task / backend / store) as opened:
        return position_of(opened, store), list(opened.scan())


def replayed(log: FileLog, target: Target, backend: str, path: Path) -> tuple[StorePosition, list[Row]]:
    """What an empty store holds after it has followed the changelog."""
    with supplier(backend).open(path, segment_bytes=8 if target.segmented else 0) as opened:
        follow(opened, replace(target, scratch=path.with_name(path.name + "-scratch")), log)
        return position_of(opened, target.store), list(opened.scan())


def folded(log: FileLog, target: Target) -> list[Row]:
    """What the changelog says, read with a dictionary."""
    rows: dict[bytes | None, bytes | None] = {}
    for batch in log.read(target.changelog, log.earliest(target.changelog), target.position.offset):
        rows.update(zip(batch.keys(), batch.values(), strict=True))
    first_live = 0
    if target.segmented and (note := rows.get(b"")) is not None:
        (first_live,) = struct.unpack_from(">q", note, 1 + 8 + 8)
    return sorted(
        (key, value)
        for key, value in rows.items()
        if key is not None and value is not None
        if not (target.segmented and key and int.from_bytes(key[:8], "big") < first_live)
    )


def targets(manifest: Manifest) -> list[tuple[str, Target]]:
    """Every store of every task, and what it must hold according to a manifest."""
    return [
        (
            task,
            Target(
                store,
                TopicPartition(changelog_topic("app", store), Partition(int(task.split("_")[1]))),
                StorePosition(Version(entry.version), position, entry.digest),
                store in SEGMENTED,
            ),
        )
        for task, entry in manifest.tasks.items()
        for store, position in entry.changelogs.items()
    ]


def test_every_kind_of_store_is_tried() -> None:
    assert {spec.kind for spec, _ in SPECS} == set(StoreKind)


@pytest.mark.parametrize("order", ["of the log", "of the keys"])
def test_a_changelog_replayed_into_an_empty_store_gives_its_bytes_at_every_version(
    tmp_path: Path, backend: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if order == "of the keys":
        monkeypatch.setattr("millstream.state.changelog.follow.SORTED_ROWS", 1)
        monkeypatch.setattr("millstream.state.changelog.follow.BATCH_ROWS", 3)
        monkeypatch.setattr("millstream.state.changelog.external_sort._BLOCK_ROWS", 2)
    seed = os.environ.get("MILLSTREAM_SEED") or str(random.SystemRandom().randrange(2**32))
    print(f"replay with: MILLSTREAM_SEED={seed} pytest tests/state/test_replay.py")
    rng = random.Random(seed)
    tmp_path.chmod(0o700)
    state = tmp_path / "state"
    log = FileLog(tmp_path / "log")
    log.create_topic("writes", TopicConfig(partitions=len(PARTITIONS)))
    compared = 0
    with InProcessExecutor(
        topology(), application_id="app", log_root=log.root, state_dir=state, backend=backend
    ) as executor:
        for epoch in range(EPOCHS):
            append_writes(log, rng, 150 * epoch)
            manifest = executor.run_epoch()
            for task, target in targets(manifest) if manifest is not None else ():
                expected = rows_on_disk(state, task, backend, target.store)
                assert expected == (target.position, folded(log, target))
                for other in NAMES:
                    path = tmp_path / "replayed" / f"{epoch}-{task}-{other}-{target.store}"
                    assert expected == replayed(log, target, other, path), (task, target, other)
                compared += bool(expected[1])
    assert compared >= EPOCHS
