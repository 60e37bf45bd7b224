"""count, sum, min, max."""

from __future__ import annotations

import pytest

from millstream.processors.aggregations.count import COUNT
from millstream.processors.aggregations.min_max import min_max
from millstream.processors.aggregations.sum import sum_of


def test_counting() -> None:
    assert COUNT.fold("k", "v", None) == 1
    assert COUNT.subtract is not None
    assert COUNT.subtract("k", "v", 3) == 2


def test_sum_adds_what_it_sees() -> None:
    assert sum_of(None).fold("k", 3, 4) == 7
    assert sum_of(len).fold("k", "abc", 4) == 7


@pytest.mark.parametrize(("values", "smallest", "largest"), [([3, 1, 2], 1, 3), ([5], 5, 5), ([2, 2], 2, 2)])
def test_min_and_max(values: list[int], smallest: int, largest: int) -> None:
    least = most = None
    for value in values:
        least, most = (
            min_max("min", None).fold("k", value, least),
            min_max("max", None).fold("k", value, most),
        )
    assert (least, most) == (smallest, largest)


def test_min_and_max_compare_what_they_see() -> None:
    assert min_max("min", len).fold("k", "abc", 5) == 3
    assert min_max("max", len).fold("k", "abc", 2) == 3


def test_of_equal_values_the_first_stays() -> None:
    first, second = 1, 1.0
    assert min_max("min", None).fold("k", second, first) is first
    assert min_max("max", None).fold("k", second, first) is first
