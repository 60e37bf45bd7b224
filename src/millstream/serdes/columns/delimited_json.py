"""Many flat JSON records that are all spelled alike, cut at the names of their fields.

All records are `{"a":1,"b":"x"}` with the same names in the same order and spacing. So what stands between
two values is always the same text: where it is found first, the value before it ends. That is faster than a
regular expression with groups. Nothing is believed:

* Each record begins and ends as it must, and has every text between two values, in order.
* No byte of any record is a backslash or a control character, and all of them together have no more quotation
  marks than these texts. So no string has one in it, or anything that is escaped.
* What stands in place of a number is one by JSON's own rules.

If anything is otherwise with a single record, none is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import msgspec
import polars as pl
import pyarrow as pa

__all__ = ["NUMBER", "read_delimited"]

NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
"""A number, as JSON has it."""
_MANY_ROWS: Final = 10_000
"""With fewer the many small steps take longer than one expression."""
_POWERS: Final = [0, *(10**digits for digits in range(1, 18))]
"""The smallest whole number of so many digits and one more; more digits may not fit."""
_FIRST_PRINTABLE, _QUOTE, _BACKSLASH = 0x20, 0x22, 0x5C


def read_delimited(
    text: pl.Series, fields: Mapping[str, pl.DataType], colon: str, comma: str
) -> dict[str, pl.Series] | None:
    """The values of each field, given in the order in which records have them; None if they can't be read."""
    if len(text) < _MANY_ROWS or text.null_count():
        return None
    texts = _texts(fields, colon, comma)
    try:
        records = text.cast(pl.Binary).rechunk().to_arrow().cast(pa.binary())
    except pa.ArrowInvalid:  # more bytes than offsets of 32 bits can count
        return None
    if not _is_plain(records, sum(one.count('"') for one in texts) * len(text)):
        return None
    bounds = _bounds(text, records, texts)
    if bounds is None:
        return None
    found: dict[str, pl.Series] = {}
    for (name, dtype), (starts, ends) in zip(fields.items(), bounds, strict=True):
        values = _values(_pieces(records, starts, ends), dtype)
        if values is None:
            return None
        found[name] = values
    return found


def _texts(fields: Mapping[str, pl.DataType], colon: str, comma: str) -> list[str]:
    """What stands in front of the first value, between two, and behind the last."""
    quotes = ['"' if dtype == pl.String() else "" for dtype in fields.values()]
    names = [msgspec.json.encode(name).decode() + colon for name in fields]
    between = [
        before + comma + name + behind
        for name, (before, behind) in zip(names[1:], pairwise(quotes), strict=True)
    ]
    return ["{" + names[0] + quotes[0], *between, quotes[-1] + "}"]


def _is_plain(records: pa.Array, quotes: int) -> bool:
    """Whether the records have nothing escaped, and so many quotation marks together."""
    offsets, data = _offsets(records), records.buffers()[2]
    size = int(offsets[-1] - offsets[0])
    if data is None or not size:
        return False
    every = _series(pa.Array.from_buffers(pa.uint8(), size, [None, data], offset=int(offsets[0])))
    if (every < _FIRST_PRINTABLE).any() or (every == _BACKSLASH).any():
        return False
    return (every == _QUOTE).sum() == quotes


def _bounds(text: pl.Series, records: pa.Array, texts: list[str]) -> list[tuple[pl.Series, pl.Series]] | None:
    """Where each value of each record begins and ends among the bytes of all records."""
    column, (first, *between, last) = pl.col("text"), texts
    found = text.to_frame("text").select(
        (column.str.starts_with(first) & column.str.ends_with(last)).alias("whole"),
        *(column.str.find(one, literal=True).alias(str(at)) for at, one in enumerate(between)),
    )
    if not found["whole"].all() or any(found[str(at)].null_count() for at in range(len(between))):
        return None
    offsets = _offsets(records)
    begins = offsets.head(len(text))
    places = [begins + found[str(at)] for at in range(len(between))]
    ends = [*places, offsets.tail(len(text)) - len(last)]
    lengths = [len(one.encode()) for one in between]
    starts = [
        begins + len(first.encode()),
        *(place + size for place, size in zip(places, lengths, strict=True)),
    ]
    bounds = list(zip(starts, ends, strict=True))
    return bounds if all((start <= end).all() for start, end in bounds) else None


def _pieces(records: pa.Array, starts: pl.Series, ends: pl.Series) -> pl.Series:
    """The text from each start to its end, without copying it. All are ends of characters.

    Every second row of an array whose offsets are all starts and ends in turn: two of 32 bits are one of 64.
    """
    both = (starts + ends * (1 << 32)).rechunk().to_arrow()
    rows = pa.Array.from_buffers(
        pa.string(), 2 * len(starts) - 1, [None, both.buffers()[1], records.buffers()[2]]
    )
    return _series(rows).gather_every(2)


def _values(text: pl.Series, dtype: pl.DataType) -> pl.Series | None:
    if dtype == pl.String():
        return text
    if dtype == pl.Boolean():
        is_true = text == "true"
        return is_true if (is_true | (text == "false")).all() else None
    values = text.cast(dtype, strict=False)
    if values.null_count():
        return None
    if dtype == pl.Float64():
        return values if (values.is_finite() & text.str.contains(f"^{NUMBER}$")).all() else None
    return values if _are_canonical(values, text) else None


def _are_canonical(numbers: pl.Series, text: pl.Series) -> bool:
    """Whether whole numbers have just the digits that they need."""
    more_digits = text.str.len_bytes() - (numbers < 0).cast(pl.UInt32) - 1
    if more_digits.max() >= len(_POWERS):  # type: ignore[operator]  # there are rows
        return False
    return bool((numbers.abs() >= pl.Series(_POWERS).gather(more_digits)).all())


def _offsets(records: pa.Array) -> pl.Series:
    buffer = records.buffers()[1]
    offsets = pa.Array.from_buffers(pa.int32(), len(records) + 1, [None, buffer], offset=records.offset)
    return _series(offsets).cast(pl.Int64)


def _series(array: pa.Array) -> pl.Series:
    found = pl.from_arrow(array)
    assert isinstance(found, pl.Series)  # an array is no table
    return found
