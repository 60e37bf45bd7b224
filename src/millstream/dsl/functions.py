"""Types of the functions that users give to operators, where a plain `Callable` says too little."""

from __future__ import annotations

from typing import Protocol, TypeVar

VA_co = TypeVar("VA_co", covariant=True)


class Initializer(Protocol[VA_co]):
    """Makes the first value of an aggregation.

    A protocol, because a type checker solves it before the aggregator behind it: so a lambda there knows
    the type of its aggregate. With a `Callable` for both, the aggregate would be `Any`.
    """

    def __call__(self) -> VA_co:
        """The first value."""
