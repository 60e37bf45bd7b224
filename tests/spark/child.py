"""An application in a process of its own, to be killed: `python -m tests.spark.child '{"folder": ...}'`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from tests.spark import programs
from tests.spark.jvm_kills import kill_jvm_at
from tests.spark.lab import Lab

from millstream import Streams, failpoints
from millstream.engine.api import DurableEpoch, homes_after
from millstream.engine.assignment.model import Role
from millstream.engine.assignment.view import Rebalance
from millstream.engine.spark.resident import slot_pool

EPOCHS: Final = "epochs.jsonl"
"""Beside the log: what `note_epochs` has written."""
REBALANCES: Final = "rebalances.jsonl"
"""And `note_rebalances`."""
SETTINGS = {"spark.master": "local[2,4]", "spark.ui.enabled": "false"}


def main(order: dict[str, object]) -> None:
    session, folder = order.get("session"), Path(str(order["folder"]))
    assert session is None or isinstance(session, dict)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    context = None if session is None else SparkContext(conf=SparkConf().setAll([*session.items()]))
    lab = Lab(folder, context)
    topology = programs.PROGRAMS[str(order["program"])]()
    settings = order.get("settings", {})
    kills = order.get("jvm_kills", [])
    assert isinstance(settings, dict)
    assert isinstance(kills, list)
    if kills:
        kill_jvm_at(kills)
    spark_settings = {
        **SETTINGS,
        f"spark.executorEnv.{failpoints.ENVIRONMENT_VARIABLE}": str(order.get("worker_failpoints", "")),
    }
    if context is None:
        settings = {"spark_settings": spark_settings, **settings}
    app = lab.app(topology, standby=bool(order.get("standby")), **settings)
    note_epochs(app, folder / EPOCHS)
    note_rebalances(app, folder / REBALANCES)
    if order.get("slots_are_elsewhere"):
        slot_pool._kill_hanging = lambda member: False
    app.on_state(lambda before, after: print(f"{before.value} -> {after.value}", flush=True))
    app.on_epoch(lambda result: print(f"epoch {result.manifest.epoch}", flush=True))
    with app:
        app.run(until="caught-up" if order.get("until_caught_up", True) else None)
    if context is not None:
        context.stop()


def note_epochs(app: Streams, file: Path) -> None:
    """Append a line for each epoch: when it was committed, and where its tasks ran."""
    engine = app._loop.engine
    apply = engine.apply

    def noted(epoch: DurableEpoch) -> None:
        homes = homes_after(epoch.reports)
        restored = {report.task_id: report.restored for report in epoch.reports if report.sealed is not None}
        line = {"epoch": epoch.manifest.epoch, "at": time.time(), "homes": homes, "restored": restored}
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
        apply(epoch)

    engine.apply = noted  # type: ignore[method-assign]


def note_rebalances(app: Streams, file: Path) -> None:
    """Append a line for each task that gets another place: from which host to which one, and why."""

    def note(rebalance: Rebalance) -> None:
        with file.open("a", encoding="utf-8") as lines:
            for change in rebalance.changes:
                if change.role is Role.ACTIVE and change.before is not None and change.after is not None:
                    line = {
                        "task": change.task_id,
                        "before": change.before.host,
                        "after": change.after.host,
                        "instance": change.after.instance,
                        "why": change.after.why,
                    }
                    lines.write(json.dumps(line) + "\n")

    app.on_rebalance(note)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
