"""What a benchmark finds: figures with their raw runs, and the goal that each is held against."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Figure", "Scale", "at_least", "at_most", "measured", "ratio"]

Better = Literal["lower", "higher"]

_FEW_MS = 0.0095


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work a run may be."""

    quick: bool

    def of(self, full: int, quick: int) -> int:
        """A number of records, keys or rounds."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a case: the median of its runs, or the ratio of two medians."""

    name: str
    value: float
    unit: str
    runs: list[float] = field(default_factory=list)
    goal: float | None = None
    better: Better = "lower"
    group: str = ""
    """Figures of one group are drawn side by side."""

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None if there is none."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.better == "lower" else self.value >= self.goal

    @property
    def verdict(self) -> str:
        """The goal, and plainly whether it was missed."""
        if self.goal is None:
            return ""
        bound = "at most" if self.better == "lower" else "at least"
        return f"{bound} {shown(self.goal, self.unit)}: {'met' if self.is_met else 'MISSED'}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measured(name: str, runs: Sequence[float], unit: str = "s", *, group: str = "") -> Figure:
    """The median of several runs."""
    return Figure(name, statistics.median(runs), unit, list(runs), group=group)


def ratio(name: str, of: Figure, to: Figure) -> Figure:
    """How many times the one is the other."""
    return Figure(name, of.value / to.value, "x")


def at_most(figure: Figure, goal: float) -> Figure:
    """The figure with a goal that it must not be above."""
    return _with_goal(figure, goal, "lower")


def at_least(figure: Figure, goal: float) -> Figure:
    """The figure with a goal that it must not be below."""
    return _with_goal(figure, goal, "higher")


def shown(value: float, unit: str) -> str:
    """A value as people read it.

    >>> shown(0.0312, "s"), shown(0.00072, "s"), shown(1_234_567.0, "records/s"), shown(3.14159, "x")
    ('31 ms', '0.72 ms', '1.23M records/s', '3.14x')
    """
    if unit == "x":
        return f"{value:.2f}x"
    if unit == "s":
        if value < _FEW_MS:
            return f"{value * 1000:.2g} ms"
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
    for bound, letter in ((1e6, "M"), (1e4, "k")):
        if value >= bound:
            return f"{value / (1e6 if letter == 'M' else 1e3):.3g}{letter} {unit}"
    return f"{value:.4g} {unit}"


def _with_goal(figure: Figure, goal: float, better: Better) -> Figure:
    return Figure(figure.name, figure.value, figure.unit, figure.runs, goal, better, figure.group)
