"""From a spec to a topology of the column tier: the same functions, as expressions.

Which operators are built of expressions and which of functions is drawn, so that tiers meet in all ways.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import polars as pl
from tests.properties import spec as s
from tests.properties.build import Building, Built, build_with
from tests.properties.functions import MODULUS, Join, NewKey, NewValue, Poison, Predicate, Several

from millstream import key, other, value

_ORD = {chr(code): code for code in range(32, 127)}


def build_in_columns(spec: s.Spec, share: float) -> tuple[Built, int]:
    """Make the topology, and say how many of its operators are of expressions."""
    building = _ColumnBuilding(spec, share)
    built = build_with(building, spec)
    return built, building.columns


class _ColumnBuilding(Building):
    def __init__(self, spec: s.Spec, share: float) -> None:
        super().__init__(spec)
        self.share = share
        self.columns = 0
        self.rng = random.Random(f"tiers of {spec.seed}")
        self.makers: dict[type[s.Op], Callable[[Any], Any]] = {
            s.Filter: self.filter,
            s.Split: self.split_by_expressions,
            s.Map: self.map,
            s.MapValues: self.map_values,
            s.FlatMapValues: self.flat_map_values,
            s.SelectKey: self.select_key,
            s.Group: self.group,
            s.Aggregate: self.aggregate,
            s.WindowedAggregate: self.windowed_aggregate,
            s.StreamTableJoin: self.stream_table_join,
            s.GlobalTableJoin: self.global_table_join,
        }

    def make(self, op: s.Op) -> Any:
        maker = self.makers.get(type(op))
        if maker is not None and self.rng.random() < self.share:
            made = maker(op)
            if made is not None:
                self.columns += 1
                return made
        return super().make(op)

    def filter(self, op: s.Filter) -> Any:
        stream = self.parent(op)
        return (stream.filter_not if op.negated else stream.filter)(holds(op.predicate), name=op.name)

    def split_by_expressions(self, op: s.Split) -> Any:
        return self.split(op, [holds(predicate) for predicate in op.predicates])

    def map(self, op: s.Map) -> Any:
        return self.parent(op).map((new_key(op.key), new_value(op.value)), name=op.name)

    def map_values(self, op: s.MapValues) -> Any:
        return self.parent(op).map_values(new_value(op.mapper, with_key=op.with_key), name=op.name)

    def flat_map_values(self, op: s.FlatMapValues) -> Any:
        return self.parent(op).flat_map_values(several(op.values), name=op.name)

    def select_key(self, op: s.SelectKey) -> Any:
        return self.parent(op).select_key(new_key(op.key), name=op.name)

    def group(self, op: s.Group) -> Any:
        if op.key is None:
            return None
        return self.parent(op).group_by(new_key(op.key), name=op.name if op.named else None, **self.serdes)

    def aggregate(self, op: s.Aggregate) -> Any:
        if op.how not in {"sum", "min", "max"}:
            return None
        of = new_value(op.of, with_key=False)
        return getattr(self.parent(op), op.how)(of, **self.named_store(op))

    def windowed_aggregate(self, op: s.WindowedAggregate) -> Any:
        if op.how not in {"sum", "min", "max"} or op.cut.kind not in {"time", "unlimited"}:
            return None
        of = new_value(op.of, with_key=False)
        return getattr(self.windowed(op), op.how)(of, **self.named_store(op))

    def stream_table_join(self, op: s.StreamTableJoin) -> Any:
        return self.look_up(op, joined(op.joiner, with_key=op.with_key))

    def global_table_join(self, op: s.GlobalTableJoin) -> Any:
        return self.look_up_globally(op, joined(op.joiner, with_key=op.with_key))


def number() -> pl.Expr:
    """A value as a number."""
    return value.fill_null(0).cast(pl.Int64)


def key_number() -> pl.Expr:
    """A key as a number: the sum of its characters."""
    letters = key.str.split("").list.eval(pl.element().replace_strict(_ORD, default=0, return_dtype=pl.Int64))
    return letters.list.sum().fill_null(0)


def poisoned(poison: Poison) -> pl.Expr:
    """Zero; but it fails on some values.

    To be used outside of `then`: what a `then` does not take is null to it, and null may be poison.
    """
    if poison.remainder < 0:
        return pl.lit(0)
    is_poison = number() % 13 == poison.remainder
    return pl.when(is_poison).then(pl.lit("poison")).otherwise(pl.lit("0")).cast(pl.Int64)


def holds(predicate: Predicate) -> pl.Expr:
    found = number() + key_number() + poisoned(predicate.poison)
    return found % predicate.modulus < predicate.below


def new_key(made: NewKey) -> pl.Expr:
    chosen = (number() + key_number() % 3) % made.modulus
    return pl.when(chosen + poisoned(made.poison) != made.null_at).then(pl.format("k{}", chosen))


def new_value(made: NewValue, *, with_key: bool = True) -> pl.Expr:
    key_part = key_number() if with_key else pl.lit(0)
    new = (number() * made.factor + made.shift + key_part) % MODULUS
    return pl.when(new % 5 + poisoned(made.poison) != made.null_at).then(new)


def joined(made: Join, *, with_key: bool) -> pl.Expr:
    key_part = key_number() if with_key else pl.lit(0)
    result = (number() * made.factor + other.fill_null(11).cast(pl.Int64) + key_part) % MODULUS
    return pl.when(result % 7 != made.null_at).then(result)


def several(made: Several) -> pl.Expr:
    copies = [(number() * 3 + copy) % MODULUS + poisoned(made.poison) for copy in range(made.modulus)]
    return pl.concat_list(copies).list.head(number() % made.modulus)
