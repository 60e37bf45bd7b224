"""Windows that close by the clock: the same over restarts, crashes and epochs that are run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import FastFiles

from millstream import EmitStrategy, SessionWindows, StreamsBuilder, Suppressed, TimeWindows, Topology, serdes
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
            with self.open() as app, armed(f"commit.{crash_at}"), pytest.raises(InjectedCrash):  # noqa: PT012
                app.run_epoch(tick=True)
                app.coordinator.close()  # here it is known at the latest what befell the witness' thread
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


@dataclass
class TwoTopics:
    """Two topics of an application, with a clock of its own."""

    folder: Path
    topology: Topology
    settings: CoordinatorSettings
    now: int = 1_000_000

    def __post_init__(self) -> None:
        memory._kept.clear()
        self.log = FileLog(self.folder / "log", files=FastFiles())
        for topic in ("a", "b", "mid"):
            self.log.create_topic(topic, TopicConfig())

    def append(self, topic: str, *times: int) -> None:
        self.log.append(
            TopicPartition(topic, Partition(0)),
            record_batch([b"k"] * len(times), [b"v"] * len(times), list(times)),
        )

    @contextmanager
    def running(self) -> Iterator[Callable[[int], list[int]]]:
        """Lets time go by, runs an epoch, and tells all counts that were written until then."""
        with InProcessExecutor(
            self.topology,
            application_id="app",
            log_root=self.folder / "log",
            state_dir=self.folder / "state",
            clock=lambda: self.now,
            settings=self.settings,
            files=FastFiles(),
        ) as app:

            def tick(passed: int) -> list[int]:
                self.now += passed
                app.run_epoch(tick=True)
                batches = self.log.read(OUT, Offset(0)) if "out" in self.log.topics() else ()
                return [serdes.int64.deserialize(value or b"") for one in batches for value in one.values()]

            yield tick


def final_counts(stream: Any) -> None:
    """Counts per 10 ms, written when they are over, also if 100 ms went by without a record."""
    windows = stream.group_by_key().windowed_by(TimeWindows(10))
    counts = windows.emit_strategy(EmitStrategy.on_window_close(after_idle=100)).count()
    counts.to_stream(lambda key, _: key.key).to("out", key=serdes.string, value=serdes.int64)


STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def test_records_that_wait_for_those_of_another_topic_are_not_late(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    final_counts(builder.stream("a", **STRINGS).merge(builder.stream("b", **STRINGS)))
    app = TwoTopics(tmp_path, builder.build(), CoordinatorSettings(max_task_idle_ms=1_500))
    app.append("a", 1)
    app.append("b", 1)
    with app.running() as tick:
        assert tick(0) == []
        app.append("a", 5)
        assert [tick(50), tick(500), tick(900)] == [[], [], []], "it waits for b, and the clock for it"
        assert tick(100) == [], "now it is read"
        assert tick(100) == [3]


def test_the_backlog_of_another_topic_does_not_keep_windows_open(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    final_counts(builder.stream("a", **STRINGS))
    builder.stream("b", **STRINGS).map_values(lambda value: value).to("elsewhere")
    app = TwoTopics(tmp_path, builder.build(), CoordinatorSettings(max_records=1))
    app.append("a", 1)
    app.append("b", *range(20))
    with app.running() as tick:
        assert [tick(0), tick(99), tick(1)] == [[], [], [1]]


@pytest.mark.parametrize("is_named_per_record", [False, True])
def test_a_backlog_that_reaches_windows_through_a_topic_of_the_application_keeps_them_open(
    tmp_path: Path, is_named_per_record: bool
) -> None:
    builder = StreamsBuilder()
    final_counts(builder.stream("mid", **STRINGS))
    mid: Any = (lambda key, value, context: "mid") if is_named_per_record else "mid"
    builder.stream("a", **STRINGS).filter(lambda _, value: value == "v").to(mid, **STRINGS)
    app = TwoTopics(tmp_path, builder.build(), CoordinatorSettings(max_records=1))
    app.append("mid", 1)
    with app.running() as tick:
        assert tick(0) == []
        app.append("a", 5, 6, 7)
        assert [tick(200), tick(50)] == [[], []], "some of a still wait"
        assert [tick(50), tick(50), tick(100)] == [[], [], [4]]
