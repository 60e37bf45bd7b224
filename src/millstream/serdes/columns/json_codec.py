"""Columns of JSON.

Flat records that are all spelled alike are decoded by one regular expression: see `flat_json`. The others
(nested, spelled in another way, with fields that the schema does not name, or really bad) are read by the
serde. (Polars reads JSON, too, but leniently, where the serde refuses: 1.5 as a whole number becomes 1. To
prove what it has read by writing it again takes longer than to let the serde read it.)
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import polars as pl

from millstream.serdes.api import BaseSerde
from millstream.serdes.columns.codec import CannotError, Codec, require
from millstream.serdes.columns.flat_json import FlatPattern
from millstream.serdes.columns.types import canonical, is_json
from millstream.serdes.json_serde import JsonSerde, TypedJsonSerde, decode_json
from millstream.serdes.records import ShownAs, is_record_class, plain_records

_PYTHON: dict[Any, pl.DataType] = {
    str: pl.String(),
    int: pl.Int64(),
    float: pl.Float64(),
    bool: pl.Boolean(),
}
_SAME_SPELLING = 1e16
"""From here on Polars and the serde write exponents differently."""


@dataclass(frozen=True)
class _Shape:
    """A declared type: what a column of it is, and what its values must not be."""

    dtype: pl.DataType
    nullable: bool
    bounds: tuple[int, int] | None = None
    fields: Mapping[str, _Shape] | None = None
    inner: _Shape | None = None
    of_class: bool = False
    """It is a dataclass, or there is one inside."""


class JsonCodec(Codec):
    """JSON of one declared shape."""

    dtype: pl.DataType

    def __init__(self, serde: TypedJsonSerde[Any], shape: _Shape) -> None:
        self._serde = serde
        self._shape = shape
        self.dtype = shape.dtype
        self._shown_as = ShownAs(serde.schema) if shape.of_class else None

    @property
    def shown_as(self) -> Callable[[Any], Any] | None:
        """See `Codec.shown_as`."""
        return self._shown_as

    def takes(self, shown_as: Callable[[Any], Any] | None) -> bool:
        """See `Codec.takes`: a plain record may stand for a dataclass."""
        return shown_as is None or shown_as == self._shown_as

    def decode(self, data: pl.Series) -> pl.Series:
        text = data.cast(pl.String, strict=True)
        first = text.drop_nulls().head(1).to_list()
        if not first:
            return pl.Series([None] * len(data), dtype=self.dtype)
        pattern = FlatPattern.of(self._flat_fields(), first[0], decode_json(first[0]))
        if pattern is None:
            return self._by_serde(data)
        value, read = pattern.read(text, self.dtype)
        left = (text.is_not_null() & ~read) | _any(_bad(pl.col("value"), self._shape), value)
        if not left.any():
            return value
        rows = left.arg_true()
        return _replaced(value, rows, self._by_serde(data.gather(rows)))

    def _flat_fields(self) -> dict[str, tuple[pl.DataType, bool]]:
        fields = self._shape.fields or {}
        return {name: (field.dtype, field.nullable) for name, field in fields.items()}

    def _by_serde(self, data: pl.Series) -> pl.Series:
        values = [None if one is None else self._serde.deserialize(one) for one in data.to_list()]
        if values.count(None) > data.null_count():
            raise CannotError("null where a record is expected")
        if self._shape.of_class:
            values = plain_records(values)
        return pl.Series(values, dtype=self.dtype, strict=True)

    def encode(self, values: pl.Series) -> pl.Series:
        if not _same_fields(values.dtype, self.dtype):
            require(values, self.dtype)
        if _any(_bad(pl.col("value"), self._shape), values).any():
            raise CannotError("a value that the schema does not admit")
        return encode_json(values, self._serde)


class AnyJsonCodec(Codec):
    """JSON without a schema. What is read may be anything, so reading is left to the serde."""

    dtype = None

    def decode(self, data: pl.Series) -> pl.Series:
        raise CannotError(f"{len(data)} values of JSON without a schema")

    def encode(self, values: pl.Series) -> pl.Series:
        if not is_json(values.dtype):
            raise CannotError(f"{values.dtype} in JSON")
        return encode_json(values, JsonSerde())


def typed_json_codec(serde: TypedJsonSerde[Any]) -> JsonCodec | None:
    """The codec of a declared shape; None for one that columns don't have (a number alone, a date)."""
    shape = _shape_of(serde.schema)
    return None if shape is None or shape.fields is None else JsonCodec(serde, shape)


def encode_json(values: pl.Series, serde: BaseSerde[Any]) -> pl.Series:
    """A column of records or lists as JSON: sorted fields, no white space."""
    text = _written(values)
    odd = _any(_oddly_spelled(pl.col("value"), values.dtype), values)
    data = text.cast(pl.Binary)
    if not odd.any():
        return data
    rows = odd.arg_true()
    written = serde.serialize_many(values.gather(rows).to_list())
    return _replaced(data, rows, pl.Series(written, dtype=pl.Binary))


def _replaced(column: pl.Series, rows: pl.Series, news: pl.Series) -> pl.Series:
    """A column with other values in some rows, of whatever type."""
    places = pl.int_range(len(column), eager=True).scatter(
        rows, pl.int_range(len(column), len(column) + len(news), eager=True)
    )
    return pl.concat([column, news]).gather(places)


def _written(values: pl.Series) -> pl.Series:
    """Values as JSON text, fields in order."""
    dtype, ordered = values.dtype, _ordered(pl.col("value"), values.dtype)
    frame = values.to_frame("value")
    if isinstance(dtype, pl.Struct) and dtype.fields:
        text = ordered.struct.json_encode()
    else:  # only records can be written: take the brackets off again
        text = pl.struct(x=ordered).struct.json_encode().str.slice(5).str.strip_suffix("}")
    return frame.select(pl.when(pl.col("value").is_not_null()).then(text)).to_series()


def _ordered(value: pl.Expr, dtype: Any) -> pl.Expr:
    """A value with the fields of its records sorted."""
    if isinstance(dtype, pl.List):
        if not _has_records(dtype.inner):
            return value
        return value.list.eval(_ordered(pl.element(), dtype.inner))
    if not isinstance(dtype, pl.Struct) or not dtype.fields:
        return value
    fields = sorted(dtype.fields, key=lambda field: field.name)
    parts = [_ordered(value.struct.field(field.name), field.dtype).alias(field.name) for field in fields]
    return pl.when(value.is_not_null()).then(pl.struct(parts))


def _has_records(dtype: Any) -> bool:
    return isinstance(dtype, pl.Struct) or (isinstance(dtype, pl.List) and _has_records(dtype.inner))


def _any(conditions: Iterator[pl.Expr], values: pl.Series) -> pl.Series:
    """Which values meet any of some conditions on the column `value`."""
    found = [condition.fill_null(value=False) for condition in conditions]
    if not found:
        return pl.repeat(value=False, n=len(values), eager=True)
    return values.to_frame("value").select(pl.any_horizontal(found)).to_series()


def _bad(value: pl.Expr, shape: _Shape) -> Iterator[pl.Expr]:
    """What the schema does not admit, below the value itself (whose null is no value)."""
    if shape.bounds is not None:
        low, high = shape.bounds
        yield (value < low) | (value > high)
    for name, field in (shape.fields or {}).items():
        inside = value.struct.field(name)
        if not field.nullable:
            yield value.is_not_null() & inside.is_null()
        yield from _bad(inside, field)
    if shape.inner is not None:
        conditions = list(_bad(pl.element(), shape.inner))
        if not shape.inner.nullable:
            conditions.append(pl.element().is_null())
        for condition in conditions:
            yield value.list.eval(condition.fill_null(value=False)).list.any()


def _oddly_spelled(value: pl.Expr, dtype: Any) -> Iterator[pl.Expr]:
    """Numbers that Polars writes in another way than the serde."""
    if dtype == pl.Float64():
        yield ~(value.abs() < _SAME_SPELLING)
    elif isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            yield from _oddly_spelled(value.struct.field(field.name), field.dtype)
    elif isinstance(dtype, pl.List):
        for condition in _oddly_spelled(pl.element(), dtype.inner):
            yield value.list.eval(condition.fill_null(value=False)).list.any()


def _same_fields(one: Any, other: Any) -> bool:
    """Whether two records have the same fields of the same types, in whatever order."""
    are_records = isinstance(one, pl.Struct) and isinstance(other, pl.Struct)
    return are_records and dict(one.to_schema()) == dict(other.to_schema())


def _shape_of(schema: Any, above: frozenset[type] = frozenset()) -> _Shape | None:
    """The shape of a schema inside of some classes; None if columns don't have it."""
    if isinstance(schema, Mapping):
        return _record(schema, above, nullable=False)
    if schema in _PYTHON:
        return _Shape(_PYTHON[schema], nullable=False)
    if isinstance(schema, types.UnionType) or typing.get_origin(schema) is typing.Union:
        return _optional(typing.get_args(schema), above)
    if typing.get_origin(schema) is list:
        return _list(_shape_of(typing.get_args(schema)[0], above), nullable=False)
    if isinstance(schema, pl.DataType) or (isinstance(schema, type) and issubclass(schema, pl.DataType)):
        return _polars(schema)
    return _class(schema, above) if isinstance(schema, type) and schema not in above else None


def _class(schema: Any, above: frozenset[type]) -> _Shape | None:
    """The shape of a dataclass or a TypedDict, if its fields are all that there is to it."""
    is_dict = typing.is_typeddict(schema) and not schema.__optional_keys__
    is_plain = (
        is_record_class(schema)
        and not hasattr(schema, "__post_init__")
        and all(field.init for field in fields(schema))
    )
    if not is_dict and not is_plain:
        return None
    try:
        hints = typing.get_type_hints(schema, include_extras=True)
    except (NameError, TypeError):  # names that only a function knows
        return None
    names = hints if is_dict else [field.name for field in fields(schema)]
    shape = _record({name: hints[name] for name in names}, above | {schema}, nullable=False)
    return None if shape is None else replace(shape, of_class=shape.of_class or is_plain)


def _optional(kinds: tuple[Any, ...], above: frozenset[type]) -> _Shape | None:
    inner = [kind for kind in kinds if kind is not type(None)]
    shape = _shape_of(inner[0], above) if len(inner) == 1 else None
    return None if shape is None else replace(shape, nullable=True)


def _record(schema: Mapping[str, Any], above: frozenset[type], *, nullable: bool) -> _Shape | None:
    shapes = {name: _shape_of(kind, above) for name, kind in schema.items()}
    known = {name: shape for name, shape in shapes.items() if shape is not None}
    if len(known) < len(shapes) or not known:
        return None
    dtype = pl.Struct({name: shape.dtype for name, shape in known.items()})
    return _Shape(dtype, nullable, fields=known, of_class=any(one.of_class for one in known.values()))


def _list(inner: _Shape | None, *, nullable: bool) -> _Shape | None:
    if inner is None:
        return None
    return _Shape(pl.List(inner.dtype), nullable, inner=inner, of_class=inner.of_class)


def _polars(dtype: Any) -> _Shape | None:
    dtype = dtype if isinstance(dtype, pl.DataType) else dtype()
    if isinstance(dtype, pl.Struct):
        return _record({field.name: field.dtype for field in dtype.fields}, frozenset(), nullable=True)
    if isinstance(dtype, pl.List):
        return _list(_polars(dtype.inner), nullable=True)
    if dtype in {pl.String(), pl.Boolean(), pl.Float64(), pl.Int64()}:
        return _Shape(dtype, nullable=True)
    if dtype.is_integer() and dtype not in {pl.UInt64(), pl.Int128(), pl.UInt128()}:
        series = pl.DataFrame(schema={"x": dtype}).select(
            low=pl.lit(0, dtype).lower_bound(), high=pl.lit(0, dtype).upper_bound()
        )
        low, high = series.row(0)
        return _Shape(canonical(dtype), True, (low, high))
    return None
