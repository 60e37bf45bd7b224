"""The resident engine on Spark: slots are killed, stopped and left alone; no process is left behind."""

from __future__ import annotations

import base64
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from tests.spark import test_epochs_and_slots, test_full_disk, test_streams, test_workers
from tests.spark.lab import Lab
from tests.spark.processes import Child, alive, descendants, processes, until
from tests.spark.programs import check_exact, two_levels, words
from tests.spark.test_workers import counting, once

from millstream import Streams
from millstream.engine.spark.resident.connection import flight_token
from millstream.engine.spark.resident.engine import ResidentSparkEngine
from millstream.engine.spark.resident.launcher import task_slots
from millstream.engine.spark.resident.slot_pool import SlotPool
from millstream.errors import ConfigError

pytestmark = pytest.mark.xdist_group("spark")

RESIDENT: dict[str, Any] = {"engine": "resident", "max_records_per_epoch": 20}


def pool_of(app: Streams) -> SlotPool:
    engine = app._loop.engine
    assert isinstance(engine, ResidentSparkEngine)
    assert engine._slots is not None
    return engine._slots.pool


def slots_of(app: Streams) -> dict[int, int]:
    """The processes of the slots, by number."""
    return {number: member.hello.pid for number, member in pool_of(app).live().items()}


def test_a_killed_slot_is_replaced_while_the_application_goes_on(lab: Lab) -> None:
    parts = words(300, seed=51)
    lab.topic("in", [part[:50] for part in parts])
    with lab.app(two_levels(), **RESIDENT) as app:
        app.run(until="caught-up")
        before = slots_of(app)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        for number, part in enumerate(parts):
            lab.append("in", part[50:], partition=number)
        app.run(until="caught-up")
        until(lambda: len(slots_of(app)) == 2, "the slot is back")
        assert slots_of(app)[1] == before[1], "the other slot was left alone"
        assert slots_of(app)[0] != before[0]
    check_exact(lab, "two_levels", parts)


def test_a_slot_that_stands_still_is_killed_and_replaced(lab: Lab) -> None:
    lab.topic("in", parts := words(300, seed=52))
    folder = lab.folder

    def stop_one(key: str, value: str) -> None:
        if value == "weir" and once(folder / "stopped"):
            (folder / "pid").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)

    with lab.app(counting(stop_one), **RESIDENT, slot_timeout_ms=1_000) as app:
        app.run(until="caught-up")
        stopped = int((folder / "pid").read_text())
        assert stopped not in processes()
        assert stopped not in slots_of(app).values()
    check_exact(lab, "two_levels", parts)


def test_slots_hold_no_more_cores_than_they_are_given_and_all_of_them_are_told(
    lab: Lab, spark: SparkContext, caplog: pytest.LogCaptureFixture
) -> None:
    lab.topic("in", parts := words(40, seed=53))
    warning = "hold all 2 cores of the given Spark session"
    lab.run(two_levels(), **RESIDENT)
    assert caplog.text.count(warning) == 1
    with lab.app(two_levels(), **RESIDENT, slots=1) as app:
        app.run(until="caught-up")
        assert caplog.text.count(warning) == 1
        assert len(slots_of(app)) == 1
        assert spark.parallelize(range(4), 1).sum() == 6, "a job of the user's own finds a core"
    assert spark.parallelize(range(4), 2).sum() == 6, "and all of them after it is closed"
    check_exact(lab, "two_levels", parts)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 2),
        ({"spark.default.parallelism": "1"}, 2),
        ({"spark.default.parallelism": "200"}, 2),
        ({"spark.task.cpus": "2"}, 1),
    ],
)
def test_there_is_a_slot_for_each_task_that_spark_can_run_at_once(
    spark: SparkContext, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], expected: int
) -> None:
    conf = spark.getConf().setAll([*settings.items()])
    monkeypatch.setattr(spark, "getConf", lambda: conf)
    assert task_slots(spark) == expected


def test_secrets_are_in_no_log_and_in_nothing_that_sparks_user_interface_or_the_system_shows(
    lab: Lab, spark: SparkContext, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    lab.topic("in", parts := words(60, seed=56))
    caplog.set_level(logging.DEBUG, "millstream")
    caplog.set_level(logging.DEBUG, "pyspark")
    with lab.app(two_levels(), **RESIDENT) as app:
        app.run(until="caught-up")
        pool, before = pool_of(app), slots_of(app)
        os.kill(before[0], signal.SIGKILL)
        until(lambda: slots_of(app).get(0, before[0]) != before[0], "the slot is back")
        shown = "\n".join([*_of_user_interface(spark), *map(repr, _objects_of(app)), *_of_processes()])
    written = capfd.readouterr()
    shown += caplog.text + written.out + written.err
    assert "slot 0" in shown, "what is shown of slots is there"
    assert "Slot 0 is lost" in caplog.text
    for secret in (pool._secret, flight_token(pool._secret).encode()):
        forms = (repr(secret)[2:-1], secret.hex(), base64.b64encode(secret).decode())
        assert [form for form in forms if form in shown] == []
    check_exact(lab, "two_levels", parts)


def _of_user_interface(spark: SparkContext) -> Iterator[str]:
    """The texts of its pages: environment, jobs, stages, executors."""
    status: Any = spark._jsc.sc().statusStore()
    environment = status.environmentInfo()
    for properties in ("sparkProperties", "systemProperties", "hadoopProperties", "classpathEntries"):
        yield getattr(environment, properties)().mkString("\n")
    jobs = status.jobsList(None)
    for job in map(jobs.apply, range(jobs.size())):
        yield from (job.name(), job.description().toString(), job.jobGroup().toString())
        stages = job.stageIds()
        for stage in map(stages.apply, range(stages.size())):
            with suppress(Py4JJavaError):  # Spark has forgotten it: there are later ones
                data = status.lastStageAttempt(stage)
                yield from (data.name(), data.description().toString(), data.details())


def _objects_of(app: Streams) -> list[object]:
    engine = app._loop.engine
    assert isinstance(engine, ResidentSparkEngine)
    pool = pool_of(app)
    return [app, engine, engine._slots, pool, pool._launcher, pool._settings, *pool.live().values()]


def _of_processes() -> Iterator[str]:
    """Command lines and environments, as others on the host may see them."""
    for pid in {os.getpid(), *descendants(os.getpid())}:
        for name in ("cmdline", "environ"):
            with suppress(OSError):
                yield Path(f"/proc/{pid}/{name}").read_text(errors="replace")


def test_a_setting_that_ends_slots_is_refused(bare_lab: Lab, spark: SparkContext, monkeypatch: Any) -> None:
    conf = spark.getConf().set(
        "spark.python.worker.killOnIdleTimeout", "True"
    )  # as PySpark writes the True of Python
    monkeypatch.setattr(spark, "getConf", lambda: conf)
    bare_lab.topic("in", [[]])
    bare_lab.spark = spark
    with pytest.raises(ConfigError, match="killOnIdleTimeout"):
        bare_lab.run(two_levels(), **RESIDENT)


def test_slots_end_with_their_daemon_and_with_their_coordinator(bare_lab: Lab) -> None:
    """A daemon is killed, then a coordinator stands still beyond its lease, and is overtaken.

    What a killed driver leaves is looked at in `tests/spark/test_kills.py`.
    """
    parts = words(400, seed=54)
    bare_lab.topic("in", [part[:100] for part in parts])
    settings: dict[str, Any] = {**RESIDENT, "until_caught_up": False, "lease_ttl_ms": 4_000}
    with Child(bare_lab, "two_levels", **settings) as first:
        first.wait_for(lambda: bare_lab.committed() == 200, "all records are committed")
        slots = _slots_below(first, bare_lab)
        parents = {processes()[pid][0] for pid in slots}
        assert len(parents) == 1
        first.kill_one(parents.pop())
        until(lambda: not alive(slots), "the slots of the daemon have ended")
        for number, part in enumerate(parts):
            bare_lab.append("in", part[100:150], partition=number)
        first.wait_for(lambda: bare_lab.committed() == 300, "others have taken their place")

        slots = _slots_below(first, bare_lab)
        family = descendants(first.pid)
        first.signal(signal.SIGSTOP)
        until(lambda: not _slots_of(slots, bare_lab), "the slots have let their stores go")
        for number, part in enumerate(parts):
            bare_lab.append("in", part[150:], partition=number)
        with bare_lab.app(two_levels(), standby=True, engine="local", lease_ttl_ms=4_000) as second:
            second.run(until="caught-up")
            assert bare_lab.committed() == 400, "another coordinator has taken over"
            first.signal(signal.SIGCONT)
            assert first.wait() != 0
        assert "was overtaken by process" in first.said()
        until(lambda: not alive(family), "all that it has started has ended")
    check_exact(bare_lab, "two_levels", parts)


SHARED = [
    test_epochs_and_slots.test_new_partitions_are_read_while_it_runs_and_state_stays_where_it_is,
    test_full_disk.test_space_that_comes_back_while_the_epoch_is_tried_again_is_enough,
    test_streams.test_an_uncaught_error_ends_it_unless_the_handler_says_otherwise,
    test_workers.test_workers_killed_at_each_of_their_steps_of_the_commit_change_nothing,
]


@pytest.mark.parametrize("test", SHARED, ids=lambda test: test.__name__)
def test_what_holds_for_spark_jobs(lab: Lab, test: Callable[[Lab], None]) -> None:
    """A part of the tests of Spark. All of them: MILLSTREAM_ENGINE=resident make pytest ARGS=tests/spark."""
    lab.engine = "resident"
    test(lab)


def _slots_below(child: Child, lab: Lab) -> dict[int, str]:
    """The processes of a child's slots."""
    child.wait_for(lambda: len(_slots_of(descendants(child.pid), lab)) == 2, "both slots have stores open")
    return _slots_of(descendants(child.pid), lab)


def _slots_of(family: dict[int, str], lab: Lab) -> dict[int, str]:
    return {pid: born for pid, born in family.items() if _holds_stores(pid, lab)}


def _holds_stores(pid: int, lab: Lab) -> bool:
    try:
        links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(link.is_relative_to(lab.state_dir) for link in links)
