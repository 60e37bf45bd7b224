"""Windows of every kind, stream time and emission on close, when every life ends at a step of the commit."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from tests.commit.ended_lives import kinds_and_steps
from tests.commit.rows_of_log import rows_of
from tests.simulation.executor import InProcessExecutor

from millstream import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
    failpoints,
    handlers,
    serdes,
)
from millstream.commit.coordinator import CoordinatorSettings
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.types import Partition

STEPS = [name for name in failpoints.REGISTRY if name.startswith("commit.")]
LIVES: Final = 5
RECORDS_OF_AN_EPOCH: Final = 6
CLOSED = EmitStrategy.on_window_close()


def clicks(builder: StreamsBuilder) -> Any:
    return builder.stream("clicks", key=serdes.string, value=serdes.string).group_by_key()


def by_session(builder: StreamsBuilder) -> Any:
    return clicks(builder).windowed_by(SessionWindows(10, grace=5)).count(store="windows")


def by_session_uncached(builder: StreamsBuilder) -> Any:
    windows = clicks(builder).windowed_by(SessionWindows(10, grace=5))
    return windows.reduce(lambda one, other: one + other, store=Store("windows", caching=False))


def by_session_on_close(builder: StreamsBuilder) -> Any:
    return (
        clicks(builder).windowed_by(SessionWindows(10, grace=5)).emit_strategy(CLOSED).count(store="windows")
    )


def by_time(builder: StreamsBuilder) -> Any:
    return clicks(builder).windowed_by(TimeWindows(20, grace=5)).count(store="windows")


def by_time_on_close(builder: StreamsBuilder) -> Any:
    return clicks(builder).windowed_by(TimeWindows(20, grace=5)).emit_strategy(CLOSED).count(store="windows")


def by_sliding_time(builder: StreamsBuilder) -> Any:
    return clicks(builder).windowed_by(SlidingWindows(10, grace=5)).count(store="windows")


KINDS: dict[str, Callable[[StreamsBuilder], Any]] = {
    kind.__name__: kind
    for kind in (
        by_session,
        by_session_uncached,
        by_session_on_close,
        by_time,
        by_time_on_close,
        by_sliding_time,
    )
}


UNCACHED = {"by_session_uncached", "by_session_on_close", "by_time_on_close"}


def program(kind: str) -> Topology:
    builder = StreamsBuilder()
    KINDS[kind](builder).to_stream().to("out")
    return builder.build()


@dataclass
class Application:
    """Clicks that come a little out of order, some of them late, in two partitions."""

    folder: Path
    kind: str
    max_records: int = RECORDS_OF_AN_EPOCH

    def __post_init__(self) -> None:
        self.log = FileLog(self.folder / "log")
        self.log.create_topic("clicks", TopicConfig(partitions=2))
        rng = random.Random(7)
        for partition in range(2):
            times = [max(0, 4 * step + rng.choice((-30, -12, -3, 0, 0, 2, 9))) for step in range(30)]
            keys = [b"%d-%d" % (partition, rng.randrange(2)) for _ in times]
            place = TopicPartition("clicks", Partition(partition))
            self.log.append(place, record_batch(keys, [b"x"] * len(times), times))

    def open(self) -> InProcessExecutor:
        return InProcessExecutor(
            program(self.kind),
            application_id="app",
            log_root=self.folder / "log",
            state_dir=self.folder / "state",
            config=StreamsConfig(late_record_handler=handlers.dead_letter, dead_letter_topic="late"),
            settings=CoordinatorSettings(max_records=self.max_records),
            clock=lambda: 1_000,
        )

    def finish(self) -> dict[str, list[tuple[Any, ...]]]:
        """Run to the end of the input; all that is in the log then, changelogs and late records included."""
        with self.open() as app:
            app.run_until_caught_up()
        return rows_of(self.log)


def of_task(rows: list[tuple[Any, ...]], task: bytes) -> list[tuple[Any, ...]]:
    """What one task wrote, in its order: several take turns with each epoch."""
    return [row for row in rows if row[0].startswith(task)]


@cache
def unharmed(kind: str) -> dict[str, list[tuple[Any, ...]]]:
    with TemporaryDirectory() as folder:
        return Application(Path(folder), kind).finish()


@pytest.mark.parametrize("kind", KINDS)
def test_the_input_has_results_and_late_records_to_tell_of(kind: str) -> None:
    assert {topic: len(rows) > 2 for topic, rows in unharmed(kind).items()} == {
        "app-windows-changelog": True,
        "clicks": True,
        "late": True,
        "out": True,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_no_time_is_forgotten_between_epochs(tmp_path: Path, kind: str) -> None:
    """Every epoch is a task of its own. Only a cache may tell that there were several of them."""
    at_once = Application(tmp_path, kind, max_records=1_000).finish()
    for topic in ("late", "out") if kind in UNCACHED else ("late",):
        for task in (b"0-", b"1-"):
            assert of_task(unharmed(kind)[topic], task) == of_task(at_once[topic], task)


@pytest.mark.parametrize(("kind", "step"), kinds_and_steps(KINDS, STEPS))
def test_all_is_as_if_nothing_had_happened_if_every_life_ends_at_a_step(
    tmp_path: Path, kind: str, step: str
) -> None:
    application = Application(tmp_path, kind)
    for _ in range(LIVES):
        with application.open() as app, failpoints.armed(step), suppress(failpoints.InjectedCrash):
            app.run_epoch()
    assert application.finish() == unharmed(kind)
