"""An application that runs for thousands of epochs, and is killed now and then: what each of its lives does.

Its state is some megabytes, none of which can be compressed: the latest value of each key, and windows that
expire by segments all through the run. Now and then it takes snapshots.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.commit.long_life_model import KEYS, RETENTION_MS, SEGMENT_MS, WINDOW_MS, arrival
from tests.simulation.executor import InProcessExecutor
from tests.simulation.fault_points import EPOCH_POINTS, MAINTENANCE_POINTS, RESTORE_POINTS, SNAPSHOT_POINTS
from tests.state.small_app import FastFiles

from millstream import Processor, Record, StreamsBuilder, StreamsConfig, Topology, failpoints, serdes, stores
from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.epoch_job import PlannedTask
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.maintenance.snapshots import snapshot_task
from millstream.state.backends import memory
from millstream.state.changelog.follow import NO_LISTENER, RestoreListener
from millstream.types import Partition

APPLICATION = "app"
STORES = ("latest", "windows")
INPUT, OUTPUT = (TopicPartition(topic, Partition(0)) for topic in ("in", "out"))
CHANGELOGS = [TopicPartition(f"app-{store}-changelog", Partition(0)) for store in STORES]
TASK = PlannedTask("0_0", 0, INPUT.partition, 0)
BATCH = 30
TEND_EVERY = 40
SNAPSHOT_EVERY = 90
RETAINED = 20
RETAINED_SNAPSHOTS = 2
RARE_POINTS = (*MAINTENANCE_POINTS, *SNAPSHOT_POINTS, *RESTORE_POINTS)
KILL_POINTS = (*EPOCH_POINTS, *RARE_POINTS)
HOUR_MS = 3_600_000


class Keep(Processor[bytes, bytes, bytes, bytes]):
    """Keeps the latest value of each key, and those of each window."""

    def init(self, context: Any) -> None:
        super().init(context)
        self._latest = context.state_store("latest")
        self._windows = context.state_store("windows")

    def process(self, record: Record[bytes, bytes]) -> None:
        start = record.timestamp - record.timestamp % WINDOW_MS
        self._latest.put(record.key, record.value)
        self._windows.put(record.key, record.value, window_start=start)
        self.context.forward(record.with_value(record.value[:8] if record.value else b"-"))


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("latest", key=serdes.bytes, value=serdes.bytes))
    builder.add_state_store(
        stores.window(
            "windows",
            window_size_ms=WINDOW_MS,
            retention_ms=RETENTION_MS,
            segment_interval_ms=SEGMENT_MS,
            key=serdes.bytes,
            value=serdes.bytes,
        )
    )
    builder.stream("in", key=serdes.bytes, value=serdes.bytes).process(Keep, *STORES).to(
        "out", key=serdes.bytes, value=serdes.bytes
    )
    return builder.build()


@dataclass(frozen=True)
class Seen:
    """What the application holds on to, after it has tidied up."""

    life: int
    epoch: int
    files: int
    disk: int
    """Bytes on disk of local stores, changelogs, manifests, leases and sealed files: all but the topics that
    a user reads and writes, which have a retention, and the snapshots."""
    snapshots: int
    """Bytes on disk of the snapshots."""
    records: int
    """How much of the input is committed."""
    descriptors: int
    resident: int
    """Bytes of memory of this process."""
    operations: int
    """How many files an epoch opens, in the middle."""
    epoch_s: float
    """How long an epoch takes, in the middle."""


class CountingFiles(FastFiles):
    """Counts how many files are opened."""

    def __init__(self) -> None:
        self.opened = 0

    def open(self, path: Path, flags: int) -> int:
        self.opened += 1
        return super().open(path, flags)


@dataclass(frozen=True)
class Plan:
    """What one life is to do: epochs until the input has so many records, and perhaps a kill."""

    root: Path
    backend: str
    life: int
    records: int
    kill_after: int | None
    """After how many epochs the failpoint is armed; from then on each has maintenance or a snapshot, if the
    failpoint is there."""
    point: str
    restart: float
    """How often the coordinator is given up without a word, per epoch; another one takes over here."""


def create(root: Path) -> None:
    root.mkdir(0o700, parents=True, exist_ok=True)
    log = FileLog(root / "log", files=FastFiles())
    for place in (INPUT, OUTPUT):
        log.create_topic(place.topic, TopicConfig(retention_bytes=1 << 18))


def start(
    root: Path, backend: str, files: FastFiles, listener: RestoreListener = NO_LISTENER
) -> InProcessExecutor:
    """A coordinator that comes an hour after the one before: its lease has run out."""
    clock = root / "hours"
    hours = 1 + (int(clock.read_text()) if clock.exists() else 0)
    clock.write_text(str(hours))
    memory._kept.clear()
    return InProcessExecutor(
        topology(),
        application_id=APPLICATION,
        log_root=root / "log",
        state_dir=root / "state",
        backend=backend,
        files=files,
        clock=lambda: hours * HOUR_MS,
        settings=CoordinatorSettings(retained_manifests=RETAINED, max_records=KEYS),
        config=StreamsConfig(
            snapshot_uri=root / "snapshots",
            snapshot_interval_epochs=SNAPSHOT_EVERY,
            snapshots_retained=RETAINED_SNAPSHOTS,
        ),
        listener=listener,
    )


def live(plan: Plan) -> None:
    """One life: it ends when all input is there and committed, or by SIGKILL."""
    rng = random.Random(f"life {plan.life}")
    files = CountingFiles()
    executor = start(plan.root, plan.backend, files)
    opened: list[int] = []
    seconds: list[float] = []
    epochs = 0
    executor.run_until_caught_up()  # what the life before has left
    while _append(executor.log, plan.records):
        before, began = files.opened, time.perf_counter()
        executor.run_epoch()
        opened.append(files.opened - before)
        seconds.append(time.perf_counter() - began)
        epochs += 1
        if epochs == plan.kill_after:
            if plan.point in RESTORE_POINTS:
                executor = _on_another_disk(plan, executor, files)
            failpoints.arm_from_environment(f"{plan.point}=kill")
        if executor.coordinator.head.epoch % TEND_EVERY == 0:
            executor.run_maintenance(min_entries=TEND_EVERY // 2)
            note(plan, executor, opened, seconds)
            opened, seconds = [], []
        elif plan.kill_after is not None and epochs > plan.kill_after:
            if plan.point in MAINTENANCE_POINTS:
                executor.run_maintenance(min_entries=1)
            if plan.point in SNAPSHOT_POINTS:
                take_snapshots(executor)
        if rng.random() < plan.restart:
            executor = start(plan.root, plan.backend, files)
    executor.run_maintenance(min_entries=1)
    note(plan, executor, opened or [0], seconds or [0.0])
    executor.close()


def take_snapshots(executor: InProcessExecutor) -> None:
    """Take a snapshot of each store, now."""
    outcomes = snapshot_task(executor.worker, TASK, executor.coordinator.head.tasks[TASK.task_id])
    problems = [outcome.problem for outcome in outcomes if outcome.problem]
    assert not problems, problems


def _on_another_disk(plan: Plan, executor: InProcessExecutor, files: FastFiles) -> InProcessExecutor:
    """The coordinator and its disk are gone, not long after a snapshot."""
    take_snapshots(executor)
    shutil.rmtree(plan.root / "state")
    return start(plan.root, plan.backend, files)


def _append(log: FileLog, records: int) -> bool:
    """Write the next records; False if there are no more."""
    end = log.latest(INPUT)
    if end >= records:
        return False
    rows = [arrival(offset) for offset in range(end, end + (BATCH if end else KEYS))]
    log.append(INPUT, record_batch(*zip(*rows, strict=True)))
    return True


def note(plan: Plan, executor: InProcessExecutor, opened: list[int], seconds: list[float]) -> None:
    """Write down what is held."""
    topics = [plan.root / "log/topics" / place.topic for place in (INPUT, OUTPUT)]
    snapshots = plan.root / "snapshots"
    seen = Seen(
        life=plan.life,
        epoch=executor.coordinator.head.epoch,
        files=sum(path.is_file() for path in plan.root.rglob("*")),
        disk=_size([plan.root]) - _size([*topics, snapshots]),
        snapshots=_size([snapshots]),
        records=executor.coordinator.head.positions[0][2],
        descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - not a folder of files
        resident=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        operations=sorted(opened)[len(opened) // 2],
        epoch_s=sorted(seconds)[len(seconds) // 2],
    )
    with (plan.root.parent / "seen.jsonl").open("a") as lines:
        lines.write(json.dumps(asdict(seen)) + "\n")


def _size(folders: Iterable[Path]) -> int:
    """Bytes that are really taken: LMDB's file has holes."""
    files = (path for folder in folders for path in folder.rglob("*"))
    return sum(status.st_blocks * 512 for path in files if path.is_file() for status in [path.stat()])
