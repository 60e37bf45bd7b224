"""Windows on Spark: open windows and stream times outlive the process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.spark.lab import Lab

from millstream import EmitStrategy, Store, StreamsBuilder, TimeWindows, Topology, serdes
from millstream.log import TopicConfig, TopicPartition, record_batch
from millstream.types import Partition

pytestmark = pytest.mark.xdist_group("spark")

KEY = serdes.time_windowed(serdes.string, 10)


def counting() -> Topology:
    """Counts by window, all updates and the last ones."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    windowed = grouped.windowed_by(TimeWindows(10, grace=5))
    windowed.count(store=Store("updates", caching=False)).to_stream().to("updates")
    final = windowed.emit_strategy(EmitStrategy.on_window_close())
    final.count(store="final").to_stream().to("final")
    return builder.build()


def append(lab: Lab, records: Sequence[tuple[str, int]]) -> None:
    keys, times = [key.encode() for key, _ in records], [time for _, time in records]
    lab.log.append(TopicPartition("in", Partition(0)), record_batch(keys, keys, times))


def windows(lab: Lab, topic: str) -> list[tuple[str, int, int, int]]:
    """Key, start, count and timestamp."""
    found = []
    for row in lab.rows(topic):
        assert row.key is not None
        key = KEY.deserialize(row.key)
        found.append((key.key, key.window.start, row.number, row.timestamp))
    return found


def test_windows_stay_open_and_late_records_stay_late_over_a_restart(lab: Lab) -> None:
    lab.log.create_topic("in", TopicConfig())
    append(lab, [("a", 1), ("b", 2), ("a", 12), ("a", 15)])
    lab.run(counting())
    before = [("a", 0, 1, 1), ("b", 0, 1, 2), ("a", 10, 1, 12), ("a", 10, 2, 15)]
    assert windows(lab, "updates") == before
    assert windows(lab, "final") == [("a", 0, 1, 1), ("b", 0, 1, 2)]

    append(lab, [("a", 9), ("a", 14), ("b", 25)])  # stream time is 15: the first window has closed
    lab.run(counting())
    assert windows(lab, "updates") == [*before, ("a", 10, 3, 15), ("b", 20, 1, 25)]
    assert windows(lab, "final") == [("a", 0, 1, 1), ("b", 0, 1, 2), ("a", 10, 3, 15)]
