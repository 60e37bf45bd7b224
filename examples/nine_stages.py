"""Instances come and go, and an application goes on: the nine stages of a cluster's life, told by tables.

    python -m examples.nine_stages

starts a standalone cluster of Spark on this machine, from the classes of the pip package: a master, and
workers on the addresses 127.0.0.2 and so on, which are hosts of their own. It needs a checkout, for the
cluster is that of the tests.

1. Two instances start. The changelogs are not empty, and of different length: they restore.
2. Each runs half of the tasks, and keeps copies of the others.
3. A record comes: it changes the local store, and the changelog.
4. The standby follows.
5. An instance is killed. Its tasks go on at once, on the other one.
6. It comes back, and its old state catches up from its checkpoint. Then the other one is killed.
7. That comes back, too, and the tasks are spread again.
8. Two new instances join. They have nothing, and get copies first.
9. While they restore, the old ones go on. In the end everybody has a task and a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from millstream import StreamsBuilder, Topology, serdes
from millstream.engine.assignment.view import AssignedTask

PARTITIONS = 4
COLUMNS = ("instance", "active", "standby", "version", "position", "lag")


def topology() -> Topology:
    """Counts words by key: a task per partition, each with a store."""
    builder = StreamsBuilder()
    words = builder.stream("words", key=serdes.string, value=serdes.string)
    words.group_by_key().count(store="counts").to_stream().to(
        "word-counts", key=serdes.string, value=serdes.int64
    )
    return builder.build()


@dataclass(frozen=True, slots=True)
class Stage:
    """What is seen at the end of a stage."""

    number: int
    title: str
    tasks: tuple[AssignedTask, ...]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """A row for each task on each instance: its role, its version, where it is, how far behind."""
        for one in sorted(self.tasks, key=lambda one: (one.host, one.role, one.task)):
            is_active = one.role == "active"
            yield (
                one.host,
                one.task if is_active else "",
                "" if is_active else one.task + (" (warm-up)" if one.role == "warm-up" else ""),
                str(one.version),
                str(one.position),
                str(one.lag),
            )

    def table(self) -> str:
        """The rows, for a terminal."""
        rows = [COLUMNS, *self.rows()]
        widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        ]
        return "\n".join([f"({self.number}) {self.title}", *(line.rstrip() for line in lines)])


class World(Protocol):
    """Instances that can be started and killed, and an application that runs on them."""

    def start(self, instance: int) -> None:
        """Start an instance, perhaps again."""

    def kill(self, instance: int) -> None:
        """Kill all its processes."""

    def host(self, instance: int) -> str:
        """What it is called."""

    def feed(self, records: int) -> None:
        """Write so many records to each partition, and wait until they are committed."""

    def assigned(self) -> Sequence[AssignedTask]:
        """Where tasks and copies are now."""

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait."""


def nine_stages(world: World, show: Callable[[Stage], None] = lambda _: None) -> list[Stage]:
    """Live through the stages. Instances 0 and 1 are there; the changelogs are not empty."""
    stages: list[Stage] = []

    def seen(title: str) -> None:
        stages.append(Stage(len(stages) + 1, title, tuple(world.assigned())))
        show(stages[-1])

    def at_rest(*instances: int) -> bool:
        """Everybody has what is its share, and is caught up."""
        tasks = world.assigned()
        hosts = [world.host(instance) for instance in instances]
        copies = PARTITIONS if len(hosts) > 1 else 0
        return (
            all(one.lag == one.lag_epochs == 0 for one in tasks)
            and {one.role for one in tasks} <= {"active", "standby"}
            and len(tasks) == PARTITIONS + copies
            and all(
                sum(one.host == host and one.role == role for one in tasks) == PARTITIONS // len(hosts)
                for host in hosts
                for role in ("active", "standby")[: 2 if copies else 1]
            )
        )

    world.feed(1)
    seen("two instances start, and restore")
    world.until(lambda: at_rest(0, 1), "standbys follow")
    seen("each has active and standby tasks")
    world.feed(1)
    seen("a record changes the local store and the changelog")
    world.until(lambda: at_rest(0, 1), "standbys follow")
    seen("the standbys follow")
    world.kill(0)
    world.feed(1)
    world.until(lambda: at_rest(1), "the other one has taken over")
    seen(f"{world.host(0)} is gone, {world.host(1)} goes on with its copies")
    world.start(0)
    world.until(lambda: at_rest(0, 1), "it has caught up")
    world.kill(1)
    world.feed(1)
    world.until(lambda: at_rest(0), "the first one has taken over")
    seen(f"{world.host(0)} is back and has caught up, {world.host(1)} is gone")
    world.start(1)
    world.until(lambda: at_rest(0, 1), "it has caught up")
    seen(f"{world.host(1)} is back: the tasks are spread again")
    world.start(2)
    world.start(3)
    world.until(lambda: any(one.host == world.host(2) for one in world.assigned()), "copies are made")
    seen("two new instances join and get copies first")
    world.feed(1)
    world.until(lambda: at_rest(0, 1, 2, 3), "everybody has a task and a copy")
    seen("the old ones went on meanwhile; now everybody has a task and a copy")
    return stages


def main() -> None:
    """On a cluster."""
    from tests.spark.cluster_world import cluster_world  # noqa: PLC0415 - it starts processes

    with cluster_world() as world:
        nine_stages(world, lambda stage: print(stage.table(), end="\n\n", flush=True))


if __name__ == "__main__":
    main()
