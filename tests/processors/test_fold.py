"""count, sum, min, max."""

from __future__ import annotations

import pytest

from millstream.processors import fold


def test_counting() -> None:
    assert fold.add_one("k", "v", fold.zero()) == 1
    assert fold.subtract_one("k", "v", 3) == 2


def test_sum_adds_what_it_sees() -> None:
    assert fold.Sum(None)("k", 3, 4) == 7
    assert fold.Sum(len)("k", "abc", 4) == 7


@pytest.mark.parametrize(("values", "smallest", "largest"), [([3, 1, 2], 1, 3), ([5], 5, 5), ([2, 2], 2, 2)])
def test_min_and_max(values: list[int], smallest: int, largest: int) -> None:
    least = most = None
    for value in values:
        least, most = fold.Min(None)("k", value, least), fold.Max(None)("k", value, most)
    assert (least, most) == (smallest, largest)


def test_min_and_max_compare_what_they_see() -> None:
    assert fold.Min(len)("k", "abc", 5) == 3
    assert fold.Max(len)("k", "abc", 2) == 3


def test_of_equal_values_the_first_stays() -> None:
    first, second = 1, 1.0
    assert fold.Min(None)("k", second, first) is first
    assert fold.Max(None)("k", second, first) is first
