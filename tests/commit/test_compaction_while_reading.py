"""Compaction while somebody follows the changelog, or reads it: they end with the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import FastFiles, SmallApp

from millstream.log import TopicPartition
from millstream.log.api import LogRecordBatch
from millstream.log.embedded import reader
from millstream.log.embedded.partition import Limits
from millstream.state.backends.memory import MemoryBackend
from millstream.state.changelog import follow as following
from millstream.state.changelog.follow import Progress, StorePosition, Target, follow
from millstream.types import Offset, Partition, Version

CHANGELOG = TopicPartition("app-counts-changelog", Partition(0))
WORDS = ["to", "the", "river", "and", "sea"]
EPOCHS = 60
RETAINED = 20
TURNS = [0, 1, 7, 19, 27]
"""After how many batches compaction comes."""


@pytest.fixture
def app(tmp_path: Path) -> SmallApp:
    limits = Limits(segment_entries=4)
    app = SmallApp(tmp_path / "app", "memory", FastFiles(), retained_manifests=RETAINED, limits=limits)
    app.create()
    return app


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block each."""
    monkeypatch.setattr(reader, "_JOINED_ROWS", 1)
    monkeypatch.setattr(following, "BATCH_ROWS", 3)


@pytest.fixture
def executor(app: SmallApp) -> Iterator[InProcessExecutor]:
    """After many epochs, none of which was compacted."""
    with app.start() as executor:
        for number in range(EPOCHS):
            app.append(WORDS[number % 5], WORDS[number % 3])
            executor.run_epoch()
        yield executor


def compacted(executor: InProcessExecutor) -> None:
    before = executor.log.compacted(CHANGELOG).to
    executor.run_maintenance()
    assert executor.log.compacted(CHANGELOG).to > before, "nothing was compacted"


class At:
    """Does something after some batches, once."""

    def __init__(self, turn: int, work: Callable[[], None]) -> None:
        self.left = turn
        self.work = work

    def on_start(self, progress: Progress) -> None: ...

    def on_batch(self, progress: Progress) -> None:
        del progress
        self.left -= 1
        if self.left == 0:
            self.work()

    def on_end(self, progress: Progress) -> None: ...
    def on_suspended(self, progress: Progress) -> None: ...


def target_of(executor: InProcessExecutor) -> Target:
    entry = executor.coordinator.head.tasks["0_0"]
    marker = StorePosition(Version(entry.version), entry.changelogs["counts"], entry.digest)
    return Target("counts", CHANGELOG, marker)


def bytes_of(store: MemoryBackend) -> tuple[bytes | None, list[tuple[bytes, bytes]]]:
    return store.marker(), list(store.scan())


def keyed(batch: LogRecordBatch) -> dict[bytes, bytes | None]:
    return {key or b"": value for key, value in zip(batch.keys(), batch.values(), strict=True)}


@pytest.mark.parametrize("turn", TURNS[1:])
def test_a_follower_has_the_same_bytes(app: SmallApp, executor: InProcessExecutor, turn: int) -> None:
    target = target_of(executor)
    undisturbed, disturbed, late = MemoryBackend(), MemoryBackend(), MemoryBackend()
    follow(undisturbed, target, executor.log)
    at = At(turn, lambda: compacted(executor))

    follow(disturbed, target, app.log(), at)
    follow(late, target, app.log())

    assert at.left <= 0, "compaction came too late"
    assert bytes_of(disturbed) == bytes_of(undisturbed) == bytes_of(late)
    found = {key.decode(): int.from_bytes(value[8:]) for key, value in disturbed.scan()}
    assert found == dict(Counter(app.words))


@pytest.mark.parametrize("turn", TURNS)
def test_a_reader_has_the_same_bytes(app: SmallApp, executor: InProcessExecutor, turn: int) -> None:
    undisturbed: dict[bytes, bytes | None] = {}
    for batch in app.log().read(CHANGELOG, Offset(0)):
        undisturbed |= keyed(batch)
    disturbed: dict[bytes, bytes | None] = {}
    for number, batch in enumerate(app.log().read(CHANGELOG, Offset(0))):
        disturbed |= keyed(batch)
        if number == turn:
            compacted(executor)
    late: dict[bytes, bytes | None] = {}
    for batch in app.log().read(CHANGELOG, Offset(0)):
        late |= keyed(batch)

    assert number >= turn, "compaction came too late"
    assert disturbed == undisturbed == late
    assert len(undisturbed) == len(WORDS)
