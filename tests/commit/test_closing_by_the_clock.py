"""Windows that close by the clock: the same over restarts, crashes and epochs that are run again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import FastFiles

from millstream import EmitStrategy, SessionWindows, StreamsBuilder, Suppressed, Topology, serdes
from millstream.commit.coordinator import CoordinatorSettings
from millstream.failpoints import InjectedCrash, armed
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.state.backends import memory
from millstream.types import Offset, Partition

IN, OUT = TopicPartition("in", Partition(0)), TopicPartition("out", Partition(0))
STEPS = ["planned", "opened", "processed", "sealing", "sealed", "reported", "checked", "manifest_written"]
STEPS += ["witness_written", "published", "ended", "store_applied", "applied"]

Session = tuple[str, int, int, int]


def final_sessions(*, suppress: bool) -> Topology:
    """Counts per session, gap 10 ms, when the session is over, also if 100 ms went by without a record."""
    builder = StreamsBuilder()
    strings: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
    sessions = builder.stream("in", **strings).group_by_key().windowed_by(SessionWindows(10))
    final = (
        sessions.count().suppress(Suppressed.until_window_closes(after_idle=100))
        if suppress
        else sessions.emit_strategy(EmitStrategy.on_window_close(after_idle=100)).count()
    )
    final.to_stream(lambda key, _: f"{key.key} {key.window.start} {key.window.end}").to(
        "out", key=serdes.string, value=serdes.int64
    )
    return builder.build()


@dataclass
class App:
    """The program, with a clock of its own. It is opened anew for each epoch."""

    folder: Path
    now: int = 1_000_000
    max_records: int = 1_000
    suppress: bool = True

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700)
        self.log = FileLog(self.folder / "log", files=FastFiles())
        self.log.create_topic("in", TopicConfig())

    def append(self, key: str, *times: int) -> None:
        keys = [key.encode()] * len(times)
        self.log.append(IN, record_batch(keys, keys, list(times)))

    def open(self) -> InProcessExecutor:
        memory._kept.clear()
        return InProcessExecutor(
            final_sessions(suppress=self.suppress),
            application_id="app",
            log_root=self.folder / "log",
            state_dir=self.folder / "state",
            clock=lambda: self.now,
            settings=CoordinatorSettings(max_records=self.max_records),
            files=FastFiles(),
        )

    def tick(self, passed: int, crash_at: str | None = None) -> None:
        """Let time go by, and run an epoch; if it crashes, once more at the same time."""
        self.now += passed
        if crash_at is not None:
            with self.open() as app, armed(f"commit.{crash_at}"), pytest.raises(InjectedCrash):
                app.run_epoch(tick=True)
            self.log = FileLog(self.folder / "log", files=FastFiles())
        with self.open() as app:
            app.run_epoch(tick=True)

    def sessions(self) -> list[Session]:
        """Key, start, end and count of what was written."""
        if "out" not in self.log.topics():
            return []
        rows = [
            row
            for batch in self.log.read(OUT, Offset(0))
            for row in zip(batch.keys(), batch.values(), strict=True)
        ]
        found: list[Session] = []
        for key, value in rows:
            name, start, end = serdes.string.deserialize(key or b"").split()
            found.append((name, int(start), int(end), serdes.int64.deserialize(value or b"")))
        return found


def test_a_topic_that_has_gone_quiet_closes_its_windows_after_a_restart(tmp_path: Path) -> None:
    app = App(tmp_path / "app")
    app.append("a", 0, 5)
    app.tick(0)
    app.tick(99)
    assert app.sessions() == []
    app.tick(1)
    assert app.sessions() == [("a", 0, 5, 2)]


def test_records_that_wait_for_a_stopped_application_are_not_late(tmp_path: Path) -> None:
    app = App(tmp_path / "app", max_records=1)
    app.append("a", 0)
    app.tick(0)
    app.append("a", 5)
    app.append("a", 9)
    for _ in range(2):
        app.tick(3_600_000)  # one record each: after the first, one still waits
    assert app.sessions() == []
    app.tick(100)
    assert app.sessions() == [("a", 0, 9, 3)]


@pytest.mark.parametrize("suppress", [False, True])
@pytest.mark.parametrize("crash_at", STEPS)
def test_a_crash_in_the_epoch_in_which_the_clock_closes_windows_changes_nothing(
    tmp_path: Path, crash_at: str, suppress: bool
) -> None:
    results = []
    for name, at in (("whole", None), ("crashed", crash_at)):
        app = App(tmp_path / name, suppress=suppress)
        app.append("a", 0, 5)
        app.append("b", 7)
        app.tick(0)
        app.tick(101, at)
        app.append("a", 6)  # too late for the session that has closed
        app.append("c", 500)
        app.tick(1, at)
        app.tick(100, at)
        results.append(app.sessions())
    assert results[1] == results[0] == [("a", 0, 5, 2), ("b", 7, 7, 1), ("c", 500, 500, 1)]
