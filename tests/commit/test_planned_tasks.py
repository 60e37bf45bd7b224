"""Which tasks an epoch plans, and whose reports it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import FastFiles

from millstream import Processor, Record, StreamsBuilder, serdes
from millstream.commit.epoch_job import EpochJob, TaskReport
from millstream.commit.planned_tasks import planned_task
from millstream.commit.reports import EpochMismatchError
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.types import Partition

PARTITIONS = 4


class Ignored(Processor[Any, Any, Any, Any]):
    """Does nothing, and might schedule a punctuator."""

    def process(self, record: Record[Any, Any]) -> None: ...


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcessExecutor]:
    """Lines are counted by word behind a repartition; orders are read by a processor that has a clock."""
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=serdes.string, value=serdes.string)
    lines.group_by(lambda _, word: word, key=serdes.string).count(store="counts")
    builder.stream("orders").process(Ignored)
    files = FastFiles()
    log = FileLog(tmp_path / "log", files=files)
    for topic in ("lines", "orders"):
        log.create_topic(topic, TopicConfig(PARTITIONS))
    with InProcessExecutor(
        builder.build(),
        application_id="app",
        log_root=tmp_path / "log",
        state_dir=tmp_path / "state",
        files=files,
    ) as app:
        yield app


def append(app: InProcessExecutor, topic: str, partition: int, *values: bytes) -> None:
    rows = record_batch([b"key"] * len(values), list(values), range(len(values)))
    app.log.append(TopicPartition(topic, Partition(partition)), rows)


def plan(app: InProcessExecutor, *, tick: bool = False) -> EpochJob:
    job = app.coordinator.plan_epoch(tick=tick)
    assert job is not None
    return job


def planned(job: EpochJob) -> dict[str, bool]:
    """The tasks, and whether each has input of its own."""
    return {task.task_id: task.has_input for task in job.tasks}


def run(app: InProcessExecutor, job: EpochJob) -> list[TaskReport]:
    return [report for report in app.run_tasks(job) if isinstance(report, TaskReport)]


def commit(app: InProcessExecutor, job: EpochJob, reports: list[TaskReport]) -> None:
    app.coordinator.publish(app.coordinator.commit(job, reports))


def test_tasks_with_records_are_planned_and_all_that_they_may_send_to(app: InProcessExecutor) -> None:
    append(app, "lines", 2, b"river")
    assert planned(plan(app)) == {"0_2": True, **{f"1_{number}": False for number in range(PARTITIONS)}}


def test_nobody_is_planned_behind_tasks_without_records(app: InProcessExecutor) -> None:
    append(app, "orders", 1, b"order")
    assert planned(plan(app)) == {"2_1": True}


def test_a_tick_is_for_those_who_may_wait_for_it(app: InProcessExecutor) -> None:
    assert planned(plan(app, tick=True)) == {f"2_{number}": True for number in range(PARTITIONS)}


def test_a_task_is_found_whether_it_is_planned_or_not(app: InProcessExecutor) -> None:
    append(app, "orders", 1, b"order")
    (order,) = plan(app).tasks
    tasks = app.coordinator.tasks
    assert planned_task(tasks, "2_1") == order
    assert [planned_task(tasks, task) is None for task in ("1_3", "1_4", "7_0")] == [False, True, True]


def test_tasks_that_were_sent_nothing_do_not_run(app: InProcessExecutor) -> None:
    append(app, "lines", 2, b"river", b"river")
    job = plan(app)
    reports = run(app, job)
    assert len(reports) == 2
    commit(app, job, reports)
    (counted,) = (report.task_id for report in reports if report.task_id.startswith("1_"))
    assert app.coordinator.head.sealed == ("0_2", counted)


def test_what_was_sent_must_have_been_taken(app: InProcessExecutor) -> None:
    append(app, "lines", 2, b"river", b"river")
    job = plan(app)
    sender = [report for report in run(app, job) if report.task_id == "0_2"]
    with pytest.raises(EpochMismatchError, match=r"task 1_. consumed rows of another attempt"):
        commit(app, job, sender)


def test_what_was_taken_must_have_been_sent(app: InProcessExecutor) -> None:
    append(app, "lines", 2, b"river", b"river")
    job = plan(app)
    reports = [replace(report, sent=()) for report in run(app, job)]
    with pytest.raises(EpochMismatchError, match=r"task 1_. consumed rows of another attempt"):
        commit(app, job, reports)


def test_a_task_with_records_must_report(app: InProcessExecutor) -> None:
    append(app, "lines", 2, b"river")
    append(app, "orders", 0, b"order")
    job = plan(app)
    reports = [report for report in run(app, job) if report.task_id != "2_0"]
    with pytest.raises(EpochMismatchError, match=r"no report of \['2_0'\], and unplanned reports of \[\]"):
        commit(app, job, reports)


def test_nobody_reports_who_was_not_planned(app: InProcessExecutor) -> None:
    append(app, "orders", 0, b"order")
    job = plan(app)
    (report,) = run(app, job)
    with pytest.raises(EpochMismatchError, match=r"unplanned reports of \['2_3'\]"):
        commit(app, job, [report, replace(report, task_id="2_3")])


def test_rows_for_nobody_are_refused(app: InProcessExecutor) -> None:
    append(app, "lines", 2, b"river")
    job = plan(app)
    reports = run(app, job)
    alone = replace(job, tasks=tuple(task for task in job.tasks if task.task_id == "0_2"))
    with pytest.raises(EpochMismatchError, match="nobody takes what task 0_2 sent to"):
        commit(app, alone, [report for report in reports if report.task_id == "0_2"])
