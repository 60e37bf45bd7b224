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
 4  process    (:func:`millstream.commit.task_attempt.run_task`)      commit.processed
 5  seal                                                              commit.sealing, commit.sealed
 6  report                                                            commit.reported
 7  commit     coordinator.commit: check, and write the manifest      commit.checked, commit.manifest_written
 8  publish    coordinator.publish; then, beside the next, witness    commit.published, commit.witness_written
 9  end        listeners                                              commit.ended
10  apply      engine.apply                                           commit.store_applied, commit.applied
==  =========  =====================================================  ========================================

Where records are waiting, steps 2 to 6 of the next epoch may begin before step 8 (:class:`EpochAhead`). Its
step 7 never does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import perf_counter
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from millstream import failpoints
from millstream.commit.epoch_job import WrongInstance

J = TypeVar("J")
R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
M = TypeVar("M")

_LOGGER: Final = logging.getLogger("millstream")
_NO_HEARTBEAT: Final = nullcontext()


class CommittedEpoch(NamedTuple, Generic[J, R, M]):
    """An epoch that is committed and, but for those who begin the next one ahead, published."""

    job: J
    reports: Sequence[R]
    """One of each task. Those of attempts that were not committed are not among them."""
    manifest: M
    stages: Mapping[str, float]
    """How many seconds the coordinator spent on plan, job and commit, and publish, when it was its turn."""


RunningTasks: TypeAlias = Callable[[], Sequence[R | WrongInstance]]
"""Tasks of an epoch that have begun: waits for them, and gives their answers."""


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


class AheadRunner(TaskRunner[J, R, M], Protocol):
    """An engine that may begin an epoch while the one before it is published."""

    def begin_next(
        self, epoch: CommittedEpoch[J, R, M], plan: Callable[[], J | None]
    ) -> tuple[J, RunningTasks[R]] | None:
        """Begin steps 3 to 6 of the next epoch while this one, which is committed, is published.

        A store that has to be restored for it waits until that is done. None: not here, or not now.
        """
        del epoch, plan
        return None

    def cancel_next(self) -> None:
        """Give up the epoch that :meth:`begin_next` has begun."""
        return


class EpochAhead(Generic[J, R, M]):
    """The next epoch of an application, whose tasks may have begun while the one before it is published.

    Used by the thread that runs epochs. `has_next` says whether there will be one, and at once.
    """

    def __init__(
        self,
        coordinator: Coordinator[J, R, M],
        engine: AheadRunner[J, R, M],
        has_next: Callable[[], bool],
    ) -> None:
        self._coordinator = coordinator
        self._engine = engine
        self._has_next = has_next
        self._begun: tuple[J, RunningTasks[R]] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether an epoch has begun whose turn has not come yet."""
        return self._begun is not None

    def begin(self, epoch: CommittedEpoch[J, R, M]) -> None:
        """Begin it, if there is one. What fails here fails again, and is told, when its turn has come."""
        if not self._has_next():
            return
        plan = partial(self._coordinator.plan_epoch, tick=False, instances=self._engine.instances)
        try:
            self._begun = self._engine.begin_next(epoch, plan)
        except Exception:
            _LOGGER.debug("The next epoch could not begin ahead of its turn", exc_info=True)

    def take(self) -> tuple[J, RunningTasks[R]] | None:
        """The epoch, if it has begun: its turn has come."""
        begun, self._begun = self._begun, None
        return begun

    def cancel(self) -> None:
        """Give it up, if it has begun."""
        if self.take() is not None:
            self._engine.cancel_next()


def run_epoch(
    coordinator: Coordinator[J, R, M],
    engine: TaskRunner[J, R, M],
    *,
    tick: bool = False,
    listeners: Iterable[Callable[[CommittedEpoch[J, R, M]], None]] = (),
    heartbeat: Callable[[], AbstractContextManager[None]] | None = None,
    ahead: EpochAhead[J, R, M] | None = None,
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

    `ahead` has the epoch if 2 to 6 have begun while the one before it was published, and begins the next one.
    """
    began = perf_counter()
    coordinator.resume()  # 1.
    begun = None if ahead is None else ahead.take()
    if begun is not None:
        job, tasks = begun
    else:
        made = coordinator.plan_epoch(tick=tick, instances=engine.instances)  # 2.
        if made is None:
            return None
        job, tasks = made, partial(engine.run_tasks, made)
    planned = perf_counter()
    tries = 0
    while True:
        try:
            with _NO_HEARTBEAT if heartbeat is None else heartbeat():
                answers = tasks()  # 3. 4. 5. 6.
            manifest = coordinator.commit(job, answers)  # 7.
            break
        except Exception as error:  # noqa: BLE001 - raised again, unless it may be run again
            tries += 1
            job = _job_to_run_again(coordinator, engine, job, error, tries)
            tasks = partial(engine.run_tasks, job)
    committed = perf_counter()
    reports = [answer for answer in answers if not isinstance(answer, WrongInstance)]
    if ahead is not None:
        ahead.begin(CommittedEpoch(job, reports, manifest, {}))
    _publish(coordinator, manifest, ahead)  # 8.
    stages = {
        "plan": planned - began,
        "job and commit": committed - planned,
        "publish": perf_counter() - committed,
    }
    epoch = CommittedEpoch(job, reports, manifest, stages)
    for listener in listeners:  # 9.
        listener(epoch)
    failpoints.hit("commit.ended")
    engine.apply(epoch)  # 10.
    return epoch


def _publish(coordinator: Coordinator[J, R, M], manifest: M, ahead: EpochAhead[J, R, M] | None) -> None:
    try:
        coordinator.publish(manifest)
    except BaseException:
        if ahead is not None:
            ahead.cancel()
        raise


def _job_to_run_again(
    coordinator: Coordinator[J, R, M], engine: TaskRunner[J, R, M], job: J, error: Exception, tries: int
) -> J:
    """The retry of an epoch: the job to run next. Raises if there is none."""
    coordinator.verify()  # one that was overtaken says so, whatever else went wrong because of it
    engine.failed(job, error, tries)
    return coordinator.plan_again(job, error, tries)
