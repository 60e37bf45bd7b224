"""The column tier on Spark: expressions travel to the workers, and give there what functions give."""

from __future__ import annotations

import pytest
from tests.spark.lab import Lab
from tests.spark.programs import check_exact, words

from millstream import Store, StreamsBuilder, Topology, serdes, value

pytestmark = pytest.mark.xdist_group("spark")


def counting_by_expressions() -> Topology:
    """What `two_levels` does, with an epoch's records in columns from log to log."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    letters = stream.flat_map_values(value.str.split(" ")).filter(value != "")
    counts = letters.group_by(value).count(store=Store("counts", caching=False))
    counts.to_stream().to("out", key=serdes.string, value=serdes.int64)
    return builder.build()


def test_records_are_counted_by_expressions_exactly_once(lab: Lab) -> None:
    lab.topic("in", parts := words(300, seed=31))
    lab.run(counting_by_expressions(), max_records_per_epoch=100)
    check_exact(lab, "two_levels", parts)
