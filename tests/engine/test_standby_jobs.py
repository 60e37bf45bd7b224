"""Standby tasks of Spark jobs: which slices are run, in which order, and when. No Spark is needed for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from millstream.commit.epoch_job import PlannedTask, TaskReport
from millstream.commit.manifest import TaskEntry
from millstream.commit.sealed_file import NO_FILE
from millstream.commit.standby import StandbyPosition
from millstream.engine.assignment.assigner import LiveSlot, SlotAssigner
from millstream.engine.assignment.model import AssignmentRules, Role
from millstream.engine.spark import standby_jobs
from millstream.engine.spark.standby_jobs import Slice, StandbyJobs
from millstream.state.local.directory import Checkpoint
from millstream.task.task import TaskState
from millstream.types import Attempt, Epoch, Offset, Partition, Version

TASKS = 4


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def entry(version: int, records: int) -> TaskEntry:
    changelogs = {"counts": Offset(records)}
    return TaskEntry(Epoch(version), "", str(version), (), changelogs, 0, (), ())


def report(task_id: str, instance: str) -> TaskReport:
    return TaskReport(task_id, Attempt(1), instance, NO_FILE, TaskState(), {}, {}, (), (), (), 0, False)


def slot(number: int, host: str, held: Mapping[str, Checkpoint] | None = None) -> LiveSlot:
    return LiveSlot(f"{number} on {host}", f"instance-{host}", host, {}, held or {})


class Copies:
    """Two hosts, tasks that run on both, and slices that are noted in place of being run."""

    def __init__(self) -> None:
        self.assigner = SlotAssigner({0}, AssignmentRules(standbys=1))
        self.tasks = [PlannedTask(f"0_{number}", 0, Partition(number), 0) for number in range(TASKS)]
        self.run: list[Slice] = []
        self.fails = False
        self.gate = threading.Event()
        self.gate.set()
        self.jobs = StandbyJobs(self.assigner, self._follow, self.gate.set)

    def _follow(self, chosen: Slice) -> dict[str, StandbyPosition]:
        self.gate.wait()
        self.run.append(chosen)
        if self.fails:
            raise OSError("no core")
        return {
            task.task_id: StandbyPosition(Version(entry.version), {**entry.changelogs})
            for task, entry in chosen.tasks
        }

    def commit(self, version: int, records: Mapping[int, int] | None = None) -> None:
        """All tasks have committed where they run; `records` says how many each has in its changelog."""
        counts = records or {}
        self.entries = {
            task.task_id: entry(version, counts.get(number, 100 * version))
            for number, task in enumerate(self.tasks)
        }
        held = {task: Checkpoint(Version(version), {**one.changelogs}) for task, one in self.entries.items()}
        self.assigner.note_tasks(self.tasks, self.entries)
        live = {0: slot(0, "a"), 1: slot(1, "b")}
        placed = self.assigner.update(live)
        for number, one in live.items():
            here = {task: held[task] for task, where in placed.slots().items() if where == number}
            self.assigner.note_followed(
                one.instance,
                {task: StandbyPosition(point.version, {**point.positions}) for task, point in here.items()},
            )
        self.jobs.wake()

    def is_caught_up(self) -> bool:
        return all(not one.is_behind for one in self.assigner.followers())


@pytest.fixture
def copies() -> Iterator[Copies]:
    made = Copies()
    yield made
    made.gate.set()
    made.jobs.close()


@contextmanager
def held_back(copies: Copies) -> Iterator[None]:
    copies.gate.clear()
    yield
    copies.gate.set()


def test_copies_are_followed_slot_by_slot_those_with_least_to_do_first(copies: Copies) -> None:
    copies.commit(1, {0: 40, 1: 30, 2: 20, 3: 10})
    until(copies.is_caught_up)
    followed = {one.slot: [task.task_id for task, _ in one.tasks] for one in copies.run}
    assert followed == {0: ["0_3", "0_1"], 1: ["0_2", "0_0"]}
    assert {one.instance for one in copies.run} == {"instance-a", "instance-b"}
    count = len(copies.run)
    copies.jobs.wake()
    copies.commit(2)
    until(copies.is_caught_up)
    assert len(copies.run) == count + 2, "only what is behind"


def test_a_slice_is_of_the_last_commit_also_if_others_were_missed(copies: Copies) -> None:
    with held_back(copies):
        copies.commit(1)
        copies.commit(2)
        copies.commit(3)
    until(copies.is_caught_up)
    assert {found.version for one in copies.run[1:] for _, found in one.tasks} == {3}


def test_none_begins_while_an_epoch_is_at_work(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_jobs, "LONGEST_WAIT_S", 3600.0)
    with copies.jobs.epoch_at_work():
        copies.commit(1)
        assert not copies.run
    until(copies.is_caught_up)


def test_none_is_at_work_in_a_pause(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_jobs, "_LONGEST_PAUSE_S", 60.0)
    copies.gate.clear()
    copies.commit(1)
    until(lambda: copies.jobs._is_at_work)

    def go_on_in_the_pause() -> None:
        until(lambda: copies.jobs._is_paused)
        copies.gate.set()

    threading.Thread(target=go_on_in_the_pause).start()
    with copies.jobs.paused():
        assert len(copies.run) == 1, "it was waited for"
        copies.commit(2)
        assert not copies.jobs._is_at_work
    until(copies.is_caught_up)
    assert len(copies.run) > 1


def test_a_long_epoch_does_not_end_all_copying_but_its_own_tasks_are_left_to_it(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_jobs, "LONGEST_WAIT_S", 0.0)
    with copies.jobs.epoch_at_work():
        copies.commit(1)
        until(copies.is_caught_up)
        copies.run.clear()  # the thread may look for the next slice at any time from here on
        copies.assigner.begin_term()
        copies.assigner.note_tasks(copies.tasks, copies.entries)
        copies.assigner.update({0: slot(0, "a"), 1: slot(1, "b")})
        copies.jobs.wake()
        until(lambda: sum(one.is_behind for one in copies.assigner.followers()) == TASKS)
        assert {task.task_id: one.slot for one in copies.run for task, _ in one.tasks} == {
            task: placed.standbys[0].slot for task, placed in copies.assigner.now.tasks.items()
        }
    until(copies.is_caught_up)


def test_a_slice_that_fails_is_tried_again_later(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_jobs, "_RETRY_S", 0.01)
    copies.fails = True
    copies.commit(1)
    until(lambda: len(copies.run) > 4)
    assert not copies.is_caught_up()
    copies.fails = False
    until(copies.is_caught_up)


def test_what_is_at_work_is_given_up_in_the_end(copies: Copies) -> None:
    copies.gate.clear()
    copies.commit(1)
    copies.jobs.close()
    assert len(copies.run) <= 1


def test_without_copies_there_is_no_thread() -> None:
    jobs = StandbyJobs(SlotAssigner({0}), lambda _: {}, lambda: None)
    jobs.wake()
    assert jobs._thread is None
    jobs.close()


@pytest.mark.parametrize(("applies_at_once", "version"), [(True, 2), (False, 1)])
def test_who_ran_a_task_has_its_last_commit_on_disk_only_if_commits_are_applied_at_once(
    applies_at_once: bool, version: int
) -> None:
    """Stores of Spark jobs follow a commit when they are opened next: a copy that stays has to follow it."""
    assigner = SlotAssigner({0}, AssignmentRules(standbys=1), applies_at_once)
    task = PlannedTask("0_0", 0, Partition(0), 0)
    assigner.note_tasks([task], {"0_0": entry(1, 10)})
    home = assigner.update({0: slot(0, "a"), 1: slot(1, "b")}).tasks["0_0"].active
    assigner.note_committed(["0_0"], {"0_0": entry(2, 20)}, [report("0_0", home.instance)])
    assert assigner.version("0_0", home.instance) == 2, "it opens them before it needs them"
    assert not [one for one in assigner.followers() if one.is_behind and one.role is Role.ACTIVE]
    assigner.drain(home.host)
    moved = assigner.update({0: slot(0, "a"), 1: slot(1, "b")}).tasks["0_0"].active
    assert moved.instance != home.instance
    assert assigner.version("0_0", home.instance) == version
