"""What an aggregation is: one declared object, with every form in which it can be done.

- The row form takes one value after the other. Every aggregation has it, and it is the meaning of the others.
- The partial form makes one value of several, before they meet the table or a repartition. It promises that
  the result depends on neither the order nor the grouping of the values, or it gives up.
- The column form does a whole column, exactly as one value after the other would, or it gives up.

Which form is used is the operator's business: see `keyed` and `keyed_columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.processors.aggregations.column_form import ColumnForm
from millstream.processors.columns.column import Column

__all__ = ["Aggregation", "Combiner", "Fold", "PartialAggregate", "has_partials", "looking_at"]

Fold = Callable[[Any, Any, Any], Any]
"""`(key, value, aggregate)` to the new aggregate, or to None, which deletes it."""


@dataclass(frozen=True, slots=True)
class PartialAggregate:
    """In place of a value: what stands for several values of a key, on its way through a repartition."""

    value: Any


@dataclass(frozen=True, slots=True)
class Combiner:
    """The partial form."""

    combine: Callable[[Sequence[Any], Sequence[Any]], Mapping[Any, Any] | None]
    """Keys and values to one value per distinct key; None if these values have to be taken one by one."""
    merge: Callable[[Any, Any], Any]
    """An aggregate and such a value to the new aggregate. Of a new key, the value is the aggregate."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregation. A form that is None does not exist."""

    fold: Fold
    """The row form. The aggregate is None for the first value of a key."""
    subtract: Fold | None = None
    """The aggregate without a value that is in it: only a grouped table takes values back."""
    combiner: Combiner | None = None
    columns: ColumnForm | None = None
    partials: Aggregation | None = None
    """How partial aggregates are aggregated; None: as the values are."""
    shown: Callable[[Any], Any] | None = None
    """What those behind the table are shown of an aggregate, if not the aggregate itself."""
    merge: Callable[[Any, Any], Any] | None = None
    """One aggregate of two, where that follows from the aggregation: sessions that become one need it."""
    initializer: Callable[[], Any] | None = None
    """What the first value of a key is folded into, where the user says; None: into nothing."""
    aggregator: Fold | None = None
    """The row form of an aggregate that is there, even if a merger made it None: nothing begins anew."""
    skips_nulls: bool = False
    """It has no use for a record without a value, even where windows take such records."""


def has_partials(values: Column) -> bool:
    """Whether some of the values stand for several ones."""
    return values.shows(PartialAggregate)


def looking_at(fold: Fold, of: Callable[[Any], Any] | None) -> Fold:
    """A row form that sees what a function makes of each value."""
    if of is None:
        return fold
    return lambda key, value, aggregate: fold(key, of(value), aggregate)
