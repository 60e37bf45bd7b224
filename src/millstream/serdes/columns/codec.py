"""What a codec is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl


class CannotError(Exception):
    """A codec can't do a column: go through it value by value."""


class Codec:
    """The column form of one serde. Nulls stay nulls.

    ``dtype`` is the type of the series that `decode` gives, None if it depends on the bytes.
    """

    dtype: pl.DataType | None

    @property
    def shown_as(self) -> Callable[[Any], Any] | None:
        """What Python is shown of an entry of the series, if not the entry itself."""
        return None

    def takes(self, shown_as: Callable[[Any], Any] | None) -> bool:
        """Whether the serde writes what Python is shown of a column in that way."""
        return shown_as == self.shown_as

    def decode(self, data: pl.Series) -> pl.Series:
        """Bytes into values. Raises, whatever it likes, if the serde would refuse any of them."""
        raise NotImplementedError

    def encode(self, values: pl.Series) -> pl.Series:
        """Values into bytes. Raises, whatever it likes, if the serde would refuse any of them."""
        raise NotImplementedError


def require(values: pl.Series, dtype: pl.DataType) -> None:
    """Give up on a series of another type: the serde decides, value by value."""
    if values.dtype != dtype:
        raise CannotError(f"a column of {values.dtype} where {dtype} is needed")
