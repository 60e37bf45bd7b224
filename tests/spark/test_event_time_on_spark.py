"""Event time on Spark: timestamps of one's own are extracted by a job before an epoch is cut."""

from __future__ import annotations

from typing import Any

import pytest
from tests.spark.lab import Lab
from tests.task.late_operator import drop_late

from millstream import StreamsBuilder, Topology, handlers, serdes, timestamps
from millstream.errors import ProcessingError

pytestmark = pytest.mark.xdist_group("spark")

BOTH: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def by_value(record: Any, partition_time: int) -> int:
    del partition_time
    return int(record.value)


def dropping(out: str) -> Topology:
    """Orders and clicks meet behind a repartition; what is late there is dropped."""
    builder = StreamsBuilder()
    orders, clicks = (
        builder.stream(name, timestamp_extractor=by_value, **BOTH) for name in ("orders", "clicks")
    )
    moved = orders.merge(clicks).select_key(lambda _, value: value[-1]).repartition(partitions=2, **BOTH)
    moved.map_values(str, name="all")
    return drop_late(builder.build(), "all").add_sink("sink", out, "drop-late", **BOTH)


def test_a_backfill_by_times_of_ones_own_is_that_of_a_single_epoch(lab: Lab) -> None:
    orders, clicks = range(0, 20_000, 10), range(5_000, 6_000)
    lab.topic("orders", [[("k", str(time)) for time in orders[part::2]] for part in range(2)])
    lab.topic("clicks", [[("k", str(time)) for time in clicks[part::2]] for part in range(2)])
    settings: dict[str, Any] = {"late_record_handler": handlers.dead_letter, "dead_letter_topic": "late"}
    one = lab.run(dropping("one"), "one", **settings)
    many = lab.run(dropping("many"), "many", max_records_per_epoch=100, **settings)
    assert one.metrics()["epochs"] == 1
    assert many.metrics()["epochs"] >= 10
    assert "late" not in lab.log.topics()
    rows = {topic: [(row.partition, row.value) for row in lab.rows(topic)] for topic in ("one", "many")}
    assert len(rows["one"]) == 3_000
    assert rows["many"] == rows["one"]


def test_late_records_are_counted_and_have_a_letter_each(lab: Lab) -> None:
    lab.topic("orders", [[("k", "100"), ("k", "50"), ("k", "200"), ("k", "150")]])
    lab.topic("clicks", [[]])
    settings: dict[str, Any] = {"late_record_handler": handlers.dead_letter, "dead_letter_topic": "late"}
    app = lab.run(dropping("out"), max_records_per_epoch=1, **settings)
    assert app.metrics()["nodes"]["drop-late"]["records-late"] == 2
    letters = [(row.value, dict(row.headers)["__streams.errors.operator"]) for row in lab.rows("late")]
    assert sorted(letters) == [(b"150", b"drop-late"), (b"50", b"drop-late")]


def test_an_extractor_that_fails_is_told_of_by_the_task_that_takes_the_record(lab: Lab) -> None:
    lab.topic("orders", [[("k", "1"), ("k", "2"), ("k", "three"), ("k", "4")]])
    lab.topic("clicks", [[("k", str(time)) for time in range(4)]])
    with pytest.raises(ProcessingError) as caught:
        lab.run(dropping("out"), max_records_per_epoch=2)
    assert str(caught.value).startswith(
        "topic 'orders', partition 0, offset 2: the timestamp extractor failed: ValueError"
    )
    assert lab.committed() >= 4


def test_processing_time_is_the_epochs_clock_on_every_worker(lab: Lab) -> None:
    lab.topic("in", [[("k", "a"), ("k", "b")], [("k", "c")]])
    builder = StreamsBuilder()
    builder.stream("in", timestamp_extractor=timestamps.wall_clock_timestamp, **BOTH).to("out", **BOTH)
    clocks: list[int] = []
    with lab.app(builder.build()) as app:
        app.on_epoch(lambda result: clocks.append(result.manifest.clock_ms))
        app.run(until="caught-up")
    assert {row.timestamp for row in lab.rows("out")} == set(clocks)
