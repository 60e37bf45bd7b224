"""The functions of `functions.py` as Polars expressions, for string keys and whole numbers as values."""

from __future__ import annotations

import polars as pl
from tests.oracle_fuzz.functions import MODULUS, Function
from tests.properties.column_build import key_number, number

from millstream import other


def holds(f: Function) -> pl.Expr:
    """A predicate: true for some keys and values."""
    found: pl.Expr = (number() + _key(f)) % f["mod"]
    return found < pl.lit(f["below"])


def new_key(f: Function) -> pl.Expr:
    """Another key, made of the value; null if `null` is hit."""
    chosen = (number() + _key(f) % 3) % f["mod"]
    return pl.when(chosen != f["null"]).then(pl.format("k{}", chosen))


def new_value(f: Function) -> pl.Expr:
    """Another value; null if `null` is hit."""
    made = (number() * f["a"] + f["b"] + _key(f)) % MODULUS
    return pl.when(made % 5 != f["null"]).then(made)


def several(f: Function) -> pl.Expr:
    """No value, or some."""
    copies = [(number() * 3 + copy) % MODULUS for copy in range(f["mod"])]
    return pl.concat_list(copies).list.head(number() % f["mod"])


def joined(f: Function, *, with_key: bool) -> pl.Expr:
    """A joiner; the record has a value, the table may have none."""
    made = (number() * f["a"] + other.fill_null(11) * f["b"] + _key({"key": with_key})) % MODULUS
    return pl.when(made % 5 != f["null"]).then(made)


def _key(f: Function) -> pl.Expr:
    return key_number() if f["key"] else pl.lit(0)
