"""The mean of some numbers, which can go on: a number that knows its total and count."""

from __future__ import annotations

import struct
from typing import Self

from millstream.serdes.api import BaseSerde, wrong_type

_BYTES = struct.Struct(">dq")


class Mean(float):
    """A mean. It is a float, and is written as one to a topic; a store keeps total and count.

    >>> mean = Mean(3.0, 2)
    >>> mean, mean.total, mean.count
    (1.5, 3.0, 2)
    """

    __slots__ = ("count", "total")

    total: float
    count: int

    def __new__(cls, total: float, count: int) -> Self:
        """The mean of `count` numbers."""
        mean = super().__new__(cls, total / count)
        mean.total = total
        mean.count = count
        return mean

    def __reduce__(self) -> tuple[type[Mean], tuple[float, int]]:
        return Mean, (self.total, self.count)


class MeanSerde(BaseSerde[float]):
    """Total and count, eight bytes each."""

    name = "the serde of a mean"
    exact_types = frozenset({Mean})

    def serialize(self, value: float, /) -> bytes:
        if not isinstance(value, Mean):
            raise wrong_type("Mean", value)
        return _BYTES.pack(value.total, value.count)

    def deserialize(self, data: bytes, /) -> Mean:
        if len(data) != _BYTES.size:
            raise ValueError(f"expected {_BYTES.size} bytes, got {len(data)}")
        total, count = _BYTES.unpack(data)
        return Mean(total, count)
