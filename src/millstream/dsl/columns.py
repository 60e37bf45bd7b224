"""Expressions in the DSL: `key`, `value` and `timestamp`, and what an operator may do with them.

An expression stands for a function that is called once per record, so it must be elementwise: `value.sum()`
would depend on how many records happen to be in a batch. That, and its type where the serdes tell, is checked
when the topology is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from millstream.errors import TopologyError
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.keyed_columns import ColumnAggregation
from millstream.processors.aggregations.reduce import reduce_in_columns
from millstream.processors.columns import stateless
from millstream.processors.columns.expressions import Declared
from millstream.processors.joins.column_joiner import ColumnJoiner
from millstream.processors.operator import Operator
from millstream.processors.windows.time_window_columns import ColumnTimeWindowAggregation
from millstream.serdes import Serde, boolean, double, int64, json, serde_name, string
from millstream.serdes import bytes as raw_bytes
from millstream.serdes.columns import codec_of
from millstream.serdes.columns.refusals import without_columns
from millstream.serdes.columns.types import canonical, is_json
from millstream.windows import TimeWindows, UnlimitedWindows

__all__ = [
    "ColumnOperator",
    "RecordColumn",
    "checked",
    "column_aggregate",
    "column_branch",
    "column_joiner",
    "column_reduce",
    "column_step",
    "key",
    "other",
    "timestamp",
    "value",
]

_COLUMNS = ("key", "value", "timestamp")
_COLUMNS_OF_JOINS = (*_COLUMNS, "other")
_SERDES: dict[pl.DataType, Serde[Any]] = {
    pl.String(): string,
    pl.Int64(): int64,
    pl.Float64(): double,
    pl.Boolean(): boolean,
    pl.Binary(): raw_bytes,
}


class RecordColumn(pl.Expr):
    """A column of the record, or a field in it: an expression whose unknown attributes are fields.

    >>> from millstream import value
    >>> str(value.amount > 10) == str(pl.col("value").struct.field("amount") > 10)
    True
    >>> str(value["sum"]) == str(pl.col("value").struct.field("sum"))
    True
    """

    @classmethod
    def of(cls, expression: pl.Expr) -> RecordColumn:
        """An expression whose fields can be named."""
        column = cls.__new__(cls)
        column._pyexpr = expression._pyexpr  # noqa: SLF001 - a subclass that only adds names
        return column

    @classmethod
    def _from_pyexpr(cls, pyexpr: Any) -> pl.Expr:
        """Whatever is made of it is an ordinary expression."""
        return pl.Expr._from_pyexpr(pyexpr)  # noqa: SLF001 - see above

    def __getattr__(self, name: str) -> RecordColumn:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> RecordColumn:
        """A field, also one that is called like a method of expressions."""
        return RecordColumn.of(self.struct.field(name))


key = RecordColumn.of(pl.col("key"))
value = RecordColumn.of(pl.col("value"))
timestamp = RecordColumn.of(pl.col("timestamp"))
other = RecordColumn.of(pl.col("other"))


def checked(expression: pl.Expr, operator: str, columns: tuple[str, ...] = _COLUMNS) -> pl.Expr:
    """The expression, if an operator can take it."""
    if not isinstance(expression, pl.Expr):
        raise TopologyError(f"{operator}: {expression!r} is neither a function nor an expression")
    if expression.meta.has_multiple_outputs():
        raise TopologyError(
            f"{operator}: {expression} may stand for several columns. Remedy: name columns and fields (not "
            "by a pattern, type or number), and put several into one with pl.struct(...)"
        )
    unknown = sorted(set(expression.meta.root_names()) - set(columns))
    if unknown:
        raise TopologyError(
            f"{operator}: {expression} names the column {unknown[0]!r}, but a record has only "
            f"{', '.join(columns[:-1])} and {columns[-1]}. Remedy: value.{unknown[0]} for a field of the "
            "value"
        )
    for part in _parts(expression):
        if not _is_elementwise(part):
            raise TopologyError(
                f"{operator}: {part} looks at several records at once, so its result would depend on how "
                "records are batched. Remedy: an aggregation (group_by(...).sum(...)) for sums over records"
            )
    return expression


@dataclass(frozen=True, slots=True)
class ColumnOperator:
    """An operator over expressions, and the serdes of what each of them gives, where that can be told."""

    make: Callable[..., Any]
    serdes: tuple[Any, ...]


_OPERATORS: dict[str, Callable[..., Operator]] = {
    "filter": stateless.ColumnFilter,
    "filter_not": stateless.ColumnFilterNot,
    "map": stateless.ColumnMap,
    "map_values": stateless.ColumnMapValues,
    "flat_map_values": stateless.ColumnFlatMapValues,
    "select_key": stateless.ColumnSelectKey,
    "group_by": stateless.ColumnSelectKey,
}


def column_step(
    operator: str, expressions: tuple[pl.Expr, ...], key_serde: Any, value_serde: Any
) -> ColumnOperator:
    """The operator of that name over expressions, behind keys and values of some serdes.

    The serdes of its results write what `serdes.auto` would write. An expression that can't work on the types
    that are known is refused.
    """
    for expression in expressions:
        _check_serdes(operator, checked(expression, operator), key=key_serde, value=value_serde)
    declared = declared_by(key_serde, value_serde)
    results = [_result_type(expression, declared, operator) for expression in expressions]
    if operator == "flat_map_values":
        results = [result.inner if isinstance(result, pl.List) else None for result in results]  # type: ignore[misc]
    make = partial(_OPERATORS[operator], *expressions, declared=declared)
    return ColumnOperator(make, tuple(map(_serde_of, results)))


def column_branch(predicates: tuple[Any, ...], key_serde: Any, value_serde: Any) -> Callable[..., Operator]:
    """A split whose predicates are expressions."""
    if not all(isinstance(predicate, pl.Expr) for predicate in predicates):
        message = "the branches of one split() take functions or expressions, not both"
        raise TopologyError(message)
    declared = declared_by(key_serde, value_serde)
    for predicate in predicates:
        _check_serdes("branch", checked(predicate, "branch"), key=key_serde, value=value_serde)
        _result_type(predicate, declared, "branch")
    return partial(stateless.ColumnBranch, predicates, declared=declared)


def column_aggregate(
    name: str,
    aggregation: Aggregation,
    of: pl.Expr | None,
    key_serde: Any,
    value_serde: Any,
    windows: TimeWindows | UnlimitedWindows | None = None,
) -> ColumnOperator:
    """An aggregation of the column tier; `of` says what of each record is folded, None its value."""
    if of is not None:
        _check_serdes(name, checked(of, name), key=key_serde, value=value_serde)
    declared = declared_by(key_serde, value_serde)
    result = None if of is None else _result_type(of, declared, name)
    operator: Callable[..., Operator] = ColumnAggregation
    if windows is not None:
        operator = partial(ColumnTimeWindowAggregation, windows=windows)
    make = partial(operator, aggregation=aggregation, of=of, declared=declared)
    return ColumnOperator(make, (_serde_of(result),))


def column_reduce(reducer: pl.Expr, key_serde: Any, value_serde: Any) -> ColumnOperator:
    """A reduction of the column tier: the expression makes one value of several."""
    if set(reducer.meta.root_names()) != {"value"} or not reducer.meta.is_scalar():
        raise TopologyError(
            f"reduce: {reducer} does not make one value of several values. Remedy: an expression over value "
            "that does, for example value.max() or value.last()"
        )
    _check_serdes("reduce", reducer, value=value_serde)
    declared = declared_by(key_serde, value_serde)
    result = _result_type(reducer, declared, "reduce")
    if result is not None and result != declared.value:
        raise TopologyError(f"reduce: {reducer} gives {result}, but values are {declared.value}")
    codec = codec_of(value_serde)
    aggregation = reduce_in_columns(reducer, declared.value, None if codec is None else codec.shown_as)
    make = partial(ColumnAggregation, aggregation=aggregation, of=None, declared=declared)
    return ColumnOperator(make, (value_serde,))


def column_joiner(joiner: pl.Expr, operator: str, key_serde: Any, value: Any, other: Any) -> ColumnOperator:
    """A joiner of the column tier: what it makes of the record and of the `other` value, a row of a table."""
    checked(joiner, operator, _COLUMNS_OF_JOINS)
    _check_serdes(operator, joiner, key=key_serde, value=value, other=other)
    declared = replace(declared_by(key_serde, value), other=_dtype(other))
    result = _result_type(joiner, declared, operator)
    return ColumnOperator(partial(ColumnJoiner, joiner, declared=declared), (_serde_of(result),))


def declared_by(key_serde: Any, value_serde: Any) -> Declared:
    """The types that serdes tell."""
    return Declared(_dtype(key_serde), _dtype(value_serde))


def _check_serdes(operator: str, expression: pl.Expr, **serdes: Any) -> None:
    """Refuse an expression that looks at what can't be a column."""
    for root in expression.meta.root_names():
        found = without_columns(serdes.get(root))
        if found is not None:
            raise TopologyError(
                f"{operator}: {expression} looks at the {root}, which is of {serde_name(serdes[root])}: "
                f"{found} can't be a column. Remedy: give a function in place of the expression, or declare "
                "str, int, float, bool, or lists, dataclasses or dicts of these"
            )


def _result_type(expression: pl.Expr, declared: Declared, operator: str) -> pl.DataType | None:
    """The type of what an expression gives, None where that can't be told now."""
    known = {
        "key": declared.key,
        "value": declared.value,
        "other": declared.other,
        "timestamp": pl.Int64(),
    }
    used = {name: known[name] for name in expression.meta.root_names()}
    if any(dtype is None for dtype in used.values()):
        return None
    frame = pl.DataFrame(schema={"row": pl.Int64(), **used})  # no rows: only types are asked for
    try:
        dtype = canonical(frame.select(found=expression).schema["found"])
    except pl.exceptions.PolarsError as error:
        types = ", ".join(f"{name} is {dtype}" for name, dtype in used.items())
        raise TopologyError(
            f"{operator}: {expression} can't be computed: {error} ({types}). Remedy: keep to the fields and "
            "types that its serdes declare"
        ) from None
    return _required(dtype, operator, expression)


def _required(dtype: pl.DataType, operator: str, expression: pl.Expr) -> pl.DataType:
    wanted = {
        "filter": pl.Boolean,
        "filter_not": pl.Boolean,
        "branch": pl.Boolean,
        "flat_map_values": pl.List,
    }.get(operator)
    if wanted is not None and not isinstance(dtype, wanted | pl.Null):
        raise TopologyError(f"{operator}: {expression} gives {dtype}, but {wanted.__name__} is needed")
    if operator in {"sum", "mean"} and not (dtype.is_numeric() or isinstance(dtype, pl.Boolean | pl.Null)):
        raise TopologyError(
            f"{operator}: {expression} gives {dtype}, but a number is needed. Remedy: name a field that is "
            "one, or cast it, as in value.amount.cast(pl.Float64)"
        )
    return dtype


def _serde_of(dtype: pl.DataType | None) -> Any:
    if dtype is None:
        return None
    if isinstance(dtype, pl.Struct) and is_json(dtype):
        return json({field.name: field.dtype for field in dtype.fields})
    return _SERDES.get(dtype)


def _dtype(serde: Any) -> pl.DataType | None:
    codec = codec_of(serde)
    return None if codec is None else codec.dtype


def _parts(expression: pl.Expr) -> Iterator[pl.Expr]:
    """The expression and all that it is made of, except what works inside of lists."""
    yield expression
    for part in expression.meta.pop():
        if "element()" not in str(part):
            yield from _parts(part)


def _is_elementwise(part: pl.Expr) -> bool:
    if part.meta.is_literal():
        return True
    try:
        # What is made of literals alone has one row for all.
        keeps_length = part.meta.is_length_preserving() or not part.meta.root_names()
        return part.meta.is_row_separable() and keeps_length
    except pl.exceptions.PolarsError:
        # Polars would have to know the types of its columns: a function of the user's own, say.
        return True
