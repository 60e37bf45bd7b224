"""What random cases are drawn with: a generator of numbers, the steps so far, and functions as data."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tests.oracle_fuzz.functions import Function
from tests.oracle_fuzz.spec import Step

INT_FOLDS = ("sum", "mix", "mix", "max", "min", "last", "minus")


@dataclass(frozen=True, slots=True)
class Handle:
    """The result of a step that others can stand behind."""

    id: int
    types: tuple[str, str]
    windowed: bool = False
    """Its windows have an end that suppression can wait for."""
    versioned: bool = False

    @property
    def key(self) -> str:
        return self.types[0]

    @property
    def value(self) -> str:
        return self.types[1]


class Draws(ABC):
    """The steps of a case, as far as they are drawn."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.steps: list[Step] = []
        self.streams: list[Handle] = []
        self.groups: list[Handle] = []
        self.tables: list[Handle] = []
        self.table_groups: list[Handle] = []
        self.global_tables: list[Handle] = []
        self.topics = 0
        self.versions_share = 0.0
        """How many of the stores that may have versions have some."""
        self.durations: set[int] = {10}
        """Times of records often differ by one of them."""

    @abstractmethod
    def stream(self) -> Handle:
        """A stream to go on from."""

    @abstractmethod
    def table(self) -> Handle:
        """A table to go on from."""

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def add(self, op: str, *parents: int, **parameters: Any) -> int:
        number = len(self.steps)
        given = {name: list(what) if isinstance(what, tuple) else what for name, what in parameters.items()}
        self.steps.append({"id": number, "op": op, "of": list(parents), **given})
        return number

    def one_of(self, handles: list[Handle]) -> Handle | None:
        """One of the last ones, mostly."""
        return self.rng.choice(handles[-2:] if self.chance(0.7) else handles) if handles else None

    def value_type(self) -> str:
        return "int64" if self.chance(0.7) else "string"

    def predicate(self) -> Function:
        mod = self.rng.randint(2, 5)
        return {"mod": mod, "below": self.rng.randint(1, mod - 1), "key": self.chance(0.4)}

    def new_key(self) -> Function:
        null = self.rng.choice((-1, -1, -1, 0, 1))
        return {"mod": self.rng.randint(1, 4), "null": null, "key": self.chance(0.3)}

    def new_value(self, value: str, *, null: float = 0.25) -> Function:
        return {
            "type": value,
            "a": self.rng.choice((0, 1, 1, 3)),
            "b": self.rng.randint(0, 5),
            "null": self.rng.randrange(5) if self.chance(null) else -1,
            "key": self.chance(0.3),
        }

    def several(self, value: str) -> Function:
        return {"type": value, "mod": self.rng.randint(2, 4)}

    def fold(self, value: str, *, subtracting: bool = False) -> Function:
        init: str | int | None
        if value == "string":
            kind, init = ("uncat" if subtracting else "concat"), self.rng.choice(("", "i", None))
        elif subtracting:
            kind, init = self.rng.choice(("minus", "minus", "mix", "last")), None
        else:
            kind, init = self.rng.choice(INT_FOLDS), self.rng.choice((0, 0, 1, None))
        null = self.rng.randrange(7) if self.chance(0.15) else -1
        return {"kind": kind, "init": init, "a": self.rng.choice((1, 2, 3)), "null": null}

    def store(self, *, optional: bool = False, versions: bool = False) -> dict[str, Any] | None:
        if optional and self.chance(0.5):
            return None
        versioned = (
            self.rng.choice((0, 5, 20, 100, 10_000))
            if versions and self.chance(self.versions_share)
            else None
        )
        return {
            "named": self.chance(0.6),
            "cached": self.chance(0.6),
            "retention": None,
            "versioned": versioned,
        }
