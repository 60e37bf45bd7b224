"""One epoch, from the plan to the local stores: the ten steps of the commit in their order, written once.

Every runner of epochs calls `run_epoch`: Spark, the local engine, the test driver and the simulation of
faults. A coordinator decides what is read and what becomes true, an engine runs tasks; neither knows the
other, and nobody else calls a step.

==  =========  =====================================================  ========================================
 #  step       by                                                     failpoints
==  =========  =====================================================  ========================================
 1  lease      coordinator.open, once per term: take over, and fence  commit.leased, commit.fenced
               coordinator.resume: renew, publish what the head left
 2  plan       coordinator.plan_epoch                                 commit.planned
 3  open       engine.run_tasks, for each task                        commit.opened
 4  process    (:func:`millstream.commit.worker.run_task`)            commit.processed
 5  seal                                                              commit.sealing, commit.sealed
 6  report                                                            commit.reported
 7  commit     coordinator.commit: check, and write the manifest      commit.checked, commit.manifest_written
 8  publish    coordinator.publish; then, beside the next, witness    commit.published, commit.witness_written
 9  end        listeners                                              commit.ended
10  apply      engine.apply                                           commit.store_applied, commit.applied
==  =========  =====================================================  ========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Generic, NamedTuple, Protocol, TypeVar

from millstream import failpoints
from millstream.commit.epoch_job import WrongInstance

J = TypeVar("J")
R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
M = TypeVar("M")

_NO_HEARTBEAT = nullcontext()


class CommittedEpoch(NamedTuple, Generic[J, R, M]):
    """An epoch that is committed and published."""

    job: J
    reports: Sequence[R]
    """One of each task. Those of attempts that were not committed are not among them."""
    manifest: M
    stages: Mapping[str, float]
    """How many seconds the coordinator spent on plan, job and commit, and publish."""


class Coordinator(Protocol[J, R_contra, M]):
    """Decides what an epoch reads, and what is true after it."""

    def resume(self) -> None:
        """Step 1: make sure that the lease holds and the last epoch is published."""

    def plan_epoch(self, *, tick: bool, instances: Mapping[str, str]) -> J | None:
        """Step 2: choose what the epoch reads; None if there is nothing to do."""

    def commit(self, job: J, reports: Sequence[R_contra | WrongInstance]) -> M:
        """Step 7: check that all reports agree, and commit."""

    def publish(self, manifest: M) -> None:
        """Step 8: show what the epoch made."""

    def verify(self) -> None:
        """Raise if another coordinator has taken over."""

    def plan_again(self, job: J, error: Exception, tries: int) -> J:
        """The same epoch once more, after it has failed so many times."""


class TaskRunner(Protocol[J, R, M]):
    """The part of an engine that an epoch needs."""

    @property
    def instances(self) -> Mapping[str, str]:
        """The instance that holds the state of each task, as far as it is known."""

    def run_tasks(self, job: J) -> Sequence[R | WrongInstance]:
        """Steps 3 to 6: run all tasks, level by level."""

    def failed(self, job: J, error: Exception, tries: int) -> None:
        """Raise, unless an epoch that has failed so many times is run again."""

    def apply(self, epoch: CommittedEpoch[J, R, M]) -> None:
        """Step 10: bring local stores to the commit, now or when they are opened next."""


def run_epoch(
    coordinator: Coordinator[J, R, M],
    engine: TaskRunner[J, R, M],
    *,
    tick: bool = False,
    listeners: Iterable[Callable[[CommittedEpoch[J, R, M]], None]] = (),
    heartbeat: Callable[[], AbstractContextManager[None]] | None = None,
) -> CommittedEpoch[J, R, M] | None:
    """Run one epoch; None if there is nothing to do.

    1. Hold the lease; publish what the head left.
    2. Plan: choose what is read, and by which tasks.
    3. Each task opens its stores at the version that the head names,
    4. processes against overlays,
    5. seals what it made in one durable file,
    6. and reports. Tasks run under a `heartbeat`.
    7. Check that the reports agree, and write the manifest: this is the commit. What fails up to here is not
       visible to anybody, and may be run again.
    8. Publish: topics show what the manifest names.
    9. Tell the listeners. From here on the next epoch may be planned.
    10. Apply: local stores follow their changelogs to the commit.
    """
    began = perf_counter()
    coordinator.resume()  # 1.
    job = coordinator.plan_epoch(tick=tick, instances=engine.instances)  # 2.
    if job is None:
        return None
    planned = perf_counter()
    tries = 0
    while True:
        try:
            with _NO_HEARTBEAT if heartbeat is None else heartbeat():
                answers = engine.run_tasks(job)  # 3. 4. 5. 6.
            manifest = coordinator.commit(job, answers)  # 7.
            break
        except Exception as error:  # noqa: BLE001 - raised again, unless it may be run again
            tries += 1
            job = _job_to_run_again(coordinator, engine, job, error, tries)
    committed = perf_counter()
    coordinator.publish(manifest)  # 8.
    stages = {
        "plan": planned - began,
        "job and commit": committed - planned,
        "publish": perf_counter() - committed,
    }
    reports = [answer for answer in answers if not isinstance(answer, WrongInstance)]
    epoch = CommittedEpoch(job, reports, manifest, stages)
    for listener in listeners:  # 9.
        listener(epoch)
    failpoints.hit("commit.ended")
    engine.apply(epoch)  # 10.
    return epoch


def _job_to_run_again(
    coordinator: Coordinator[J, R, M], engine: TaskRunner[J, R, M], job: J, error: Exception, tries: int
) -> J:
    """The retry of an epoch: the job to run next. Raises if there is none."""
    coordinator.verify()  # one that was overtaken says so, whatever else went wrong because of it
    engine.failed(job, error, tries)
    return coordinator.plan_again(job, error, tries)
