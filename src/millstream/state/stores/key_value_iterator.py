"""`KeyValueIterator`: what queries of stores answer with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Self, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class KeyValueIterator(Generic[K, V]):
    """Key-value pairs in key order. A context manager, because a backend may hold resources for it.

    >>> with KeyValueIterator(iter([("a", 1), ("b", 2)])) as pairs:
    ...     dict(pairs)
    {'a': 1, 'b': 2}
    """

    def __init__(self, pairs: Iterator[tuple[K, V]]) -> None:
        self._pairs = pairs

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self

    def __next__(self) -> tuple[K, V]:
        return next(self._pairs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what the iterator holds.

        >>> pairs = KeyValueIterator(pair for pair in [("a", 1), ("b", 2)])
        >>> next(pairs)
        ('a', 1)
        >>> pairs.close()
        >>> list(pairs)
        []
        """
        close = getattr(self._pairs, "close", None)
        if close is not None:
            close()
