"""Python workers and shuffle files are lost in the middle of an epoch: Spark runs again what is needed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from pyspark import TaskContext
from tests.spark.lab import Lab, Pair, about_jobs
from tests.spark.processes import is_stopped, until
from tests.spark.programs import check_exact, words

from millstream import Store, StreamsBuilder, Topology, failpoints, serdes

pytestmark = pytest.mark.xdist_group("spark")

WORKER_STEPS = [
    "commit.processed",
    "commit.sealed",
    "commit.reported",
    "commit.opened",
    "commit.store_applied",
]


def once(marker: Path) -> bool:
    """True for the first who asks, in whatever process. The marker is the proof that it happened."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def counting(spoil: object) -> Topology:
    """`two_levels` with a function in front that may spoil things."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string).peek(spoil)  # type: ignore[arg-type]
    counts = stream.group_by(lambda _, value: value).count(store=Store("counts", caching=False))
    counts.to_stream().to("out", key=serdes.string, value=serdes.int64)
    return builder.build()


def test_a_worker_killed_in_the_middle_of_an_epoch_is_replaced(lab: Lab) -> None:
    parts = words(300, seed=2)
    lab.topic("in", parts)
    marker = lab.folder / "killed"

    def kill_one_worker(key: str, value: str) -> None:
        if value == "weir" and once(marker):
            os.kill(os.getpid(), signal.SIGKILL)

    lab.run(counting(kill_one_worker), max_records_per_epoch=50)
    assert marker.exists()
    check_exact(lab, "two_levels", parts)


def test_workers_killed_at_each_of_their_steps_of_the_commit_change_nothing(lab: Lab) -> None:
    """A function arms a failpoint in the worker that it runs in: the step comes later in the same worker."""
    parts = words(300, seed=3)
    lab.topic("in", parts)
    folder = lab.folder

    def arm(key: str, value: str) -> None:
        if not once(folder / f"worker-{os.getpid()}"):
            return
        for name in WORKER_STEPS:
            if once(folder / name):
                failpoints.arm_from_environment(f"{name}=kill")
                return

    lab.run(counting(arm), max_records_per_epoch=15, max_epoch_retries=10)
    assert [name for name in WORKER_STEPS if (folder / name).exists()] == WORKER_STEPS
    assert len(list(folder.glob("worker-*"))) > len(WORKER_STEPS)
    check_exact(lab, "two_levels", parts)


def test_a_worker_that_is_stopped_and_continued_changes_nothing(lab: Lab) -> None:
    parts = words(200, seed=5)
    lab.topic("in", parts)
    folder = lab.folder

    def stop_one_worker(key: str, value: str) -> None:
        if value == "weir" and once(folder / "stopped"):
            (folder / f"pid-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGSTOP)

    def noted() -> list[int]:
        return [int(note.name.removeprefix("pid-")) for note in folder.glob("pid-*")]

    with lab.app(counting(stop_one_worker), max_records_per_epoch=50) as app:
        app.start()
        until(lambda: any(map(is_stopped, noted())), "a worker is stopped")
        before = lab.committed()
        os.kill(noted()[0], signal.SIGCONT)
        until(lambda: lab.committed() == 200, "all records are committed")
    assert before < 200
    check_exact(lab, "two_levels", parts)


@about_jobs
def test_shuffle_files_lost_between_two_levels_are_made_again(lab: Lab) -> None:
    """The last level finds that rows of the level before are gone: that level runs again, and the same."""
    parts: list[list[Pair]] = words(200, seed=4)
    lab.topic("in", parts)
    spark_dir = Path(lab.spark.getConf().get("spark.local.dir"))
    folder = lab.folder

    def shuffled() -> set[Path]:
        return set(spark_dir.rglob("shuffle_*.data"))

    def delete_shuffle_files(key: str, value: int) -> tuple[str, int]:
        context = TaskContext.get()
        assert context is not None
        (folder / f"ran-{context.partitionId()}-{context.taskAttemptId()}").touch()
        if once(folder / "deleted"):
            before, latest = shuffled(), time.monotonic() + 10
            while not shuffled() - before and time.monotonic() < latest:
                time.sleep(0.02)  # for the rows of the other task of this level, if it is not done already
            for path in spark_dir.rglob("shuffle_*"):
                path.unlink(missing_ok=True)
        return key[0], value

    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    counts = stream.group_by(lambda _, value: value).count(store="counts")
    counts.to_stream().to("out", key=serdes.string, value=serdes.int64)
    letters = counts.group_by(delete_shuffle_files, key=serdes.string, value=serdes.int64)
    sums = letters.reduce(lambda total, count: total + count, lambda total, count: total - count)
    sums.to_stream().to("letters", key=serdes.string, value=serdes.int64)
    lab.run(builder.build())
    assert (folder / "deleted").exists()
    assert len(list(folder.glob("ran-*"))) > 2, "no task was run again"
    check_exact(lab, "three_levels", parts)
