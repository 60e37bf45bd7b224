"""The built-in ways to fold values: count, sum, min, max. Classes, so that an engine can recognise them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def zero() -> int:
    """Where counting and summing start."""
    return 0


def nothing() -> None:
    """Where min and max start: with no value."""
    return


def add_one(key: Any, value: Any, count: int) -> int:
    """One more."""
    return count + 1


def subtract_one(key: Any, value: Any, count: int) -> int:
    """One less."""
    return count - 1


class _Of:
    """An aggregator that looks at a value, or at what a function makes of it."""

    def __init__(self, of: Callable[[Any], Any] | None) -> None:
        self.of = of

    def look(self, value: Any) -> Any:
        """What is summed or compared."""
        return value if self.of is None else self.of(value)


class Sum(_Of):
    """Adds up."""

    def __call__(self, key: Any, value: Any, total: Any) -> Any:
        """The new aggregate."""
        return total + self.look(value)


class Min(_Of):
    """Keeps the smallest."""

    def __call__(self, key: Any, value: Any, smallest: Any) -> Any:
        """The new aggregate."""
        seen = self.look(value)
        return seen if smallest is None or seen < smallest else smallest


class Max(_Of):
    """Keeps the largest."""

    def __call__(self, key: Any, value: Any, largest: Any) -> Any:
        """The new aggregate."""
        seen = self.look(value)
        return seen if largest is None or seen > largest else largest
