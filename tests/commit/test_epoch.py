"""The ten steps of an epoch: their order, and what is run again when one of them fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.simulation.fault_world import World

from millstream import failpoints
from millstream.commit.epoch import CommittedEpoch, run_epoch
from millstream.commit.epoch_job import EpochJob, TaskReport, WrongInstance
from millstream.commit.lease import LeaseLostError
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator

Epoch = CommittedEpoch[str, str, str]


class Recorded:
    """A coordinator and an engine in one that write down who is called; `failures` come before a success."""

    def __init__(self, *failures: Exception, overtaken: bool = False, planned: bool = True) -> None:
        self.calls: list[str] = []
        self.instances: Mapping[str, str] = {"0_0": "here"}
        self._failures = list(failures)
        self._overtaken = overtaken
        self._planned = planned

    def resume(self) -> None:
        self.calls.append("resume")

    def plan_epoch(self, *, tick: bool, instances: Mapping[str, str]) -> str | None:
        self.calls.append(f"plan tick={tick} {dict(instances)}")
        return "job" if self._planned else None

    def run_tasks(self, job: str) -> Sequence[str | WrongInstance]:
        self.calls.append(f"run {job}")
        if self._failures:
            raise self._failures.pop(0)
        return ["report"]

    def commit(self, job: str, reports: Sequence[str | WrongInstance]) -> str:
        self.calls.append(f"commit {job} {list(reports)}")
        return "manifest"

    def publish(self, manifest: str) -> None:
        self.calls.append(f"publish {manifest}")

    def verify(self) -> None:
        self.calls.append("verify")
        if self._overtaken:
            raise LeaseLostError("overtaken")

    def plan_again(self, job: str, error: Exception, tries: int) -> str:
        return f"{job} after {error} ({tries})"

    def failed(self, job: str, error: Exception, tries: int) -> None:
        if tries > 2:
            raise MillstreamError(f"given up: {job}") from error

    def apply(self, epoch: Epoch) -> None:
        self.calls.append(f"apply {epoch.manifest}")

    def listen(self, epoch: Epoch) -> None:
        self.calls.append(f"tell {epoch.job} {list(epoch.reports)} {list(epoch.stages)}")

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        self.calls.append("heart beats")
        yield
        self.calls.append("heart rests")


def test_an_epoch_is_its_ten_steps_in_order() -> None:
    both = Recorded()
    with failpoints.armed("commit.ended", lambda: both.calls.append("ended")):
        epoch = run_epoch(both, both, tick=True, listeners=[both.listen], heartbeat=both.heartbeat)
    assert epoch is not None
    assert both.calls == [
        "resume",
        "plan tick=True {'0_0': 'here'}",
        "heart beats",
        "run job",
        "heart rests",
        "commit job ['report']",
        "publish manifest",
        "tell job ['report'] ['plan', 'job and commit', 'publish']",
        "ended",
        "apply manifest",
    ]


def test_without_anything_to_do_nothing_is_run() -> None:
    both = Recorded(planned=False)
    assert run_epoch(both, both, listeners=[both.listen]) is None
    assert both.calls == ["resume", "plan tick=False {'0_0': 'here'}"]


def test_what_failed_before_the_commit_is_run_again() -> None:
    both = Recorded(OSError("once"), OSError("twice"))
    epoch = run_epoch(both, both)
    assert epoch is not None
    assert epoch.job == "job after once (1) after twice (2)"
    assert both.calls[2:6] == ["run job", "verify", "run job after once (1)", "verify"]


def test_an_epoch_that_is_given_up_says_why() -> None:
    both = Recorded(*[OSError("again")] * 3)
    with pytest.raises(MillstreamError, match="given up") as caught:
        run_epoch(both, both)
    assert str(caught.value.__cause__) == "again"


def test_a_coordinator_that_was_overtaken_says_so_whatever_else_failed() -> None:
    both = Recorded(OSError("the files are gone"), overtaken=True)
    with pytest.raises(LeaseLostError):
        run_epoch(both, both)
    assert both.calls[-1] == "verify"


def test_tasks_whose_state_is_nowhere_run_where_it_was_twice_and_then_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with World(tmp_path, "ledger", "lmdb").create_topics() as world:
        world.append(18)
        world.epoch()
        app = world.app or world.open()
        here = app.worker.directory.instance_id
        assert {app.instances[task] for task in app.coordinator.head.tasks} == {here}
        expected: list[str | None] = []
        real = type(app).run_tasks

        def run_tasks(job: EpochJob) -> list[TaskReport | WrongInstance]:
            expected.append(job.tasks[0].expected_instance)
            return real(app, job)

        monkeypatch.setattr(app, "_instances", dict.fromkeys(app.instances, "a host that is gone"))
        monkeypatch.setattr(app, "run_tasks", run_tasks)
        world.lose_local_state()
        world.epoch()
        assert expected == ["a host that is gone", "a host that is gone", None]
        assert app.instances["0_0"] == here
        world.check()
