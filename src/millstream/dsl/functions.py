"""What users give to operators: functions where a plain `Callable` says too little, and expressions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import polars as pl
    from typing_extensions import TypeIs

VA_co = TypeVar("VA_co", covariant=True)


class Initializer(Protocol[VA_co]):
    """Makes the first value of an aggregation.

    A protocol, because a type checker solves it before the aggregator behind it: so a lambda there knows
    the type of its aggregate. With a `Callable` for both, the aggregate would be `Any`.
    """

    def __call__(self) -> VA_co:
        """The first value."""


def is_expression(given: Any) -> TypeIs[pl.Expr]:
    """Whether a user gave a Polars expression. Whoever made one has imported Polars."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(given, polars.Expr)
