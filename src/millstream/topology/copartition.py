"""`Copartition`: streams and tables whose records of one key must meet in one task.

Their topics need the same number of partitions. It knows who asked for that, so that errors can say it;
what the numbers are is found by :mod:`millstream.topology.partitions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

SideKind = Literal["stream", "table"]


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One side of a join: a stream, or a table."""

    kind: SideKind
    names: frozenset[str]
    """Its sources, or, in a plan, their topics."""


@dataclass(frozen=True)
class Copartition:
    """Sources, or, in a plan, topics, that need the same number of partitions."""

    names: frozenset[str]
    sides: tuple[JoinSide, ...] = ()
    """Left and right, if a join asks for it."""
    asked_by: str = ""
    """The join, with the user's line."""

    @classmethod
    def of_join(cls, left: JoinSide, right: JoinSide, asked_by: str) -> Copartition:
        """Both sides of a join."""
        return cls(left.names | right.names, (left, right), asked_by)

    @cached_property
    def table(self) -> JoinSide | None:
        """The table that a stream is joined with."""
        kinds = [side.kind for side in self.sides]
        return self.sides[1] if kinds == ["stream", "table"] else None

    def renamed(self, new: Callable[[frozenset[str]], frozenset[str]]) -> Copartition:
        """The same of other names."""
        sides = tuple(replace(side, names=new(side.names)) for side in self.sides)
        return Copartition(new(self.names), sides, self.asked_by)
