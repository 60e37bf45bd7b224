from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, assert_type

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import serdes

FINITE = st.floats(allow_nan=False, allow_infinity=False)
INT64 = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INT64 | FINITE | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@dataclass(frozen=True)
class Item:
    sku: str
    price: float


@dataclass(frozen=True)
class Order:
    shop: str
    items: tuple[Item, ...]
    note: str | None = None


class Visit(TypedDict):
    page: str
    seconds: int


ITEMS = st.builds(Item, sku=st.text(), price=FINITE)
ORDERS = st.builds(
    Order, shop=st.text(), items=st.lists(ITEMS, max_size=3).map(tuple), note=st.none() | st.text()
)


@given(JSON)
def test_plain_json_round_trips(value: Any) -> None:
    assert serdes.json.deserialize(serdes.json.serialize(value)) == value


@given(ORDERS)
def test_a_dataclass_round_trips(order: Order) -> None:
    serde = serdes.json(Order)
    assert serde.deserialize(serde.serialize(order)) == order


@given(st.fixed_dictionaries({"page": st.text(), "seconds": INT64}))
def test_a_typed_dict_round_trips(visit: Visit) -> None:
    serde = serdes.json(Visit)
    assert serde.deserialize(serde.serialize(visit)) == visit


@given(st.fixed_dictionaries({"shop": st.text(), "amount": INT64, "tags": st.lists(st.text())}))
def test_a_declared_schema_round_trips(value: dict[str, Any]) -> None:
    serde = serdes.json({"shop": str, "amount": int, "tags": list[str]})
    assert serde.deserialize(serde.serialize(value)) == value


@given(st.dictionaries(st.text(), JSON, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_change_the_bytes(value: dict[str, Any], random: Any) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert serdes.json.serialize(dict(shuffled)) == serdes.json.serialize(value)


def test_the_order_of_fields_does_not_change_the_bytes() -> None:
    assert serdes.json(Item).serialize(Item("a", 1.5)) == b'{"price":1.5,"sku":"a"}'


def test_equal_numbers_give_equal_bytes_in_a_float_field() -> None:
    serde = serdes.json({"price": float})
    assert serde.serialize({"price": 1}) == serde.serialize({"price": 1.0}) == b'{"price":1.0}'


def test_fields_that_the_schema_does_not_name_are_ignored_when_reading() -> None:
    assert serdes.json(Item).deserialize(b'{"sku":"a","price":1.0,"new":true}') == Item("a", 1.0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"shop": 7, "amount": 1},
            "the value would not be readable again: Expected `str`, got `int` - at `$.shop`",
        ),
        (
            {"shop": "north"},
            "the value would not be readable again: Object missing required field `amount`",
        ),
        (
            {"shop": "north", "amount": 1, "colour": "red"},
            "the value would not come back equal from JSON, but as {'amount': 1, 'shop': 'north'}",
        ),
        ([1], "the value would not be readable again: Expected `object`, got `array`"),
    ],
)
def test_a_value_that_does_not_fit_the_schema_is_refused_when_it_is_written(value: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        serdes.json({"shop": str, "amount": int}).serialize(value)
    assert str(caught.value) == message


def test_nan_is_refused_with_a_schema_because_it_would_be_read_as_null() -> None:
    with pytest.raises(ValueError, match="Expected `float`, got `null`"):
        serdes.json(Item).serialize(Item("a", math.nan))
    with pytest.raises(ValueError, match="would not come back equal"):
        serdes.json({"price": float | None}).serialize({"price": math.nan})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"sku":"a"}', "Object missing required field `price`"),
        (b'{"sku":"a","price":"1"}', "Expected `float`, got `str` - at `$.price`"),
        (b'{"sku":', "Input data was truncated"),
        (b"\xff\xfe", "JSON is malformed: invalid character (byte 0)"),
        (b"", "Input data was truncated"),
    ],
)
def test_bytes_that_do_not_fit_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        serdes.json(Item).deserialize(data)
    assert str(caught.value) == message


@given(st.binary())
def test_any_bytes_are_read_or_refused_with_a_value_error(data: bytes) -> None:
    with suppress(ValueError):
        serdes.json.deserialize(data)


def test_deep_nesting_is_an_ordinary_error() -> None:
    with pytest.raises(RecursionError):
        serdes.json.deserialize(b"[" * 1_000_000)


@pytest.mark.parametrize("value", [{1: "a"}, object(), {"a": {2: 3}}])
def test_plain_json_refuses_what_json_cannot_say(value: Any) -> None:
    with pytest.raises(TypeError):
        serdes.json.serialize(value)


def test_a_dataclass_without_equality_can_be_written() -> None:
    @dataclass(eq=False)
    class Point:
        x: int

    serde = serdes.json(Point)
    assert serde.deserialize(serde.serialize(Point(3))).x == 3


def test_polars_types_declare_a_schema() -> None:
    serde = serdes.json(
        {
            "shop": pl.String,
            "amount": pl.Int8,
            "prices": pl.List(pl.Float64),
            "place": pl.Struct({"x": pl.UInt64, "open": pl.Boolean}),
        }
    )
    value = {"shop": "north", "amount": -128, "prices": [1.5, None], "place": {"x": 2**64 - 1, "open": None}}
    assert serde.deserialize(serde.serialize(value)) == value
    assert repr(serde) == (
        "serdes.json({shop: String, amount: Int8, prices: List(Float64), "
        "place: Struct({'x': UInt64, 'open': Boolean})})"
    )


@pytest.mark.parametrize("amount", [b"128", b"-129", b"1.5", b'"1"'])
def test_polars_types_keep_their_bounds(amount: bytes) -> None:
    with pytest.raises(ValueError, match=r"\$\.amount"):
        serdes.json({"amount": pl.Int8}).deserialize(b'{"amount":' + amount + b"}")


def test_polars_types_admit_null_and_python_types_do_not() -> None:
    assert serdes.json({"amount": pl.Int64}).deserialize(b'{"amount":null}') == {"amount": None}
    with pytest.raises(ValueError, match="Expected `int`, got `null`"):
        serdes.json({"amount": int}).deserialize(b'{"amount":null}')


def test_a_schema_may_be_nested() -> None:
    serde = serdes.json({"place": {"x": int, "y": int}})
    assert serde.deserialize(b'{"place":{"x":1,"y":2}}') == {"place": {"x": 1, "y": 2}}


@pytest.mark.parametrize("schema", [5, "Order", {1: int}, {"a": 5}, {"a": pl.Object}, pl.List])
def test_what_is_no_schema_is_refused_with_the_remedy(schema: Any) -> None:
    with pytest.raises(TypeError, match="the schema cannot be used") as caught:
        serdes.json(schema)
    assert "Remedy: give a dataclass, a TypedDict, or a mapping from field names to types" in str(
        caught.value
    )


def test_no_serde_imports_polars() -> None:
    modules = list(Path(serdes.__file__).parent.glob("*.py"))
    assert len(modules) > 5
    assert [path.name for path in modules if "import polars" in path.read_text(encoding="utf-8")] == []


def test_names_say_what_was_declared() -> None:
    assert repr(serdes.json) == "serdes.json"
    assert repr(serdes.json(Order)) == "serdes.json(Order)"
    assert repr(serdes.json({"shop": str, "n": int | None})) == "serdes.json({shop: str, n: int | None})"
    assert repr(serdes.json(list[int])) == "serdes.json(list[int])"


def test_the_types_are_known_to_the_type_checker() -> None:
    assert_type(serdes.json(Item).deserialize(b'{"sku":"a","price":1}'), Item)
    assert_type(serdes.json(Visit).deserialize(b'{"page":"a","seconds":1}'), Visit)
    assert_type(serdes.json({"a": int}).deserialize(b'{"a":1}'), dict[str, Any])
