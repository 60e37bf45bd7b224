"""Step 7: what the coordinator demands before it commits; and what follows when a later step fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.simulation.fault_executor import Executor
from tests.simulation.fault_programs import APPLICATIONS
from tests.simulation.fault_world import World
from tests.spark.lab import Lab
from tests.spark.programs import one_level

from millstream import StreamsConfig
from millstream.commit.coordinator import CommitCoordinator, CoordinatorSettings
from millstream.commit.epoch_job import EpochJob, TaskReport, WrongInstance
from millstream.commit.lease import LeaseLostError
from millstream.commit.publisher import EmbeddedPublisher
from millstream.commit.reports import EpochMismatchError, WrongInstanceError
from millstream.durable import DiskFullError
from millstream.engine.local import MAX_RUNS
from millstream.log.embedded.file_log import FileLog
from millstream.state.errors import TaskLockedError


def planned(world: World) -> tuple[Executor, EpochJob]:
    """The next epoch of a new coordinator."""
    world.close()
    app = world.open()
    job = app.coordinator.plan_epoch()
    assert job is not None
    return app, job


def files_in(world: World) -> set[Path]:
    return set((world.application_folder / "manifests").iterdir())


def refused(world: World, app: Executor, job: EpochJob, reports: list[TaskReport | WrongInstance]) -> str:
    before = files_in(world)
    with pytest.raises((EpochMismatchError, WrongInstanceError)) as caught:
        app.coordinator.commit(job, reports)
    assert files_in(world) == before
    return str(caught.value)


def test_an_epoch_with_a_report_missing_is_not_committed(running: World) -> None:
    app, job = planned(running)
    reports = app.run_tasks(job)

    message = refused(running, app, job, reports[1:])

    assert message == "epoch 5: no report of ['0_0'], and unplanned reports of []"


def test_an_epoch_with_a_report_too_many_is_not_committed(running: World) -> None:
    app, job = planned(running)
    reports = app.run_tasks(job)

    assert refused(running, app, job, [*reports, reports[0]]) == "epoch 5: task 0_0 reported twice"
    stranger = replace(reports[0], task_id="7_0")
    assert "unplanned reports of ['7_0']" in refused(running, app, job, [*reports, stranger])


def test_an_epoch_in_which_other_rows_were_consumed_than_sent_is_not_committed(running: World) -> None:
    app, job = planned(running)
    reports = app.run_tasks(job)
    first = reports[0]
    assert isinstance(first, TaskReport)
    sent = tuple(block._replace(digest="another") for block in first.sent)

    message = refused(running, app, job, [replace(first, sent=sent), *reports[1:]])

    assert message == (
        "epoch 5: task 1_0 consumed rows of another attempt than those that are named: the epoch has to run "
        "again"
    )


def test_a_block_that_was_taken_twice_or_not_at_all_is_not_committed(running: World) -> None:
    app, job = planned(running)
    reports = app.run_tasks(job)
    number, taker = next(
        (number, report)
        for number, report in enumerate(reports)
        if isinstance(report, TaskReport) and report.consumed
    )

    for consumed in (taker.consumed * 2, taker.consumed[1:]):
        others = [*reports[:number], replace(taker, consumed=consumed), *reports[number + 1 :]]
        assert "consumed rows of another attempt" in refused(running, app, job, others)


def test_rows_of_another_attempt_that_are_equal_are_as_good(running: World) -> None:
    app, job = planned(running)
    named, heard = app.run_tasks(job), app.run_tasks(job)

    manifest = app.coordinator.commit(job, [*named[:2], *heard[2:]])

    app.coordinator.publish(manifest)
    running.check_to_the_end()


def test_a_task_that_is_cold_while_another_instance_is_warm_says_so(tmp_path: Path) -> None:
    with World(tmp_path, "ledger", "lmdb").create_topics() as world:
        world.append(18)
        world.epoch()
        world.lose_local_state("0_0")
        app = world.app or world.open()
        job = app.coordinator.plan_epoch(instances={"0_0": "elsewhere", "0_1": "elsewhere"})
        assert job is not None

        reports = app.run_tasks(job)

        misplaced = [report for report in reports if isinstance(report, WrongInstance)]
        here = app.worker.directory.instance_id
        assert misplaced == [WrongInstance("0_0", here, "elsewhere")]
        message = refused(world, app, job, reports)
        assert message == f"task 0_0 ran on instance {here}, where its state is not; it is on elsewhere"
        world.check_to_the_end()


@pytest.mark.parametrize(("acceptable_lag", "expected"), [(2, TaskReport), (1, WrongInstance)])
def test_a_task_that_is_expected_elsewhere_runs_if_it_has_little_to_read(
    tmp_path: Path, acceptable_lag: int, expected: type[TaskReport | WrongInstance]
) -> None:
    lab = Lab(tmp_path / "lab", None)
    lab.topic("in", [[("river", "a"), ("lake", "b")] * 6])
    with InProcessExecutor(
        one_level(),
        application_id="app",
        log_root=lab.folder / "log",
        state_dir=lab.state_dir,
        backend="lmdb",
        config=StreamsConfig(acceptable_recovery_lag=acceptable_lag),
        settings=CoordinatorSettings(max_records=4),
        apply_after_commit=False,
    ) as app:
        app.run_epoch()
        app.run_epoch()
        job = app.coordinator.plan_epoch(instances={"0_0": "elsewhere"})
        assert job is not None
        assert [type(report) for report in app.run_tasks(job)] == [expected], "it misses two records"


def test_a_task_whose_local_state_is_locked_does_not_fail_for_want_of_a_look_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with World(tmp_path, "ledger", "lmdb").create_topics() as world:
        world.append(18)
        app = world.app or world.open()
        world.epoch()
        world.append(18)
        job = app.coordinator.plan_epoch(instances={"0_0": "elsewhere", "0_1": "elsewhere"})
        assert job is not None

        def locked(*_args: object, **_settings: object) -> dict[str, int]:
            raise TaskLockedError("for a moment")

        monkeypatch.setattr("millstream.commit.task_attempt.positions_on_disk", locked)

        assert [type(report) for report in app.run_tasks(job)] == [TaskReport] * len(job.tasks)


def test_an_epoch_runs_again_when_its_attempts_disagree(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = disagreeing(monkeypatch, times=MAX_RUNS - 1)

    running.epoch()

    assert len(runs) == MAX_RUNS
    running.check()
    running.check_to_the_end()


def test_an_epoch_runs_again_a_bounded_number_of_times(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = disagreeing(monkeypatch, times=100)

    with pytest.raises(EpochMismatchError):
        running.epoch()

    assert len(runs) == MAX_RUNS
    monkeypatch.undo()
    running.check_to_the_end()


def disagreeing(monkeypatch: pytest.MonkeyPatch, times: int) -> list[EpochJob]:
    """Let the first runs of an epoch lose a report."""
    runs: list[EpochJob] = []

    def run_tasks(self: InProcessExecutor, job: EpochJob) -> list[TaskReport | WrongInstance]:
        runs.append(job)
        return real(self, job)[1:] if len(runs) <= times else real(self, job)

    real = InProcessExecutor.run_tasks
    monkeypatch.setattr(Executor, "run_tasks", run_tasks)
    return runs


def test_the_next_epoch_waits_until_the_last_is_published(running: World) -> None:
    app, job = planned(running)
    app.coordinator.commit(job, app.run_tasks(job))
    waiting = app.coordinator.head

    following = replace(job, epoch=type(job.epoch)(job.epoch + 1))
    message = refused(running, app, following, app.run_tasks(job))

    assert message == "epoch 6 can't be committed before epoch 5 is published"
    app.coordinator.publish(waiting)
    running.check()


def test_an_epoch_whose_publication_failed_is_published_before_the_next(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFullError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(FileLog, "publish_all", full)
        with pytest.raises(DiskFullError):
            running.epoch()

    running.epoch()

    running.check()
    running.check_to_the_end()


def test_a_coordinator_that_was_overtaken_commits_nothing_ever_again(running: World) -> None:
    running.stall(("commit.reported",))
    old = running.stalled[0]
    running.epoch()

    assert isinstance(old.wake(), LeaseLostError)

    running.stalled.clear()
    running.check_to_the_end()


def test_a_source_that_begins_at_the_end_reads_what_comes_after(running: World) -> None:
    """Also what comes before its first epoch: the end is looked up once."""
    app = running.app
    assert app is not None
    storage = replace(app.worker.storage, application_id="late")
    coordinator = CommitCoordinator(
        storage,
        app.log,
        EmbeddedPublisher(storage, app.log),
        APPLICATIONS["ledger"].build().plan(),
        clock=lambda: running.now,
        settings=CoordinatorSettings(offset_reset="latest"),
    )
    coordinator.open()
    ends = [len(rows) for rows in running.inputs]
    assert coordinator.plan_epoch() is None

    running.append(12)

    job = coordinator.plan_epoch()
    assert job is not None
    assert [start for start, _ in job.cut["orders"].values()] == ends
    assert [end for _, end in job.cut["orders"].values()] == [len(rows) for rows in running.inputs]
