"""In a child process: its JVM is killed at chosen steps of its starts, one step for each start."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkContext, java_gateway

from millstream.commit.epoch_job import EpochJob
from millstream.engine.spark import engine, placed_slots
from millstream.engine.spark.resident import engine as resident
from millstream.engine.spark.resident.slot_tasks import SlotTasks


def kill_jvm_at(steps: Sequence[str]) -> None:
    """Kill the JVM just before each step, in this order; what is not reached in this order is left alone.

    launch   the process is Java, and nothing is said yet
    gateway  the JVM has told where it listens, and was asked nothing yet
    context  the JVM answers, and makes no Spark yet
    slots    Spark is there, and nothing was run yet
    epoch    a job of an epoch, after two that were committed
    """
    due = list(steps)
    launched: list[subprocess.Popen[bytes]] = []

    def is_due(step: str) -> bool:
        if due[:1] != [step]:
            return False
        print(f"the JVM is killed: {due.pop(0)}", flush=True)
        return True

    def killing(step: str, action: Callable[..., Any], when: Callable[..., bool] = _always) -> Any:
        def act(*args: Any, **named: Any) -> Any:
            if when(*args) and is_due(step):
                launched[-1].kill()
                launched[-1].wait()
            return action(*args, **named)

        return act

    def launch(*args: Any, **named: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(*args, **named)
        launched.append(process)
        if is_due("launch"):
            while process.poll() is None and _name_of(process.pid) != "java":
                time.sleep(0.005)
            process.kill()
        return process

    gateway: Any = java_gateway
    gateway.Popen = launch
    gateway.java_import = killing("gateway", gateway.java_import)
    context: Any = SparkContext
    context._initialize_context = killing("context", context._initialize_context)
    spark_engine: Any = engine
    slots: Any = placed_slots
    slots.Slots = killing("slots", slots.Slots)
    spark_engine.run_epoch_job = killing(
        "epoch", spark_engine.run_epoch_job, lambda *args: args[2].job.epoch > 2
    )
    resident_engine: Any = resident
    resident_engine.SlotPool = killing("slots", resident_engine.SlotPool)
    run_tasks = killing("epoch", lambda *_: None, lambda *args: args[1].epoch > 2)
    tasks: Any = SlotTasks
    tasks.run_tasks = _without_slots(run_tasks, tasks.run_tasks)
    tasks.begin_next = lambda *_: None  # else its tasks may have begun before


def _without_slots(may_kill: Callable[..., Any], run_tasks: Callable[..., Any]) -> Callable[..., Any]:
    """The slots of a JVM that was killed end soon after it: what is run next finds none."""

    def run(tasks: SlotTasks, job: EpochJob) -> Any:
        may_kill(tasks, job)
        while tasks.pool.live() and not tasks.pool.is_alive:
            time.sleep(0.005)
        return run_tasks(tasks, job)

    return run


def _always(*args: Any) -> bool:
    del args
    return True


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
