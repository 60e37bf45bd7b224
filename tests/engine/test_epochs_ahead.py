"""Where records are waiting, tasks of the next epoch run while one is published. Slots are threads."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.test_resident_slots import Application, running, until
from tests.spark.lab import Lab
from tests.spark.programs import COUNTING, check_exact, two_levels, words

from millstream import StreamsBuilder, Topology
from millstream.commit.manifest import Manifest
from millstream.commit.publisher import EmbeddedPublisher
from millstream.commit.store_opening import StoreOpening
from millstream.engine.spark.resident.messages import EpochDone, RunEpoch
from millstream.engine.spark.resident.slot import Slot
from millstream.engine.spark.resident.slot_pool import SlotPool
from millstream.state.errors import UnpublishedVersionError

EPOCH = 4
"""One in the middle: the first one fences."""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab", None)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[RunEpoch]:
    """What slots were told to run."""
    commands: list[RunEpoch] = []
    run_epoch = Slot._run_epoch

    def noted(slot: Slot, command: RunEpoch) -> None:
        commands.append(command)
        run_epoch(slot, command)

    monkeypatch.setattr(Slot, "_run_epoch", noted)
    return commands


def publishing(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None], epoch: int = EPOCH
) -> list[int]:
    """Let something happen once, before an epoch is published; the epochs that were, in their order."""
    publish, published = EmbeddedPublisher.publish, list[int]()
    left = [meanwhile]

    def noted(publisher: EmbeddedPublisher, manifest: Manifest) -> None:
        if manifest.epoch == epoch and left:
            left.pop()()
        publish(publisher, manifest)
        published.append(manifest.epoch)

    monkeypatch.setattr(EmbeddedPublisher, "publish", noted)
    return published


def ahead(begun: list[RunEpoch]) -> set[int]:
    return {command.of.epoch for command in begun if command.is_ahead}


def test_tasks_of_the_next_epoch_are_done_before_one_is_published_and_are_not_committed(
    lab: Lab, begun: list[RunEpoch], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.topic("in", parts := words(200, seed=8))
    done: set[int] = set()
    take = SlotPool._take

    def noted(pool: SlotPool, number: int, incarnation: str, message: Any) -> None:
        take(pool, number, incarnation, message)
        if isinstance(message, EpochDone) and message.of.epoch == EPOCH + 1:
            done.add(number)

    monkeypatch.setattr(SlotPool, "_take", noted)

    def all_done() -> None:
        until(lambda: done == {0, 1})
        assert max(int(path.name) for path in manifests.iterdir()) == EPOCH

    published = publishing(monkeypatch, all_done)
    with running(lab, two_levels(), max_records_per_epoch=10) as app:
        manifests = app.loop.coordinator.storage.manifests
        app.run()
        assert app.engine.failures == []
        last = app.loop.coordinator.head.epoch
    assert EPOCH + 1 in ahead(begun)
    assert {command.of.epoch for command in begun} == set(range(2, last + 1))
    assert list(dict.fromkeys(published)) == list(range(1, last + 1)), "in their order"
    check_exact(lab, "two_levels", parts)


@pytest.mark.parametrize("program", ["one_level", "three_levels"])
def test_a_store_that_has_to_be_restored_waits_until_its_version_is_published(
    lab: Lab, begun: list[RunEpoch], monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    lab.topic("in", parts := words(200, seed=9, partitions=4))
    monkeypatch.setattr("millstream.engine.spark.resident.slot_function.most_tasks", lambda: 1)
    waited: list[UnpublishedVersionError] = []
    check = StoreOpening._check_published

    def noted(opening: StoreOpening) -> None:
        try:
            check(opening)
        except UnpublishedVersionError as error:
            waited.append(error)
            raise

    monkeypatch.setattr(StoreOpening, "_check_published", noted)
    publishing(monkeypatch, lambda: until(lambda: bool(waited)))
    with running(lab, COUNTING[program](), 1, max_records_per_epoch=10) as app:
        app.run()
        assert app.engine.failures == []
    assert "does not have all of it yet" in str(waited[0])
    check_exact(lab, program, parts)


def test_if_one_cannot_be_published_the_next_is_given_up_and_run_again(
    lab: Lab, begun: list[RunEpoch], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.topic("in", parts := words(200, seed=10))

    def full() -> None:
        until(lambda: EPOCH + 1 in ahead(begun))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    published = publishing(monkeypatch, full)
    with running(lab, two_levels(), max_records_per_epoch=10) as app:
        with pytest.raises(OSError, match="No space left"):
            app.run()
        assert published[-1] == EPOCH - 1
        assert app.loop.coordinator.head.epoch == EPOCH
        app.run()
    attempts = {command.of.attempt for command in begun if command.of.epoch == EPOCH + 1}
    assert len(attempts) == 2
    check_exact(lab, "two_levels", parts)


def run_until_one_has_begun(app: Application) -> int:
    """Run epochs until the next one has begun; the last of them."""
    while not app.loop._ahead.has_begun:
        result = app.loop.run_epoch(tick=False)
        assert result is not None
        assert result.has_backlog
    return app.loop.coordinator.head.epoch


def test_what_has_begun_when_a_run_ends_is_the_last_epoch_of_it_and_not_given_up(
    lab: Lab, begun: list[RunEpoch]
) -> None:
    lab.topic("in", parts := words(200, seed=15))
    with running(lab, two_levels(), max_records_per_epoch=10) as app:
        last = run_until_one_has_begun(app)
        app.loop.finish()
        app.loop.finish()
        assert app.loop.coordinator.head.epoch == last + 1
        app.loop.run_epoch(tick=False)
        assert max(ahead(begun)) == last + 1, "nobody has said that others follow"
        app.run()
        epochs = [command.of for command in begun]
    assert len({of.epoch for of in epochs}) == len({of.attempt for of in epochs}), "each once"
    check_exact(lab, "two_levels", parts)


@pytest.mark.parametrize("end", ["release", "close"])
def test_an_epoch_that_has_begun_is_given_up_if_its_turn_does_not_come(
    lab: Lab, begun: list[RunEpoch], end: str
) -> None:
    lab.topic("in", parts := words(200, seed=11))
    with running(lab, two_levels(), max_records_per_epoch=10) as app:
        last = run_until_one_has_begun(app)
        until(lambda: last + 1 in ahead(begun))
        getattr(app.loop, end)()
        assert app.loop.coordinator.head.epoch == last
        if end == "release":
            app.loop.open()
            app.run()
    if end == "close":
        with running(lab, two_levels(), max_records_per_epoch=10) as app:
            app.run()
    check_exact(lab, "two_levels", parts)


def test_a_slot_that_is_lost_in_an_epoch_that_has_begun_ahead(
    lab: Lab, begun: list[RunEpoch], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.topic("in", parts := words(200, seed=12))

    def lose_one() -> None:
        until(lambda: EPOCH + 1 in ahead(begun))
        app.engine.pool.live()[0].connection.close()
        until(lambda: 0 not in app.engine.pool.live() or len(app.engine.launcher.submitted) > 2)

    publishing(monkeypatch, lose_one)
    with running(lab, two_levels(), max_records_per_epoch=10) as app:
        app.run()
    check_exact(lab, "two_levels", parts)


def feeding_itself() -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("in")
    lines.filter(lambda _, value: value is not None and not value.endswith(b"!")).map_values(
        lambda value: value + b"!"
    ).to("in")
    return builder.build()


def test_a_program_that_reads_what_it_writes_waits_for_it(lab: Lab, begun: list[RunEpoch]) -> None:
    lab.topic("in", words(60, seed=13))
    with running(lab, feeding_itself(), max_records_per_epoch=10) as app:
        app.run()
    assert len(begun) > 5
    assert ahead(begun) == set()


def with_an_extractor() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", timestamp_extractor=lambda record, _: record.timestamp).to("copies")
    return builder.build()


def test_a_plan_that_has_to_read_records_is_not_made_before_one_is_published(
    lab: Lab, begun: list[RunEpoch]
) -> None:
    lab.topic("in", words(60, seed=16))
    with running(lab, with_an_extractor(), max_records_per_epoch=10) as app:
        app.run()
    assert len(begun) > 3
    assert ahead(begun) == set()


def test_records_that_come_one_at_a_time_have_nothing_to_begin_ahead(lab: Lab, begun: list[RunEpoch]) -> None:
    lab.topic("in", parts := words(30, seed=14))
    with running(lab, two_levels()) as app:
        app.run()
    assert ahead(begun) == set()
    check_exact(lab, "two_levels", parts)
