"""Flat JSON records that are all spelled alike, by one regular expression, or faster if they allow it.

The expression has the fields of the schema in the order and spacing of the first record, and in place of each
value exactly what JSON allows for its type. So a record that it matches is one that the serde reads, and the
values are those that it would read. Records that it does not match are left to others. Many records that it
would all match are read by `delimited_json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import polars as pl

from millstream.serdes.columns.delimited_json import NUMBER, read_delimited

_VALUES: Final[dict[pl.DataType, str]] = {
    pl.String(): r'"([^"\\\x00-\x1f]*)"',
    pl.Int64(): r"(-?(?:0|[1-9][0-9]{0,17}))",  # more digits may not fit
    pl.Float64(): f"({NUMBER})",
    pl.Boolean(): "(true|false)",
}


class FlatPattern:
    """How the records of a column are spelled."""

    def __init__(self, fields: Mapping[str, tuple[pl.DataType, bool]], text: str) -> None:
        colon = ": " if '": ' in text else ":"
        comma = ", " if ', "' in text else ","
        parts = [
            re.escape(msgspec.json.encode(name).decode()) + colon + _value(dtype, nullable=nullable)
            for name, (dtype, nullable) in fields.items()
        ]
        self._pattern = "^\\{" + comma.join(parts) + "\\}$"
        self._types = {name: dtype for name, (dtype, _) in fields.items()}
        self._has_nulls = any(nullable for _, nullable in fields.values())
        self._colon, self._comma = colon, comma

    @classmethod
    def of(cls, fields: Mapping[str, tuple[pl.DataType, bool]], text: str, record: Any) -> FlatPattern | None:
        """The pattern of a record that has exactly these fields (types, and whether null is admitted)."""
        if not isinstance(record, dict) or record.keys() != fields.keys():
            return None
        if not all(dtype in _VALUES for dtype, _ in fields.values()):
            return None
        return cls({name: fields[name] for name in record}, text)

    def read(self, text: pl.Series, dtype: pl.DataType) -> tuple[pl.Series, pl.Series]:
        """The records as a column of `dtype`, and which of them were read: of the others nothing is known."""
        order = [field.name for field in dtype.fields]  # type: ignore[attr-defined]  # it is a record
        columns = None if self._has_nulls else read_delimited(text, self._types, self._colon, self._comma)
        if columns is not None:
            return pl.DataFrame(columns).select(order).to_struct("value"), pl.repeat(
                value=True, n=len(text), eager=True
            )
        groups = text.to_frame("text").select(found=pl.col("text").str.extract_groups(self._pattern))
        found = groups.unnest("found")
        numbers = {name: str(number) for number, name in enumerate(self._types, 1)}
        # A record of nothing but nulls looks like one that does not match, and is left to others, too.
        matched = pl.any_horizontal(pl.col(number).is_not_null() for number in numbers.values())
        values = {name: _read(pl.col(numbers[name]), kind) for name, kind in self._types.items()}
        record = pl.struct([values[name].alias(name) for name in order])
        finite = [values[name].is_finite() for name in order if self._types[name] == pl.Float64()]
        read = pl.all_horizontal(matched, *(one.fill_null(value=True) for one in finite))
        result = found.select(value=pl.when(matched).then(record), read=read)
        return result["value"], result["read"]


def _value(dtype: pl.DataType, *, nullable: bool) -> str:
    return f"(?:{_VALUES[dtype]}|null)" if nullable else _VALUES[dtype]


def _read(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if dtype == pl.Boolean():
        return text == "true"
    return text if dtype == pl.String() else text.cast(dtype)
