"""A crash at every step, with and without a power cut; whoever comes next finds everything in order.

The program below is run up to a crash, then opened again as a new process would and completed. At every
stage: what was acknowledged is there at its offset; what was not is there as a whole or not at all; in the
end everything is there exactly once.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from tests.simulation.faulty_files import FaultyFiles

from millstream import failpoints
from millstream.log import FileLog
from millstream.log.api import SealedRange
from millstream.log.embedded.partition import Limits
from millstream.types import Offset

if TYPE_CHECKING:
    from tests.log.conftest import Kit

ACTIONS: tuple[Literal["raise", "torn-raise"], ...] = ("raise", "torn-raise")
CUTS: dict[str, Callable[[FaultyFiles], None]] = {
    "killed": lambda files: None,
    "power cut": lambda files: files.power_cut(),
    "random power cut 0": lambda files: files.power_cut(random.Random(0)),
}
if os.environ.get("MILLSTREAM_SOAK"):
    CUTS["random power cut 1"] = lambda files: files.power_cut(random.Random(1))
UNUSED = {
    "log.tail_cut",  # only after a first crash, see below
    "log.topic_unnamed",  # see test_delete_topic.py
}
PARTITIONS = 3
POINTS = [
    name for name in failpoints.REGISTRY if name.startswith(("log.", "durable.")) and name not in UNUSED
]


@dataclass
class World:
    """A log over files that forget, and what it was told."""

    kit: Kit
    files: FaultyFiles
    sealed: dict[int, SealedRange]
    acknowledged: list[bytes] = field(default_factory=list)
    in_flight: list[bytes] = field(default_factory=list)
    start: int = 0
    step: int = 0

    def open(self) -> FileLog:
        limits = Limits(segment_entries=2)
        return FileLog(self.kit.root, files=self.files, limits=limits, now_ms=self.kit.clock)

    def run(self) -> None:
        """Do the rest of the program; each step may be done again after a crash."""
        log = self.open()
        if self.step == 0:
            if not (self.kit.root / "topics" / "orders").exists():
                log.create_topic("orders")
            self.step = 1
        for step, action in enumerate(self.actions(log), 1):
            if step >= self.step:
                self.step = step
                action()
                self.acknowledged += self.in_flight
                self.in_flight = []
        self.step += 1

    def actions(self, log: FileLog) -> Iterator[Callable[[], None]]:
        yield lambda: self.append(log, "a1", "a2")
        yield lambda: self.publish(log, 1, "p1")
        yield lambda: self.append(log, "a3")
        yield lambda: self.publish(log, 2, "p2", "p2'")
        yield lambda: self.delete(log, 3)
        yield lambda: self.append(log, "a4")
        yield lambda: self.fold(log)
        yield lambda: self.delete(log, 7)
        yield lambda: log.add_partitions("orders", PARTITIONS)
        yield lambda: self.publish(log, 3, "p3")

    def append(self, log: FileLog, *values: str) -> None:
        """Append, unless a crash came after the records were whole: a producer without epochs must look."""
        self.in_flight = [value.encode() for value in values]
        if log.latest(self.kit.orders) == len(self.acknowledged):
            log.append(self.kit.orders, self.kit.batch(*values))

    def publish(self, log: FileLog, epoch: int, *values: str) -> None:
        """Publish without looking: the stamp is what makes it happen once."""
        self.in_flight = [value.encode() for value in values]
        log.publish_sealed(self.kit.orders, self.sealed[epoch])

    def fold(self, log: FileLog) -> None:
        log.rewrite(self.kit.orders, min_entries=1)

    def delete(self, log: FileLog, offset: int) -> None:
        if log.earliest(self.kit.orders) < offset:
            log.delete_before(self.kit.orders, Offset(offset))
        self.start = offset

    def check(self) -> None:
        """Compare with a log that was opened just now, twice: looking must not change anything."""
        for _ in range(2):
            log = self.open()
            start = log.earliest(self.kit.orders)
            assert self.start <= start
            found = self.kit.values(log)
            whole = self.acknowledged + self.in_flight
            assert found in (self.acknowledged[start:], whole[start:])
            assert log.latest(self.kit.orders) == start + len(found)
            assert log.config("orders").partitions in (1, PARTITIONS)
            assert {part.latest for part in log.describe("orders").partitions[1:]} <= {0}


EXPECTED = [b"a1", b"a2", b"p1", b"a3", b"p2", b"p2'", b"a4", b"p3"]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_step_loses_nothing_and_doubles_nothing(kit: Kit, tmp_path: Path, point: str) -> None:
    crashes = 0
    for action in ACTIONS:
        for name, cut in CUTS.items():
            skip = 0
            while True:
                world = fresh(kit, tmp_path / f"{action}-{name}-{skip}")
                with failpoints.armed(point, action, skip=skip) as armed:
                    try:
                        world.run()
                    except failpoints.InjectedCrash:
                        crashes += 1
                if not armed.fired:
                    break
                cut(world.files)
                if world.step:
                    world.check()
                world.run()
                world.check()
                assert world.acknowledged == EXPECTED
                assert world.start == 7
                assert world.open().config("orders").partitions == PARTITIONS
                skip += 1
    assert crashes, f"{point} was never reached"


def fresh(kit: Kit, folder: Path) -> World:
    folder.mkdir()
    kit.root = folder / "data"
    kit.root.mkdir(0o700)
    values = {1: ["p1"], 2: ["p2", "p2'"], 3: ["p3"]}
    sealed = {epoch: kit.seal(*rows, epoch=epoch) for epoch, rows in values.items()}
    return World(kit, FaultyFiles(folder), sealed)


SECOND = ["log.tail_cut", "log.frame_written", "log.frame_synced", "log.watermark_written"]


@pytest.mark.parametrize("second", SECOND)
def test_a_second_crash_also_within_recovery_changes_nothing(kit: Kit, tmp_path: Path, second: str) -> None:
    crashes = 0
    for first, action, skip in itertools.product(POINTS, ACTIONS, (0, 1)):
        world = fresh(kit, tmp_path / f"{first}-{action}-{skip}")
        with failpoints.armed(first, action, skip=skip), suppress(failpoints.InjectedCrash):
            world.run()
        with failpoints.armed(second) as armed, suppress(failpoints.InjectedCrash):
            world.run()
        crashes += armed.fired
        world.files.power_cut(random.Random(f"{first} {action} {skip} {second}"))
        world.run()
        world.check()
        assert world.acknowledged == EXPECTED
    assert crashes
