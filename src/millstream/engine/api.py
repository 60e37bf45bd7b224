"""What runs tasks: the one protocol behind which engines stand.

An engine knows where tasks run and how they get there. It does not know when an epoch runs, what it reads or
what becomes of it: that is :mod:`millstream.engine.loop` and :mod:`millstream.commit.epoch`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from millstream.commit.epoch import AheadRunner, CommittedEpoch
from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport
from millstream.commit.manifest import Manifest, TaskEntry
from millstream.commit.source_times import TimesRequest
from millstream.commit.worker import Worker
from millstream.engine.assignment.view import AssignedTask, Rebalance
from millstream.errors import ConfigError, MillstreamError, StoreUnavailableError

T = TypeVar("T")

DurableEpoch: TypeAlias = CommittedEpoch[EpochJob, TaskReport, Manifest]
"""An epoch that a manifest names."""
TaskWork: TypeAlias = Callable[[Worker, PlannedTask, TaskEntry], T]
"""Something to do for a task where its state is. Travels to other processes."""


class EpochFailedError(MillstreamError):
    """An epoch could not be run, though the user's program is not to blame. Nothing of it is visible."""


class Engine(AheadRunner[EpochJob, TaskReport, Manifest], Protocol):
    """Runs the tasks of one application."""

    def check(self) -> None:
        """Refuse a program that can't be run here, before anything is opened or written."""
        return

    def open(self) -> None:
        """Get ready to run tasks. Opening again does no harm."""

    def expect_records(self, count: int) -> None:
        """Say before `open` that the run will end after about so many records, if it will."""
        del count

    def read_times(self, requests: Sequence[TimesRequest]) -> Sequence[array[int]]:
        """Extract the timestamps of records that an epoch may take, before it is planned."""

    def nothing_to_do(self, tasks: Iterable[PlannedTask], head: Manifest) -> None:
        """Before the first epoch, and when there is none to run: see to copies of state, if any are kept."""
        del tasks, head

    def prepare(self) -> None:
        """Get ready as far as that is possible while somebody else runs the application."""
        return

    def assigned(self) -> Sequence[AssignedTask]:
        """Where tasks are, and copies of their state, if the engine places them."""
        return ()

    def places(self, task_id: str) -> Sequence[AssignedTask]:
        """Where one task is, and copies of its state."""
        return [one for one in self.assigned() if one.task == task_id]

    def ask(self, slot: int, work: Callable[..., T], *arguments: Any, timeout_s: float) -> T:
        """Let the process of a slot do something small beside the epochs, and wait for what comes of it.

        `work` gets its worker and the arguments. Raises a `StoreNotHereError` if it does not answer.
        """
        del slot, work, arguments, timeout_s
        raise StoreUnavailableError(
            "No process has stores open that can be read: the application does not run in this process, or "
            'its engine keeps none. Remedy: start it, with engine="resident"; or read_from="replica".'
        )

    def tell(self, slot: int, work: Callable[..., object], *arguments: Any) -> None:
        """The same, if nothing is to come of it."""
        del slot, work, arguments

    def take_rebalances(self) -> Sequence[Rebalance]:
        """What has been placed otherwise since it was asked last."""
        return ()

    def drain(self, host: str, *, is_over: bool = False) -> None:
        """Let a host give its tasks away, without a break; or, if that is over, have some again."""
        del host, is_over
        raise ConfigError("An engine without Spark has one host, which can't be drained. Remedy: stop it.")

    def run_background(self, work: TaskWork[T], job: EpochJob, planned: PlannedTask, entry: TaskEntry) -> T:
        """Do some work for a task of an epoch where its state is, beside the epochs."""

    def cancel_background(self) -> None:
        """Give up what runs in the background."""

    def cancel(self) -> bool:
        """Let the epoch at work fail, soon and for good; may be called while a signal is handled.

        False: it can't be done from outside. Then whoever waits for the epoch is to be interrupted.
        """
        return False

    def close(self) -> None:
        """Let go of everything that `open` took."""


def homes_after(reports: Iterable[TaskReport]) -> dict[str, str]:
    """Where the state of tasks is after they ran. One that had nothing to do has opened nothing."""
    return {report.task_id: report.instance for report in reports if report.sealed is not None}
