"""The functions that random topologies are made of: user code as data, called by engine and oracle alike.

Keys are strings, values are whole numbers or lists of them, and either may be None. Every function is
total, unless it is poisoned: then it raises on some values, or makes values that no serde can write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Key = str | None
Value = Any
"""An int, a list of ints, or None; a complex number is one that can't be written."""

MODULUS = 9973


class PoisonError(Exception):
    """What a poisoned function raises."""


def number(value: Value) -> int:
    """Any value as a number; the order of a list counts."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if isinstance(value, complex):
        return int(value.real)
    total = 1
    for item in value:
        total = (total * 31 + item) % MODULUS
    return total


def key_number(key: Key) -> int:
    """Any key as a number."""
    return 0 if key is None else sum(map(ord, key))


def can_be_written(value: Value) -> bool:
    """Whether a serde takes the value."""
    return not isinstance(value, complex)


@dataclass(frozen=True)
class Poison:
    """Raises on some values, and spoils others."""

    remainder: int = -1
    spoiled: int = -1

    def check(self, value: Value) -> None:
        if number(value) % 13 == self.remainder:
            raise PoisonError(f"{value} is poison")

    def spoil(self, value: Value, result: Value) -> Value:
        """The result, but for some values one that can't be written."""
        if result is not None and number(value) % 13 == self.spoiled:
            return complex(number(result))
        return result


@dataclass(frozen=True)
class Predicate:
    """True for some keys and values."""

    modulus: int
    below: int
    poison: Poison = Poison()

    def __call__(self, key: Key, value: Value) -> bool:
        self.poison.check(value)
        return (number(value) + key_number(key)) % self.modulus < self.below


@dataclass(frozen=True)
class NewKey:
    """Another key, made of the value; None for some if `null_at` is hit."""

    modulus: int
    null_at: int = -1
    poison: Poison = Poison()

    def __call__(self, key: Key, value: Value) -> Key:
        self.poison.check(value)
        chosen = (number(value) + key_number(key) % 3) % self.modulus
        return None if chosen == self.null_at else f"k{chosen}"


@dataclass(frozen=True)
class SameKey:
    """The key as it is: that of a window is made text by whoever calls it."""

    def __call__(self, key: Key, value: Value) -> Key:
        del value
        return key


@dataclass(frozen=True)
class NewValue:
    """Another value; None for some if `null_at` is hit."""

    factor: int
    shift: int
    null_at: int = -1
    poison: Poison = Poison()

    def __call__(self, key: Key, value: Value) -> Value:
        self.poison.check(value)
        new = (number(value) * self.factor + self.shift + key_number(key)) % MODULUS
        return self.poison.spoil(value, None if new % 5 == self.null_at else new)


@dataclass(frozen=True)
class Several:
    """None, one or two of something, depending on the value."""

    modulus: int
    poison: Poison = Poison()

    def __call__(self, key: Key, value: Value) -> list[Value]:
        self.poison.check(value)
        return [(number(value) * 3 + copy) % MODULUS for copy in range(number(value) % self.modulus)]


@dataclass(frozen=True)
class Combine:
    """A reducer: the order of its calls shows in its result. None for some if `null_at` is hit."""

    factor: int
    null_at: int = -1
    poison: Poison = Poison()

    def __call__(self, so_far: Value, value: Value) -> Value:
        self.poison.check(value)
        result = (number(so_far) * self.factor + number(value)) % MODULUS
        return self.poison.spoil(value, None if result % 7 == self.null_at else result)


@dataclass(frozen=True)
class Join:
    """A joiner, of which either value may be missing. None for some if `null_at` is hit."""

    factor: int
    null_at: int = -1

    def __call__(self, key: Key, left: Value, right: Value) -> Value:
        one, other = (7 if left is None else number(left)), (11 if right is None else number(right))
        result = (one * self.factor + other + key_number(key)) % MODULUS
        return None if result % 7 == self.null_at else result


@dataclass(frozen=True)
class Fold:
    """An aggregator. With `in_place` it changes the list it is given, and does so before it raises."""

    factor: int
    null_at: int = -1
    in_place: bool = False
    poison: Poison = Poison()

    def start(self) -> Value:
        return [] if self.in_place else self.factor

    def __call__(self, key: Key, value: Value, so_far: Value) -> Value:
        result = (number(so_far) * self.factor + number(value) + key_number(key)) % MODULUS
        if self.in_place:
            so_far.append(result)
            del so_far[:-3]
        self.poison.check(value)
        if result % 7 == self.null_at:
            return None
        return so_far if self.in_place else self.poison.spoil(value, result)


@dataclass(frozen=True)
class Choose:
    """A partitioner, or the number of a topic."""

    shift: int

    def __call__(self, value: Value, count: int) -> int:
        return (number(value) + self.shift) % count
