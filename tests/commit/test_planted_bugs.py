"""The tester's own test: bugs planted in the engine, each of which must turn something red.

A scenario is a piece of the suite: it passes as the engine is, and fails with the bug.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.fault_programs import APPLICATIONS, Application
from tests.simulation.fault_world import LostAttempt, World
from tests.simulation.faulty_files import FaultyFiles

from millstream import KStream, Processor, Record, Store, StreamsBuilder, Topology, serdes, stores
from millstream.commit import task_attempt as step
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CommitCoordinator
from millstream.commit.epoch import CommittedEpoch
from millstream.commit.lease import Lease, LeaseHeldError, LeaseLostError
from millstream.commit.manifest import Manifest
from millstream.commit.reports import EpochMismatchError
from millstream.durable import Chunk, FileLayer, SyncGroup, publish_exclusive
from millstream.log.embedded.index import PartitionIndex
from millstream.log.errors import DamagedLogError
from millstream.state.backends.api import Backend
from millstream.state.changelog.follow import StorePosition, follow, position_of
from millstream.state.local import task_stores
from millstream.task.task import TaskResult
from millstream.types import Attempt, Epoch, Offset, Term, Version

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Bug:
    """What is planted, and what fails because of it."""

    plant: Plant
    scenario: Callable[[World], None]
    symptom: str
    """In the message of what is raised."""
    application: str = "ledger"


# Syncs that are dropped ---------------------------------------------------------------------------------


class Without:
    """A file layer that leaves one operation out."""

    def __init__(self, files: FileLayer, operation: str) -> None:
        self._files = files
        self._operation = operation

    def __getattr__(self, name: str) -> Any:
        return (lambda _: None) if name == self._operation else getattr(self._files, name)


def drops_fsync_of_sealed_files(patch: pytest.MonkeyPatch) -> None:
    seals_together_without(patch, "fsync")


def drops_sync_of_the_folder_of_sealed_files(patch: pytest.MonkeyPatch) -> None:
    seals_together_without(patch, "sync_folder")


def seals_together_without(patch: pytest.MonkeyPatch, operation: str) -> None:
    def without(files: FileLayer) -> SyncGroup:
        return SyncGroup(Without(files, operation))

    patch.setattr("millstream.commit.seal_group.SyncGroup", without)


def drops_fsync_of_manifests(patch: pytest.MonkeyPatch) -> None:
    drop(patch, "millstream.commit.manifest.publish_exclusive", publish_exclusive, "fsync")


def drops_sync_of_the_folder_of_manifests(patch: pytest.MonkeyPatch) -> None:
    drop(patch, "millstream.commit.manifest.publish_exclusive", publish_exclusive, "sync_folder")


def drop(patch: pytest.MonkeyPatch, user: str, action: Callable[..., int], operation: str) -> None:
    def without(path: Path, chunks: Iterable[Chunk], *, files: FileLayer) -> int:
        return action(path, chunks, files=Without(files, operation))

    patch.setattr(user, without)


def the_power_fails_after_an_epoch(world: World) -> None:
    world.epoch()
    assert isinstance(world.files, FaultyFiles)
    world.files.power_cut()
    world.die()
    world.open()
    world.check()
    world.check_to_the_end()


# Order ------------------------------------------------------------------------------------------------


def applies_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    def process(*args: Any) -> TaskResult:
        given = inspect.signature(real).bind(*args).arguments
        run, stores = given["run"], given["stores"]
        job, sub, entry = run.job, run.sub, run.entry
        sealed = real(*args)
        for name, spec in sub.stores.items():
            position = entry.changelogs.get(name, 0) if entry is not None else 0
            position += len(sealed.changelogs[name]) if spec.logging else 0
            marker = StorePosition(Version(job.epoch), Offset(position)).encoded()
            stores[name].overlay.committed.write(sealed.changelogs[name], marker=marker)
        return sealed

    real = step._process
    patch.setattr(step, "_process", process)


def a_crash_before_the_manifest(world: World) -> None:
    world.epoch()
    world.crash("commit.checked")
    world.check_versions()
    world.check_to_the_end()


def commits_the_next_epoch_before_the_last_is_published(patch: pytest.MonkeyPatch) -> None:
    waiting: list[Manifest] = []

    def publish(self: CommitCoordinator, manifest: Manifest) -> None:
        waiting.append(manifest)
        if len(waiting) > 1:
            real(self, waiting.pop(0))
        self._published = manifest.epoch

    real = CommitCoordinator.publish
    patch.setattr(CommitCoordinator, "publish", publish)


def a_crash_after_the_manifest(world: World) -> None:
    world.epoch(apply=False)
    world.crash("commit.manifest_written")
    world.open()
    world.check()
    world.check_to_the_end()


# Identity ---------------------------------------------------------------------------------------------


def names_sealed_files_without_the_term(patch: pytest.MonkeyPatch) -> None:
    def sealed_file(
        self: ApplicationStorage, epoch: Epoch, task: str, level: int, term: Term, attempt: Attempt
    ) -> Path:
        del term
        return real(self, epoch, task, level, Term(0), attempt)

    real = ApplicationStorage.sealed_file
    patch.setattr(ApplicationStorage, "sealed_file", sealed_file)


def two_terms_run_one_epoch(world: World) -> None:
    """Attempts are counted anew in every term."""
    app = world.open()
    job = app.coordinator.plan_epoch()
    assert job is not None
    for term in (Term(1), Term(2)):
        step.run_task(app.worker, replace(job, term=term), job.tasks[0], [], Attempt(1))


def numbers_attempts_anew_after_a_fetch_failure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tests.simulation.executor.InProcessExecutor.next_attempt", lambda _: Attempt(0))


def names_sealed_files_by_the_attempt_number_only(patch: pytest.MonkeyPatch) -> None:
    """Spark's `attemptNumber` begins at 0 again after a fetch failure."""

    def sealed_file(
        self: ApplicationStorage, epoch: Epoch, task: str, level: int, term: Term, attempt: Attempt
    ) -> Path:
        del term, attempt
        return real(self, epoch, task, level, Term(0), Attempt(0))

    real = ApplicationStorage.sealed_file
    patch.setattr(ApplicationStorage, "sealed_file", sealed_file)


def a_task_runs_twice(world: World) -> None:
    world.lose_attempt(LostAttempt("0_0", named=1, heard=1))
    world.check()
    world.check_to_the_end()


def publishes_without_looking_who_was_there(patch: pytest.MonkeyPatch) -> None:
    nobody = property(lambda _: {}, lambda *_: None)
    patch.setattr(PartitionIndex, "publications", nobody, raising=False)


def a_crash_after_publishing(world: World) -> None:
    world.crash("commit.published")
    world.open()
    world.check()
    world.check_to_the_end()


# Attempts that disagree -------------------------------------------------------------------------------


def ignores_whose_rows_were_consumed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("millstream.commit.coordinator.check_consumed_is_named", lambda *_: None)


class Price(Processor[str, str, str, str]):
    """Asks somebody outside for the price: another attempt gets another answer."""

    asked = 0

    def init(self, context: Any) -> None:
        super().init(context)
        Price.asked += 1
        self._prices = context.state_store("prices")

    def process(self, record: Record[str, str]) -> None:
        priced = f"shop:{Price.asked}"
        self._prices.put(record.key, priced)
        self.context.forward(record.with_value(priced))


def priced() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("prices", key=serdes.string, value=serdes.string))
    orders: KStream[str, str] = builder.stream("orders", key=serdes.string, value=serdes.string)
    by_shop = orders.process(Price, "prices").group_by(
        lambda _, price: price.split(":")[0], key=serdes.string, value=serdes.string
    )
    by_shop.aggregate(
        lambda: 0,
        lambda _, price, total: total + int(price.split(":")[1]),
        store=Store("sum", key=serdes.string, value=serdes.int64),
    )
    return builder.build()


def two_attempts_get_different_answers(world: World) -> None:
    """The prices that are kept add up to the sum that is kept."""
    app = world.open()
    job = app.coordinator.plan_epoch()
    assert job is not None
    app.twice = LostAttempt("0_0", named=1, heard=0)
    reports = app.run_tasks(job)
    app.twice = None
    try:
        manifest = app.coordinator.commit(job, reports)
    except EpochMismatchError:
        manifest = app.coordinator.commit(job, app.run_tasks(job))
    app.coordinator.publish(manifest)
    app.apply(CommittedEpoch(job, (), manifest, {}))
    prices = [int(price.split(b":")[1]) for price in rows_of(world, "prices")]
    sums = [int.from_bytes(total[8:], "big") for total in rows_of(world, "sum")]
    assert prices
    assert sums == [sum(prices)], "the levels disagree"


def rows_of(world: World, store: str) -> list[bytes]:
    copies = world.facts().stores.items()
    return [row for (_, name), copy in copies if name == store for row in copy.rows.values()]


# Versions, checksums, leases --------------------------------------------------------------------------


def advances_only_stores_that_changed(patch: pytest.MonkeyPatch) -> None:
    def follow_changes(backend: Backend, target: Any, *args: Any) -> None:
        if position_of(backend, target.store).offset != target.position.offset:
            follow(backend, target, *args)

    patch.setattr(task_stores, "follow", follow_changes)


def epochs_that_change_one_store_of_two(world: World) -> None:
    for _ in range(4):
        world.epoch()
        world.check()


def ignores_checksums(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("millstream.log.blocks.checksum", lambda *_: 0)


def a_bit_of_a_sealed_file_flips(world: World) -> None:
    """It is in a row of a changelog, which a lost store needs."""
    world.epoch()
    (named, *_) = sorted((world.log_root / "sealed").glob("*/*/0_0*"))
    content = named.read_bytes()
    named.write_bytes(content.replace(b"shop", b"shoq"))
    assert named.read_bytes() != content
    world.lose_local_state()
    world.open()
    try:
        world.epoch()
    except DamagedLogError:
        return
    world.check()


def accepts_a_stale_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "verify", lambda _: None)


def a_driver_wakes_up_after_its_lease_was_taken(world: World) -> None:
    world.stall(("commit.checked",))
    world.stall(("commit.leased",), opening=True)
    error = world.wake()
    assert isinstance(error, LeaseLostError), "a coordinator without a lease has committed"
    assert world.wake() is None
    world.check_to_the_end()


def takes_a_lease_that_is_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("millstream.commit.lease.lease_holder", lambda _, **__: None)


def a_second_driver_starts(world: World) -> None:
    world.epoch()
    with pytest.raises(LeaseHeldError):
        world.new_executor()


BUGS = {
    "fsync of sealed file dropped": Bug(
        drops_fsync_of_sealed_files, the_power_fails_after_an_epoch, "the file has 0 bytes|I7"
    ),
    "sync of folder of sealed files dropped": Bug(
        drops_sync_of_the_folder_of_sealed_files, the_power_fails_after_an_epoch, "no such file|I7"
    ),
    "fsync of manifest dropped": Bug(
        drops_fsync_of_manifests, the_power_fails_after_an_epoch, "ends after 0"
    ),
    "sync of folder of manifests dropped": Bug(
        drops_sync_of_the_folder_of_manifests,
        the_power_fails_after_an_epoch,
        "shows epoch 2|was committed, but",
    ),
    "apply before commit": Bug(
        applies_before_the_commit, a_crash_before_the_manifest, "I7: .* above the head"
    ),
    "next committed before last published": Bug(
        commits_the_next_epoch_before_the_last_is_published, a_crash_after_the_manifest, "has no records|I1"
    ),
    "sealed file named without term": Bug(
        names_sealed_files_without_the_term, two_terms_run_one_epoch, "File exists"
    ),
    "sealed file named by attempt number only": Bug(
        names_sealed_files_by_the_attempt_number_only, a_task_runs_twice, "File exists"
    ),
    "attempts numbered anew": Bug(
        numbers_attempts_anew_after_a_fetch_failure, a_task_runs_twice, "File exists"
    ),
    "publish checks no stamp": Bug(
        publishes_without_looking_who_was_there,
        a_crash_after_publishing,
        "ends at offset 6, but the last",
    ),
    "consumed is not named": Bug(
        ignores_whose_rows_were_consumed, two_attempts_get_different_answers, "the levels disagree", "priced"
    ),
    "marker of changed stores only": Bug(
        advances_only_stores_that_changed, epochs_that_change_one_store_of_two, "I4: store .* was applied"
    ),
    "checksum ignored": Bug(ignores_checksums, a_bit_of_a_sealed_file_flips, "I7|I4", "stock"),
    "stale lease accepted": Bug(
        accepts_a_stale_lease, a_driver_wakes_up_after_its_lease_was_taken, "a coordinator without a lease"
    ),
    "held lease taken": Bug(takes_a_lease_that_is_held, a_second_driver_starts, "DID NOT RAISE"),
}


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> World:
    bug: Bug = BUGS[request.node.callspec.params["bug"]]
    orders = APPLICATIONS["ledger"]
    application = Application("priced", "orders", (), priced, orders.record)
    monkeypatch.setitem(APPLICATIONS, "priced", application)
    return World(tmp_path, bug.application, "memory", seed=1)


@pytest.mark.parametrize("bug", BUGS)
def test_the_scenario_passes_as_the_engine_is(prepared: World, bug: str) -> None:
    with prepared:
        prepared.create_topics().append(24)
        BUGS[bug].scenario(prepared)


@pytest.mark.parametrize("bug", BUGS)
def test_the_bug_is_caught(prepared: World, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    BUGS[bug].plant(monkeypatch)

    with prepared:
        prepared.create_topics().append(24)
        with pytest.raises((Exception, pytest.fail.Exception)) as caught:
            BUGS[bug].scenario(prepared)

    caught.match(BUGS[bug].symptom)
