"""The resident engine on Spark: slots are killed, stopped and left alone; no process is left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from tests.spark.lab import Lab
from tests.spark.processes import Child, descendants, is_stopped, processes, until
from tests.spark.programs import check_exact, two_levels, words
from tests.spark.test_workers import counting, once

from millstream import Streams
from millstream.engine.spark.resident.engine import ResidentSparkEngine
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


def test_slots_hold_no_more_cores_than_they_are_given(lab: Lab, spark: SparkContext) -> None:
    lab.topic("in", parts := words(40, seed=53))
    with lab.app(two_levels(), **RESIDENT, slots=1) as app:
        app.run(until="caught-up")
        assert len(slots_of(app)) == 1
        assert spark.parallelize(range(4), 1).sum() == 6, "a job of the user's own finds a core"
    assert spark.parallelize(range(4), 2).sum() == 6, "and all of them after it is closed"
    check_exact(lab, "two_levels", parts)


def test_a_setting_that_ends_slots_is_refused(bare_lab: Lab, spark: SparkContext, monkeypatch: Any) -> None:
    conf = spark.getConf().set("spark.python.worker.killOnIdleTimeout", "true")
    monkeypatch.setattr(spark, "getConf", lambda: conf)
    bare_lab.topic("in", [[]])
    bare_lab.spark = spark
    with pytest.raises(ConfigError, match="killOnIdleTimeout"):
        bare_lab.run(two_levels(), **RESIDENT)


def test_nothing_is_left_of_an_application_that_ends_or_whose_coordinator_is_killed(bare_lab: Lab) -> None:
    bare_lab.topic("in", parts := words(100, seed=54))
    with Child(bare_lab, "two_levels", **RESIDENT, until_caught_up=False, lease_ttl_ms=600_000) as child:
        child.wait_for(lambda: bare_lab.committed() == 100, "all records are committed")
        family = descendants(child.pid)
        assert len(family) >= 4, "a JVM, a daemon and two slots"
        child.signal(signal.SIGKILL)
        until(lambda: not _alive(family), "all that it has started has ended")
    with Child(bare_lab, "two_levels", **RESIDENT) as child:
        assert child.wait() == 0, child.said()
        assert not _alive(descendants(child.pid))
    check_exact(bare_lab, "two_levels", parts)


def test_the_slots_of_a_coordinator_that_stands_still_end_before_its_lease(bare_lab: Lab) -> None:
    bare_lab.topic("in", parts := words(100, seed=55))
    with Child(bare_lab, "two_levels", **RESIDENT, until_caught_up=False, lease_ttl_ms=4_000) as child:
        child.wait_for(lambda: bare_lab.committed() == 100, "all records are committed")
        slots = {pid: born for pid, born in descendants(child.pid).items() if _holds_stores(pid, bare_lab)}
        assert slots, "no process has stores open"
        child.signal(signal.SIGSTOP)
        until(lambda: is_stopped(child.pid), "the coordinator stands still")
        until(lambda: not any(_holds_stores(pid, bare_lab) for pid in slots), "its slots let go")
        with Child(bare_lab, "two_levels", **RESIDENT, lease_ttl_ms=4_000) as second:
            bare_lab.append("in", [("moss", "moss")])
            assert second.wait() == 0, second.said()
        child.signal(signal.SIGCONT)
        assert child.wait() != 0
        assert "was overtaken by process" in child.said()
    check_exact(bare_lab, "two_levels", [*parts, [("moss", "moss")]])


def test_a_killed_daemon_takes_its_slots_with_it(bare_lab: Lab) -> None:
    bare_lab.topic("in", parts := words(600, seed=56))
    with Child(bare_lab, "two_levels", **RESIDENT) as child:
        child.wait_for(lambda: bare_lab.committed() > 40, "some records are committed")
        family = descendants(child.pid)
        slots = {pid: born for pid, born in family.items() if _holds_stores(pid, bare_lab)}
        parents = {processes()[pid][0] for pid in slots}
        assert len(parents) == 1
        child.kill_one(parents.pop())
        assert bare_lab.committed() < 600, "the input was finished before the kill"
        until(lambda: not _alive(slots), "the slots have ended")
        assert child.wait() == 0, child.said()
    check_exact(bare_lab, "two_levels", parts)


def _alive(family: dict[int, str]) -> list[int]:
    everybody = processes()
    return [pid for pid, born in family.items() if everybody.get(pid, (0, ""))[1] == born]


def _holds_stores(pid: int, lab: Lab) -> bool:
    try:
        links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(link.is_relative_to(lab.state_dir) for link in links)
