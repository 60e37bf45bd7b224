"""The built-in ways to fold values. Classes, so that an engine can recognise them.

The results of count, sum, min and max do not depend on the order or grouping of the values (of whole numbers,
text and bytes: not of floating-point numbers). So a batch can be combined by key before it meets the table:
see `Combine`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from millstream.serdes.mean_serde import Mean


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


class MeanOf(_Of):
    """Keeps total and count of numbers."""

    def __call__(self, key: Any, value: Any, so_far: Mean | None) -> Mean:
        """The new aggregate."""
        seen = float(self.look(value))
        return Mean(seen, 1) if so_far is None else Mean(so_far.total + seen, so_far.count + 1)


@dataclass(frozen=True, slots=True)
class PartialAggregate:
    """In place of a value: what stands for several values of a key, on its way through a repartition."""

    value: Any


Builtin = Literal["count", "sum", "min", "max"]


class Combine(Protocol):
    """How values of a key become one value that stands for them all."""

    @property
    def builtin(self) -> Builtin | None:
        """Which of the built-in folds of plain values this is, if it is one: see `columns.row_folds`."""

    @property
    def again(self) -> Combine:
        """How values that stand for several become one."""

    def combined(self, keys: Sequence[Any], values: Sequence[Any]) -> Mapping[Any, Any] | None:
        """One value per distinct key; None if these values have to be folded one by one."""

    def merged(self, so_far: Any, combined: Any) -> Any:
        """The aggregate with a combined value in it; `so_far` is None if there is no aggregate."""


class Counting:
    """How many."""

    builtin: Builtin | None = "count"

    @property
    def again(self) -> Combine:
        """See `Combine.again`."""
        return Summing(None)

    def combined(self, keys: Sequence[Any], values: Sequence[Any]) -> Mapping[Any, Any] | None:
        """See `Combine.combined`."""
        return Counter(keys)

    def merged(self, so_far: Any, combined: Any) -> Any:
        """See `Combine.merged`."""
        return combined if so_far is None else so_far + combined


class Summing:
    """The sum of whole numbers."""

    def __init__(self, of: Callable[[Any], Any] | None) -> None:
        self._of = of
        self.builtin: Builtin | None = "sum" if of is None else None

    @property
    def again(self) -> Combine:
        """See `Combine.again`."""
        return Summing(None)

    def combined(self, keys: Sequence[Any], values: Sequence[Any]) -> Mapping[Any, Any] | None:
        """See `Combine.combined`."""
        values = values if self._of is None else list(map(self._of, values))
        if set(map(type, values)) != {int} or len(values) != len(keys):
            return None
        sums: defaultdict[Any, int] = defaultdict(int)
        for key, value in zip(keys, values, strict=True):
            sums[key] += value
        return sums

    def merged(self, so_far: Any, combined: Any) -> Any:
        """See `Combine.merged`."""
        if so_far is None:
            return combined
        if type(so_far) is not int:
            raise TypeError("the order matters when anything but whole numbers is summed")
        return so_far + combined


class MinMax:
    """The smallest or the largest of values that equal each other only if they are the same."""

    _TOTALLY_ORDERED = frozenset({int, str, bytes})

    def __init__(self, of: Callable[[Any], Any] | None, name: Literal["min", "max"]) -> None:
        self._of = of
        self._name: Literal["min", "max"] = name
        self._choose: Callable[[Any, Any], Any] = min if name == "min" else max
        self.builtin: Builtin | None = name if of is None else None

    @property
    def again(self) -> Combine:
        """See `Combine.again`."""
        return MinMax(None, self._name)

    def combined(self, keys: Sequence[Any], values: Sequence[Any]) -> Mapping[Any, Any] | None:
        """See `Combine.combined`."""
        values = values if self._of is None else list(map(self._of, values))
        kinds = set(map(type, values))
        if len(kinds) != 1 or not kinds <= self._TOTALLY_ORDERED or len(values) != len(keys):
            return None
        chosen: dict[Any, Any] = {}
        choose = self._choose
        for key, value in zip(keys, values, strict=True):
            chosen[key] = choose(chosen[key], value) if key in chosen else value
        return chosen

    def merged(self, so_far: Any, combined: Any) -> Any:
        """See `Combine.merged`. At a tie the aggregate stays as it is."""
        return combined if so_far is None else self._choose(so_far, combined)


class Reducing:
    """A reducer of the user's, declared to be commutative and associative."""

    builtin: Builtin | None = None

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self._reducer = reducer

    @property
    def again(self) -> Combine:
        """See `Combine.again`."""
        return self

    def combined(self, keys: Sequence[Any], values: Sequence[Any]) -> Mapping[Any, Any] | None:
        """See `Combine.combined`. Values that could be changed in place are reduced one by one."""
        kinds = set(map(type, values))
        if len(kinds) != 1 or not kinds <= _UNCHANGEABLE:
            return None
        reduced: dict[Any, Any] = {}
        reducer = self._reducer
        for key, value in zip(keys, values, strict=True):
            reduced[key] = reducer(reduced[key], value) if key in reduced else value
        return reduced if set(map(type, reduced.values())) == kinds else None

    def merged(self, so_far: Any, combined: Any) -> Any:
        """See `Combine.merged`."""
        return combined if so_far is None else self._reducer(so_far, combined)


_UNCHANGEABLE = frozenset({int, str, bytes, float, bool})


def combine_for(initializer: Callable[[], Any], aggregator: Callable[..., Any]) -> Combine | None:
    """How to combine what an aggregator folds; None if only the user knows."""
    if aggregator is add_one and initializer is zero:
        return Counting()
    if type(aggregator) is Sum and initializer is zero:
        return Summing(aggregator.of)
    if type(aggregator) is Min and initializer is nothing:
        return MinMax(aggregator.of, "min")
    if type(aggregator) is Max and initializer is nothing:
        return MinMax(aggregator.of, "max")
    return None
