"""Standby tasks of the resident engine: they follow, and take over. Slots are threads on several hosts."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.engine.hosts_in_threads import running_on
from tests.spark.lab import Lab
from tests.spark.programs import check_exact, one_level, two_levels, words
from tests.spark.test_workers import counting

from millstream import StreamsConfig
from millstream.commit.epoch_job import PlannedTask, TaskReport, WrongInstance
from millstream.commit.manifest import ManifestChain
from millstream.commit.standby import StandbyTask
from millstream.engine.assignment.rules import slot_assigner
from millstream.engine.assignment.view import AssignmentFile
from millstream.engine.spark.resident.messages import EpochAttempt, RunEpoch
from millstream.engine.spark.resident.slot_pool import Member, SlotLostError
from millstream.log import TopicPartition
from millstream.state.changelog import follow as following
from millstream.state.stores.segments import apply_changes
from millstream.types import Epoch, Partition

TWO_HOSTS = {0: "one", 1: "two"}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab", None)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each store has read from its changelog when it followed it."""
    read: list[int] = []
    real = following._read

    def counted(log: Any, target: Any, start: Any) -> Any:
        read.append(target.position.offset - start)
        return real(log, target, start)

    monkeypatch.setattr(following, "_read", counted)
    return read


def changelog_rows(lab: Lab) -> int:
    return sum(
        lab.log.latest(TopicPartition("app-counts-changelog", Partition(number))) for number in range(2)
    )


def test_each_task_has_a_standby_on_the_other_host_with_the_same_bytes_at_each_version(lab: Lab) -> None:
    lab.topic("in", parts := words(300, seed=1))
    settings = {"num_standby_replicas": 1, "max_records_per_epoch": 40}
    with running_on(lab, two_levels(), TWO_HOSTS, **settings) as app:
        app.run()
        until(app.is_caught_up)
        assert sorted(app.copies()) == ["1_0", "1_1"], "tasks without state have none"
        homes = {task: (app.active()[task], hosts[0]) for task, hosts in app.copies().items()}
        assert all(active != standby for active, standby in homes.values())
        assert app.engine.failures == []
    for task, (active, standby) in homes.items():
        assert app.bytes_of(task, active, "counts") == app.bytes_of(task, standby, "counts")
        checkpoints = [app.state_of(host) / "app" / task / ".checkpoint" for host in (active, standby)]
        assert checkpoints[0].read_text() == checkpoints[1].read_text()
    check_exact(lab, "two_levels", parts)


@pytest.mark.parametrize(("backend", "stateful"), [("lmdb", {1}), ("memory", set())])
def test_what_is_kept_in_memory_has_no_standbys(backend: str, stateful: set[int]) -> None:
    config = StreamsConfig(backend=backend, num_standby_replicas=1)
    assert slot_assigner(config, two_levels().plan()).stateful == stateful


def test_a_host_lost_in_the_middle_of_an_epoch_is_taken_over_by_the_standby_which_reads_the_lag_only(
    lab: Lab, rows_read: list[int]
) -> None:
    lab.topic("in", parts := words(300, seed=10))
    lost = threading.Event()

    def lose_one(_: str, value: str) -> None:
        if value == "weir" and lab.committed() >= 150 and not lost.is_set():
            lost.set()
            until(app.have_followed)
            rows_read.clear()
            app.lose("two")
            until(lambda: len(app.engine.pool.live()) == 1)

    settings = {"num_standby_replicas": 1, "max_records_per_epoch": 25, "acceptable_recovery_lag": 0}
    with running_on(lab, counting(lose_one), TWO_HOSTS, **settings) as app:
        app.run()
        assert [type(failure) for failure in app.engine.failures] == [SlotLostError]
        assert set(app.active().values()) == {"one"}
        stateful = app.engine.tasks.assignment.tasks
        moved = [one.active.why for task, one in stateful.items() if task.startswith("1_")]
        assert any("is there" in why for why in moved), "a copy"
        assert sum(rows_read) == 0, "they were at the last commit"
    check_exact(lab, "two_levels", parts)


def test_a_host_that_comes_back_reads_on_from_its_checkpoint_and_gets_its_tasks_again(
    lab: Lab, rows_read: list[int]
) -> None:
    parts = words(600, seed=3)
    lab.topic("in", [part[:200] for part in parts])
    settings = {"num_standby_replicas": 1, "max_records_per_epoch": 50, "acceptable_recovery_lag": 0}
    with running_on(lab, one_level(), TWO_HOSTS, **settings) as app:
        app.run()
        until(app.is_caught_up)
        before = changelog_rows(lab)
        app.lose("two")
        until(lambda: len(app.engine.pool.live()) == 1)
        for number, part in enumerate(parts):
            lab.append("in", part[200:], partition=number)
        app.run()
        assert app.active() == {"0_0": "one", "0_1": "one"}
        rows_read.clear()
        app.bring_back("two")
        until(lambda: len(app.engine.pool.live()) == 2)
        until(lambda: app.is_caught_up() and sorted(app.active().values()) == ["one", "two"])
        assert sum(rows_read) == changelog_rows(lab) - before > 0, "what it has missed, and only that"
    check_exact(lab, "one_level", parts)


def test_tasks_are_restored_where_they_are_to_run_before_their_next_record_comes(
    lab: Lab, rows_read: list[int]
) -> None:
    lab.topic("in", parts := words(300, seed=14))
    settings = {"num_standby_replicas": 1, "max_records_per_epoch": 50, "acceptable_recovery_lag": 0}
    with running_on(lab, one_level(), TWO_HOSTS, **settings) as app:
        app.run()
    for host in ("one", "two"):
        shutil.rmtree(app.state_of(host))
    rows_read.clear()
    with running_on(lab, one_level(), TWO_HOSTS, **settings) as app:
        until(lambda: app.is_caught_up() and {row.lag for row in app.assigner.assigned()} == {0})
        assert sum(rows_read) == 2 * changelog_rows(lab), "each task, and its standby"
        lab.append("in", [("river", "river")], partition=0)
        rows_read.clear()
        app.run()
        until(app.is_caught_up)
        assert sum(rows_read) == 1, "the standby of the task with a record"
    check_exact(lab, "one_level", [parts[0] + [("river", "river")], parts[1]])


def test_of_several_commits_a_standby_writes_the_last_row_of_each_key(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.topic("in", words(200, seed=16))
    with running_on(lab, one_level(), {0: "one"}, max_records_per_epoch=20) as app:
        app.run()
        chain = ManifestChain(app.storage)
        head = chain.head()
        assert head is not None
        last = head.tasks["0_0"]
        first = chain.record(Epoch(last.previous[0] - 3)).tasks["0_0"]
    written: list[int] = []
    real = apply_changes

    def counted(backend: Any, entries: Any, *args: Any, **how: Any) -> None:
        written.append(len(entries))
        real(backend, entries, *args, **how)

    monkeypatch.setattr(following, "apply_changes", counted)
    standby = StandbyTask(app.engine.launcher.make_worker("two"), PlannedTask("0_0", 0, Partition(0), 0))
    standby.follow(first)
    written.clear()
    standby.follow(last)
    standby.close()
    start, end = first.changelogs["counts"], last.changelogs["counts"]
    rows = lab.log.read(TopicPartition("app-counts-changelog", Partition(0)), start, end)
    keys = [key for batch in rows for key in batch.records.column(0).to_pylist()]
    assert written == [len(set(keys))] < [len(keys)]
    assert app.bytes_of("0_0", "two", "counts") == app.bytes_of("0_0", "one", "counts")


def test_an_epoch_waits_for_slots_with_tasks_of_it_and_not_for_others(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.topic("in", parts := words(100, seed=15))
    with running_on(lab, one_level(), TWO_HOSTS, num_standby_replicas=1) as app:
        app.run()
        asked: list[list[int]] = []
        begin = app.engine.pool.begin

        def noted(
            of: EpochAttempt, commands: Mapping[int, RunEpoch], members: Mapping[int, Member]
        ) -> Callable[[], list[TaskReport | WrongInstance]]:
            asked.append([*commands])
            return begin(of, commands, members)

        monkeypatch.setattr(app.engine.pool, "begin", noted)
        lab.append("in", [("river", "river")], partition=0)
        app.run()
        assert asked == [[app.engine.tasks.assignment.tasks["0_0"].active.slot]]
    check_exact(lab, "one_level", [parts[0] + [("river", "river")], parts[1]])


def test_a_new_host_gets_copies_first_and_tasks_when_they_have_caught_up(lab: Lab) -> None:
    lab.topic("in", parts := words(300, seed=4))
    settings = {"acceptable_recovery_lag": 0, "max_records_per_epoch": 50}
    with running_on(lab, one_level(), TWO_HOSTS, **settings) as app:
        app.lose("two")
        until(lambda: len(app.engine.pool.live()) == 1)
        app.run()
        seen: list[tuple[tuple[str, ...], int]] = []
        app.bring_back("two")
        until(lambda: len(app.engine.pool.live()) == 2)

        def is_moved() -> bool:
            app.loop.run_epoch(tick=False)
            state = tuple(sorted(app.active().values())), app.engine.tasks.assignment.warmups
            if not seen or seen[-1] != state:
                seen.append(state)
            return state == (("one", "two"), 0)

        until(is_moved)
        assert seen == [(("one", "one"), 1), (("one", "two"), 0)]
    check_exact(lab, "one_level", parts)


def test_a_drained_host_gives_its_tasks_away_without_a_failed_epoch_and_it_is_told_why(lab: Lab) -> None:
    parts = words(200, seed=5)
    lab.topic("in", [part[:50] for part in parts])
    settings = {"num_standby_replicas": 1, "max_records_per_epoch": 25, "acceptable_recovery_lag": 0}
    with running_on(lab, one_level(), TWO_HOSTS, **settings) as app:
        told: list[str] = []
        app.loop.rebalance_listeners.append(lambda rebalance: told.append(str(rebalance).splitlines()[0]))
        app.run()
        until(app.is_caught_up)
        app.assigner.drain("two")
        until(lambda: app.is_caught_up() and set(app.active().values()) == {"one"})
        for number, part in enumerate(parts):
            lab.append("in", part[50:], partition=number)
        app.run()
        until(lambda: app.is_caught_up() and "rebalance is over: host two is drained" in told)
        assert app.copies() == {}, "nobody else is there"
        assert app.engine.failures == []
        assert {"rebalance: host two is drained", "rebalance is over: host two is drained"} <= set(told)
        rows = app.assigner.assigned()
        assert {(row.role, row.host, row.lag, row.lag_epochs) for row in rows} == {("active", "one", 0, 0)}
        assert AssignmentFile(app.storage.path).read()
        app.assigner.undrain("two")
        until(lambda: app.is_caught_up() and sorted(app.active().values()) == ["one", "two"])
    check_exact(lab, "one_level", parts)
