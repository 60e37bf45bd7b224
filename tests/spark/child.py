"""An application in a process of its own, to be killed: `python -m tests.spark.child '{"folder": ...}'`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.spark import programs
from tests.spark.jvm_kills import kill_jvm_at
from tests.spark.lab import Lab

from millstream import failpoints

SETTINGS = {"spark.master": "local[2,4]", "spark.ui.enabled": "false"}


def main(order: dict[str, object]) -> None:
    lab = Lab(Path(str(order["folder"])), None)
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
    app = lab.app(topology, spark_settings=spark_settings, **settings)
    app.on_state(lambda before, after: print(f"{before.value} -> {after.value}", flush=True))
    app.on_epoch(lambda result: print(f"epoch {result.manifest.epoch}", flush=True))
    with app:
        app.run(until="caught-up" if order.get("until_caught_up", True) else None)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
