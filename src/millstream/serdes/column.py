"""Whole columns through a serde: what the engine calls, whoever wrote the serde.

A column is a sequence of keys or values of one topic or store; ``None`` in it is a null and stays
``None``. The bulk methods of a serde are used when it has them. They are fast because they do not keep
count: when one raises, the column is gone through once more, value by value, to find the one to blame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from millstream.serdes.api import BaseSerde, Serde, require_bytes

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


class ColumnError(Exception):
    """One entry of a column failed. Internal: the caller knows the record and raises the user's error.

    >>> ColumnError(3, ValueError("bad"))
    ColumnError(3, ValueError('bad'))
    """

    def __init__(self, index: int, cause: Exception) -> None:
        super().__init__(index, cause)
        self.index = index
        self.cause = cause


def serialize_column(serde: Serde[T], values: Sequence[T | None]) -> list[bytes | None]:
    """Serialize every value that is not ``None``.

    >>> from millstream import serdes
    >>> serialize_column(serdes.string, ["a", None])
    [b'a', None]
    >>> serialize_column(serdes.string, ["a", None, 7])
    Traceback (most recent call last):
    millstream.serdes.column.ColumnError: (2, TypeError('expected str, got int'))
    """
    if isinstance(serde, BaseSerde):
        try:
            return serde.serialize_many(values)
        except Exception:  # noqa: BLE001, S110 - the pass below finds the entry and raises for it
            pass
    return _one_by_one(lambda value: require_bytes(serde, serde.serialize(value)), values)


def deserialize_column(serde: Serde[T], column: Sequence[bytes | None]) -> list[T | None]:
    """Deserialize every entry that is not ``None``.

    >>> from millstream import serdes
    >>> deserialize_column(serdes.int64, [bytes(8), None])
    [0, None]
    >>> deserialize_column(serdes.int64, [bytes(8), b"?"])
    Traceback (most recent call last):
    millstream.serdes.column.ColumnError: (1, ValueError('expected 8 bytes, got 1'))
    """
    if isinstance(serde, BaseSerde):
        try:
            return serde.deserialize_many(column)
        except Exception:  # noqa: BLE001, S110 - the pass below finds the entry and raises for it
            pass
    return _one_by_one(serde.deserialize, column)


def _one_by_one(convert: Callable[[A], B], column: Sequence[A | None]) -> list[B | None]:
    result: list[B | None] = []
    for index, entry in enumerate(column):
        try:
            result.append(None if entry is None else convert(entry))
        except Exception as cause:
            raise ColumnError(index, cause) from cause
    return result
