"""What a step looks at to find the target of each block: as much as there are tasks and blocks, no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.executor import InProcessExecutor

from millstream import StreamsBuilder, StreamsConfig, serdes
from millstream.commit.epoch_job import PlannedTask, TaskReport
from millstream.commit.seal_group import SealGroup
from millstream.commit.targets import Targets
from millstream.durable import DiskFullError
from millstream.engine.spark.stage_function import Failed, Passed, PlacedEpoch, Sent, Stage
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.maintenance import state_cleaner
from millstream.task.shuffle_block import ShuffleBlock
from millstream.topology.plan import SubTopology
from millstream.topology.topology import Topology
from millstream.types import Attempt, Partition

SLOTS = 2


class CountedTasks(tuple[PlannedTask, ...]):
    """Tasks that count how often somebody goes through them."""

    __slots__ = ()
    walks = 0

    def __iter__(self) -> Iterator[PlannedTask]:
        CountedTasks.walks += 1
        return super().__iter__()


def moved_twice() -> Topology:
    builder = StreamsBuilder()
    first = builder.stream("in", key=serdes.string, value=serdes.string).repartition(name="first")
    first.select_key(lambda _, value: value).repartition(name="second").to("out")
    return builder.build()


def looks_of_an_epoch(folder: Path, partitions: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    """Run an epoch as Spark would: walks through the tasks, look-ups of a topic's source, and reports."""
    FileLog(folder / "log").create_topic("in", TopicConfig(partitions=partitions))
    with InProcessExecutor(
        moved_twice(), application_id="app", log_root=folder / "log", state_dir=folder / "state"
    ) as executor:
        words = [str(number).encode() for number in range(20 * partitions)]  # some for every task
        for number in range(partitions):
            place = TopicPartition("in", Partition(number))
            executor.log.append(place, record_batch(words, words, [1] * len(words)))
        job = executor.coordinator.plan_epoch()
        assert job is not None
        slots = {task.task_id: task.number % SLOTS for task in job.tasks}
        job = replace(job, tasks=CountedTasks(job.tasks))
        searches = 0
        source_of = SubTopology.source_of

        def counted(self: SubTopology, topic: str) -> Any:
            nonlocal searches
            searches += 1
            return source_of(self, topic)

        rows: list[tuple[int, Sent]] = []
        with monkeypatch.context() as patched:
            patched.setattr(SubTopology, "source_of", counted)
            CountedTasks.walks = 0
            for level in range(3):
                step = Stage(PlacedEpoch(job, slots), level, SLOTS, lambda: executor.worker)
                rows = [
                    sent
                    for slot in range(SLOTS)
                    for sent in step(iter([(slot, None), *(row for row in rows if row[0] == slot)]))
                ]
            walks = CountedTasks.walks
        reports = [sent.report for _, sent in rows if isinstance(sent, Passed)]
        executor.coordinator.publish(executor.coordinator.commit(job, reports))
        return walks, searches, len(reports)


def test_more_blobs_do_not_mean_more_walks_through_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = looks_of_an_epoch(tmp_path / "few", 4, monkeypatch)
    many = looks_of_an_epoch(tmp_path / "many", 12, monkeypatch)
    assert (few[2], many[2]) == (3 * 4, 3 * 12)
    assert few[0] == many[0]
    assert many[1] <= 3 * few[1]  # three times the tasks, nine times the blocks


def test_a_stage_deletes_what_is_kept_elsewhere_and_says_so_also_copies_that_were_never_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cleaner, "_looked_at", {})
    FileLog(tmp_path / "log").create_topic("in", TopicConfig(partitions=1))
    with InProcessExecutor(
        moved_twice(),
        application_id="app",
        log_root=tmp_path / "log",
        state_dir=tmp_path / "state",
        config=StreamsConfig(state_cleanup_delay_ms=0),
    ) as executor:
        executor.log.append(TopicPartition("in", Partition(0)), record_batch([b"a"], [b"a"], [1]))
        job = executor.coordinator.plan_epoch()
        assert job is not None
        job = replace(job, task_counts={0: 4})
        directory = executor.worker.directory
        for task in ("0_1", "0_2", "0_3"):
            directory.task("app", task).store_path("lmdb", "half-made").mkdir(parents=True)
        kept = {directory.instance_id: frozenset({"0_0", "0_1"}), "elsewhere": frozenset({"0_2"})}
        placed = PlacedEpoch(job, {task.task_id: 0 for task in job.tasks})

        def deleted(placed: PlacedEpoch) -> list[tuple[str, ...]]:
            sent = Stage(placed, 0, 1, lambda: executor.worker)(iter([(0, None)]))
            reports = [one.report for _, one in sent if isinstance(one, Passed)]
            return [one.deleted for one in reports if isinstance(one, TaskReport)]

        assert deleted(placed) == [()], "it was not told what is kept where"
        assert deleted(replace(placed, kept=kept)) == [("0_2",)]
        assert directory.tasks("app") == ["0_0", "0_1", "0_3"], "nobody says where 0_3 is"
        executor.coordinator.close()


def test_reports_leave_a_stage_when_what_was_sealed_is_durable_and_all_fail_if_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FileLog(tmp_path / "log").create_topic("in", TopicConfig(partitions=2))
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).to("out")
    with InProcessExecutor(
        builder.build(), application_id="app", log_root=tmp_path / "log", state_dir=tmp_path / "state"
    ) as executor:
        for number in range(2):
            executor.log.append(TopicPartition("in", Partition(number)), record_batch([b"a"], [b"a"], [1]))
        job = executor.coordinator.plan_epoch()
        assert job is not None
        stage = Stage(
            PlacedEpoch(job, {task.task_id: 0 for task in job.tasks}), 0, 1, lambda: executor.worker
        )
        for _, sent in stage(iter([(0, None)])):
            assert isinstance(sent, Passed)
            assert isinstance(sent.report, TaskReport)
            assert sent.report.sealed is not None
            assert (executor.log.root / sent.report.sealed.path).is_file()

        def is_full(_group: SealGroup) -> None:
            raise DiskFullError("no space")

        monkeypatch.setattr(SealGroup, "_write_shared", is_full)
        answers = [sent for _, sent in stage(iter([(0, None)]))]
        assert [type(sent) for sent in answers] == [Failed, Failed]
        executor.coordinator.close()


def test_the_level_of_a_block_is_that_of_the_tasks_that_take_it() -> None:
    plan = moved_twice().plan()
    tasks = [PlannedTask(sub.task_id(0), sub.number, Partition(0), sub.level) for sub in plan.subtopologies]
    targets = Targets(plan, tasks)
    first, second = plan.repartition_topics
    levels = [
        targets.level(ShuffleBlock(topic, 0, "0_0", Attempt(1), b"", ((Partition(0), 1),), ()))
        for topic in (first, second)
    ]
    assert levels == [1, 2]


def test_a_blob_goes_to_the_one_task_that_reads_its_topic_and_partition() -> None:
    plan = moved_twice().plan()
    tasks = [
        PlannedTask(sub.task_id(number), sub.number, Partition(number), sub.level)
        for sub in plan.subtopologies
        for number in range(2)
    ]
    targets = Targets(plan, tasks)
    first, second = plan.repartition_topics

    def block(topic: str, *partitions: int) -> ShuffleBlock:
        counts = tuple((Partition(partition), 1) for partition in partitions)
        return ShuffleBlock(topic, 0, "0_0", Attempt(1), b"", counts, ())

    blocks = [block(second, 1), block(first, 0, 1), block("elsewhere", 0), block(first, 7), block(first, 0)]
    assert [targets.level(one) for one in blocks] == [2, 1, None, None, 1]
    assert targets.by_task(blocks) == {
        "2_1": [blocks[0]],
        "1_0": [blocks[1], blocks[4]],
        "1_1": [blocks[1]],
    }
    assert targets.route({"1_0": 4, "1_1": 5})(first, 2) == [4, 5]
