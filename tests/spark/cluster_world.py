"""The nine stages on a standalone cluster, in a process: `python -m tests.spark.cluster_world DIR ENGINE`.

A process has one SparkContext, so the test that looks at the tables runs this as a child. They are written to
`stages.json` in the folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from examples.nine_stages import PARTITIONS, Stage, World, nine_stages, topology
from pyspark import SparkConf, SparkContext
from tests.spark.cluster import STATE_DIR, Cluster
from tests.spark.lab import Lab
from tests.spark.processes import until

from millstream import Streams
from millstream.engine.assignment.view import AssignedTask
from millstream.log import TopicPartition
from millstream.types import Partition

STAGES: Final = "stages.json"


class ClusterWorld(World):
    """Workers of a cluster, and an application that runs beside this thread."""

    def __init__(self, cluster: Cluster, lab: Lab, app: Streams) -> None:
        self.cluster = cluster
        self.lab = lab
        self.app = app

    def host(self, instance: int) -> str:
        return f"127.0.0.{instance + 2}"

    def start(self, instance: int) -> None:
        if instance < len(self.cluster.hosts):
            self.cluster.restart_worker(instance)
        else:
            self.cluster.add_worker()

    def kill(self, instance: int) -> None:
        self.cluster.kill_worker(self.cluster.hosts[instance])

    def feed(self, records: int) -> None:
        for partition in range(PARTITIONS):
            self.lab.append("words", [(f"word-{partition}", "x")] * records, partition=partition)
        places = [TopicPartition("words", Partition(partition)) for partition in range(PARTITIONS)]
        goal = sum(self.lab.log.latest(place) for place in places)
        # Each record changes a key, so it is a record of a changelog; a commit is known a moment after it.
        self.until(lambda: self._applied() == goal, "all is committed, and the application knows of it")

    def _applied(self) -> int:
        return sum(one.position or 0 for one in self.assigned() if one.role == "active")

    def assigned(self) -> Sequence[AssignedTask]:
        return self.app.assignment()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until(lambda: self.app.error is not None or condition(), what)
        if self.app.error is not None:
            raise self.app.error


@contextmanager
def cluster_world(folder: Path | None = None, engine: str = "resident") -> Iterator[ClusterWorld]:
    """Two instances, and changelogs of different length from an earlier life on other disks."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as made:
        place = Path(made) if folder is None else folder
        lab = Lab(place / "lab", None)
        lab.topic("words", [[] for _ in range(PARTITIONS)])
        for partition in range(PARTITIONS):
            pairs = [(f"word-{partition}-{number}", "x") for number in range(1_000 * (partition + 1))]
            lab.append("words", pairs, partition=partition)
        lab.engine = "local"
        lab.run(topology())
        with Cluster(place / "cluster", workers=2) as cluster:
            context = SparkContext(conf=SparkConf().setAll([*cluster.settings().items()]))
            context.setLogLevel("OFF")  # executors that are lost are what it is about
            lab.spark, lab.engine = context, engine
            settings: dict[str, Any] = {
                "num_standby_replicas": 1,
                "acceptable_recovery_lag": 0,
                "slot_timeout_ms": 5_000,
            }
            app = lab.app(topology(), state_dir=STATE_DIR, **settings)
            try:
                app.start()
                until(lambda: len({one.host for one in app.assignment()}) > 1, "two instances are there")
                yield ClusterWorld(cluster, lab, app)
            finally:
                app.close()
                context.stop()


def main(folder: str, engine: str) -> None:
    with cluster_world(Path(folder), engine) as world:

        def show(stage: Stage) -> None:
            print(stage.table(), end="\n\n", flush=True)

        stages = nine_stages(world, show)
    (Path(folder) / STAGES).write_bytes(
        msgspec.json.encode([(stage.number, stage.title, stage.tasks) for stage in stages])
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
