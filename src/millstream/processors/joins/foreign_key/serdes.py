"""The serdes of a foreign-key join: one set, so that all its steps write and read the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.processors.operator import OperatorContext
from millstream.serdes import Serde

__all__ = ["ForeignKeySerdes"]


@dataclass(frozen=True, slots=True)
class ForeignKeySerdes:
    """The serdes of both tables, None where they are automatic; these learn under the names of the topics."""

    registration: str
    """The topic of subscriptions."""
    response: str
    """The topic of answers."""
    left_key: Any
    left: Any
    right_key: Any
    right: Any

    def foreign_key(self, context: OperatorContext) -> Serde[Any]:
        """Of the right table's keys."""
        return context.serde(self.registration, "key", self.right_key)

    def left_value(self, context: OperatorContext) -> Serde[Any]:
        """Of the left table's values: they are hashed."""
        return context.serde(self.registration, "value", self.left)

    def primary_key(self, context: OperatorContext) -> Serde[Any]:
        """Of the left table's keys."""
        return context.serde(self.response, "key", self.left_key)

    def right_value(self, context: OperatorContext) -> Serde[Any]:
        """Of the right table's values."""
        return context.serde(self.response, "value", self.right)
