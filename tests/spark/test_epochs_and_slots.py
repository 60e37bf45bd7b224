"""What an epoch runs, and where: levels, slots, lost local state, new topics, nothing when idle."""

from __future__ import annotations

import re
import shutil

import pytest
from pyspark import SparkContext
from tests.spark.lab import Lab, about_jobs
from tests.spark.programs import COUNTING, check_exact, counted, one_level, two_levels, words

from millstream import StreamsBuilder, serdes
from millstream.commit.plan_changes import PlanChangedError
from millstream.commit.targets import Targets
from millstream.engine.spark.engine import SparkEngine
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.stage_function import PlacedEpoch, Stage
from millstream.errors import MillstreamError
from millstream.log import TopicConfig
from millstream.task.shuffle_block import ShuffleBlock
from millstream.types import Attempt

pytestmark = pytest.mark.xdist_group("spark")


@pytest.mark.parametrize("program", COUNTING)
def test_every_record_counts_once_over_runs_epochs_and_lost_local_state(lab: Lab, program: str) -> None:
    parts = words(200, seed=8)
    lab.topic("in", [part[:60] for part in parts])
    lab.run(COUNTING[program](), max_records_per_epoch=25)
    shutil.rmtree(lab.state_dir)
    for number, part in enumerate(parts):
        lab.append("in", part[60:], partition=number)
    lab.run(COUNTING[program](), max_records_per_epoch=25)
    check_exact(lab, program, parts)


@pytest.mark.parametrize("backend", ["rocksdb", "memory"])
def test_every_backend_counts_the_same(lab: Lab, backend: str) -> None:
    parts = words(100, seed=9)
    lab.topic("in", parts)
    lab.run(two_levels(), max_records_per_epoch=20, backend=backend)
    check_exact(lab, "two_levels", parts)


def test_a_stateless_topology_copies_every_record_once_and_in_order(lab: Lab) -> None:
    parts = words(120, seed=10)
    lab.topic("in", parts)
    builder = StreamsBuilder()
    builder.stream("in", value=serdes.string).map_values(str.upper).to("out")
    lab.run(builder.build(), max_records_per_epoch=20)
    lab.run(builder.build(), max_records_per_epoch=20)
    for word in counted(parts):
        sent = [number for part in parts for number, (key, _) in enumerate(part) if key == word]
        assert [(row.value, row.timestamp) for row in lab.rows("out") if row.text == word] == [
            (word.upper().encode(), number) for number in sent
        ]


def test_an_idle_application_runs_no_epochs(lab: Lab) -> None:
    lab.topic("in", words(20, seed=11))
    with lab.app(two_levels()) as app:
        app.run(until="caught-up")
        epochs = app.metrics()["epochs"]
        looks = iter(range(5))
        app.run(until=lambda _: next(looks, None) is None)
        assert app.metrics()["epochs"] == epochs


def test_rows_meet_their_slot_in_as_many_partitions_as_there_are_slots(spark: SparkContext) -> None:
    slots = Slots(spark, 5)
    sent = spark.parallelize([(slot, "row") for slot in range(5)] * 3, 2)
    joined = slots.joined_with(sent)
    assert joined.getNumPartitions() == 5
    expected = [sorted([(slot, "row")] * 3 + [(slot, None)], key=str) for slot in range(5)]
    assert [sorted(rows, key=str) for rows in joined.glom().collect()] == expected
    slots.release()


@about_jobs
def test_a_slot_that_does_not_exist_is_an_error_and_never_a_lost_row(lab: Lab) -> None:
    lab.topic("in", words(10, seed=12))
    with lab.app(two_levels()) as app:
        app.run(until="caught-up")
        driver = app._loop.coordinator
        lab.append("in", [("river", "river")])
        job = driver.plan_epoch()
        assert job is not None
        engine = app._loop.engine
        assert isinstance(engine, SparkEngine)
        worker = engine.make_worker()
    target = next(task for task in job.tasks if task.level == 1)
    topic = next(iter(worker.plan.repartition_topics))
    step = Stage(PlacedEpoch(job, {task.task_id: 2 for task in job.tasks}), 0, 2, lambda: worker)
    slots = Targets(worker.plan, job.tasks).route(step.placed.partitions)(topic, 1)
    assert slots == [2]
    block = ShuffleBlock(topic, slots[0], "0_0", Attempt(1), b"", ((target.partition, 1),), ())
    assert Targets(worker.plan, job.tasks).level(block) == target.level
    with pytest.raises(MillstreamError, match=r"assigned to slot 2, but there are 2 slots"):
        step._checked(block)


def test_a_new_topic_that_fits_a_pattern_is_read_from_the_next_epoch_on(lab: Lab) -> None:
    lab.topic("in-1", [[("a", "x")]])
    builder = StreamsBuilder()
    source = builder.stream(re.compile("in-.*"), key=serdes.string, value=serdes.string)
    source.group_by_key().count(store="counts").to_stream().to("counts-out", value=serdes.int64)
    with lab.app(builder.build()) as app:
        app.run(until="caught-up")
        lab.topic("in-2", [[("a", "y"), ("b", "y")]])
        app.run(until="caught-up")
        assert dict(app.store("counts").all()) == {"a": 2, "b": 1}


def test_a_topic_that_would_need_more_tasks_than_there_is_state_is_refused(lab: Lab) -> None:
    lab.topic("in-1", [[("a", "x")]])
    builder = StreamsBuilder()
    source = builder.stream(re.compile("in-.*"), key=serdes.string, value=serdes.string)
    source.group_by_key().count(store="counts")
    with lab.app(builder.build()) as app:
        app.run(until="caught-up")
        lab.log.create_topic("in-2", TopicConfig(partitions=3))
        with pytest.raises(PlanChangedError, match="is spread over 1 partitions"):
            app.run(until="caught-up")


def test_new_partitions_are_read_while_it_runs_and_state_stays_where_it_is(lab: Lab) -> None:
    lab.topic("in", parts := words(40, seed=9, partitions=2))
    with lab.app(two_levels()) as app:
        app.run(until="caught-up")
        lab.log.add_partitions("in", 3)
        lab.append("in", more := [("moss", "moss"), ("reed", "reed")], partition=2)
        app.run(until="caught-up")
        assert dict(app.store("counts").all()) == counted([*parts, more])
    check_exact(lab, "two_levels", [*parts, more])
    assert lab.log.config("app-counts-changelog").partitions == 2


def test_offset_reset_latest_begins_at_the_end(lab: Lab) -> None:
    lab.topic("in", [[("old", "old")], []])
    with lab.app(one_level(), offset_reset="latest") as app:
        app.run(until="caught-up")
        lab.append("in", [("new", "new")])
        app.run(until="caught-up")
        assert dict(app.store("counts").all()) == {"new": 1}
