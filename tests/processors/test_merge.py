"""How the aggregates of two sessions become one, for each aggregation."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.count import COUNT
from millstream.processors.aggregations.mean import mean_of
from millstream.processors.aggregations.min_max import min_max
from millstream.processors.aggregations.reduce import reduce_by
from millstream.processors.aggregations.sum import sum_of
from millstream.serdes.mean_serde import Mean


@pytest.mark.parametrize(
    ("aggregation", "one", "other", "both"),
    [
        (COUNT, 2, 3, 5),
        (sum_of(None), 2.5, 3.0, 5.5),
        (sum_of(len), 2, 3, 5),
        (min_max("min", None), 2, 3, 2),
        (min_max("max", len), 2, 3, 3),
        (mean_of(None), Mean(2.0, 1), Mean(7.0, 2), Mean(9.0, 3)),
        (reduce_by(lambda one, other: one + other), "a", "b", "ab"),
    ],
)
def test_two_aggregates_become_one(aggregation: Aggregation, one: Any, other: Any, both: Any) -> None:
    assert aggregation.merge is not None
    assert aggregation.merge(one, other) == both


def test_an_aggregate_of_the_users_can_not_be_merged_without_a_merger() -> None:
    assert aggregate_by(lambda: "0", lambda _, value, so_far: so_far + value).merge is None
