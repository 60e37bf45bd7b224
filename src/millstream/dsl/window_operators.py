"""Which operator aggregates by which windows of one size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from millstream.processors.operator import Operator
from millstream.processors.windows.sliding_windows import SlidingWindowAggregation
from millstream.processors.windows.time_windows import TimeWindowAggregation
from millstream.windows import SlidingWindows, TimeWindows, UnlimitedWindows

__all__ = ["aggregation_by"]


def aggregation_by(windows: TimeWindows | SlidingWindows | UnlimitedWindows) -> Callable[..., Operator]:
    """Makes the operator of an aggregation, from all that does not follow from the windows."""
    if isinstance(windows, SlidingWindows):
        return partial(SlidingWindowAggregation, windows=windows)
    return partial(TimeWindowAggregation, windows=windows)
