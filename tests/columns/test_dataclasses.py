"""Dataclasses in the column tier: expressions see their fields, functions see themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import KStream, Record, Store, StreamsBuilder, key, serdes, value
from millstream.errors import TopologyError
from millstream.processors.columns.column import Column
from millstream.serdes.columns import codec_of
from millstream.task.column_codec import decoded, encoded
from millstream.testing import TopologyTestDriver


@dataclass(frozen=True)
class Place:
    city: str
    zip: int | None = None


@dataclass(frozen=True)
class Order:
    shop: str
    amount: int
    price: float | None = None
    place: Place | None = None
    tags: list[str] = field(default_factory=list, hash=False)
    stops: list[Place] = field(default_factory=list, hash=False)


@dataclass(frozen=True)
class Total:
    shop: str
    amount: int


@dataclass
class Checked:
    amount: int

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError("negative")


@dataclass
class Dated:
    when: datetime
    amount: int


@dataclass
class Tree:
    size: int
    left: Tree | None = None


class Row(TypedDict):
    shop: str
    place: Place


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
INT64 = st.integers(-(2**63), 2**63 - 1)
PLACES = st.builds(Place, TEXT, st.none() | INT64)
ORDERS = st.builds(
    Order,
    TEXT,
    INT64,
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | PLACES,
    st.lists(TEXT, max_size=2),
    st.lists(PLACES, max_size=2),
)
CASES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "flat": (serdes.json(Total), st.builds(Total, TEXT, INT64)),
    "nested": (serdes.json(Order), ORDERS),
    "inside of a mapping": (serdes.json({"order": Order}), st.fixed_dictionaries({"order": ORDERS})),
    "a TypedDict": (serdes.json(Row), st.fixed_dictionaries({"shop": TEXT, "place": PLACES})),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_columns_of_dataclasses_are_what_the_serde_reads_and_writes(name: str, data: st.DataObject) -> None:
    serde, values = CASES[name]
    drawn = data.draw(st.lists(st.none() | values, min_size=1, max_size=5))
    raw = serde.serialize_many(drawn)
    column = decoded(serde, Column(raw))
    assert column is not None
    assert column.in_arrow
    assert list(column.rows()) == drawn
    written = encoded(serde, column)
    assert written is not None
    assert list(written) == raw


def test_fields_that_are_missing_have_their_defaults() -> None:
    column = decoded(serdes.json(Order), Column([b'{"shop":"north","amount":3}', None]))
    assert column is not None
    assert list(column.rows()) == [Order("north", 3), None]


@pytest.mark.parametrize("cls", [Checked, Dated, Tree])
def test_a_class_that_is_more_than_its_fields_has_no_column_form(cls: type) -> None:
    assert codec_of(serdes.json(cls)) is None


def run(build: Any, orders: list[Any], serde: Any, out: Any) -> list[Record[Any, Any]]:
    builder = StreamsBuilder()
    build(builder.stream("orders", key=serdes.string, value=serde)).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("orders", key=serdes.string, value=serde)
        source.pipe_all([Record("k", order, at) for at, order in enumerate(orders)])
        return driver.output_topic("out", key=out[0], value=out[1]).read_all()


ORDER = Order("north", 12, 1.5, Place("Oslo"), ["a"], [Place("Rome", 5)])
SMALL = Order("south", 3)


def test_an_expression_looks_at_fields_of_nested_and_missing_dataclasses() -> None:
    found = run(
        lambda orders: orders.filter(value.amount > 1).map((value.shop, value.place.city)),
        [ORDER, SMALL],
        serdes.json(Order),
        (serdes.string, serdes.string),
    )
    assert found == [Record("north", "Oslo", 0), Record("south", None, 1)]


def test_a_function_behind_an_expression_gets_the_dataclass() -> None:
    def double(order: Order) -> int:
        return order.amount * (2 if isinstance(order.place, Place) else 1)

    found = run(
        lambda orders: orders.filter(value.amount > 1).map_values(double),
        [ORDER, SMALL],
        serdes.json(Order),
        (serdes.string, serdes.int64),
    )
    assert [record.value for record in found] == [24, 3]


def test_an_expression_behind_a_function_sees_the_fields() -> None:
    def larger(order: Order) -> Total:
        return Total(order.shop, order.amount + 1)

    def wrapped(order: Order) -> dict[str, Any]:
        return {"orders": [larger(order)]}

    for function, expression in (
        (larger, value.amount),
        (wrapped, value.orders.list.first().struct.field("amount")),
    ):
        found = run(
            lambda orders, function=function, expression=expression: orders.map_values(function).map_values(
                expression
            ),
            [ORDER, SMALL],
            serdes.json(Order),
            (serdes.string, serdes.int64),
        )
        assert [record.value for record in found] == [13, 4]


def test_a_class_with_checks_of_its_own_is_looked_at_value_by_value() -> None:
    found = run(
        lambda rows: rows.map_values(value.amount + 1),
        [Checked(1), Checked(2)],
        serdes.json(Checked),
        (serdes.string, serdes.int64),
    )
    assert [record.value for record in found] == [2, 3]


def test_a_record_of_expressions_is_written_as_a_dataclass() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=serdes.string, value=serdes.json(Order))
    totals: KStream[str, Any] = orders.map_values(pl.struct(shop=value.shop, amount=value.amount))
    totals.to("totals", value=serdes.json(Total))
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("orders", key=serdes.string, value=serdes.json(Order)).pipe("k", ORDER)
        found = driver.output_topic("totals", key=serdes.string, value=serdes.json(Total)).read_values()
    assert found == [Total("north", 12)]


@pytest.mark.parametrize("caching", [True, False])
def test_a_reduction_by_an_expression_gives_the_dataclass(*, caching: bool) -> None:
    seen: list[Any] = []

    def note(_: str, order: Order) -> None:
        seen.append(order)

    builder = StreamsBuilder()
    orders = builder.stream("orders", key=serdes.string, value=serdes.json(Order))
    largest = orders.group_by_key().reduce(
        value.sort_by(value.amount).last(), store=Store("largest", caching=caching)
    )
    largest.to_stream().foreach(note)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("orders", key=serdes.string, value=serdes.json(Order))
        source.pipe_all([("k", SMALL), ("k", ORDER), ("k", SMALL)])
        assert driver.store("largest").get("k") == ORDER
    assert seen == [SMALL, ORDER, ORDER]


def test_a_dataclass_is_a_key_in_columns() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=serdes.json(Place), value=serdes.string)
    orders.filter(key.city != "Rome").group_by_key().count(store="counts")
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("orders", key=serdes.json(Place), value=serdes.string)
        source.pipe_all([(Place("Oslo"), "a"), (Place("Rome"), "b"), (Place("Oslo"), "c")])
        assert dict(driver.store("counts").all()) == {Place("Oslo"): 2}


def built(give: Any, stream: Any, builder: StreamsBuilder) -> None:
    give(stream)
    builder.build()


@pytest.mark.parametrize(
    ("serde", "what"),
    [
        (serdes.json(Dated), "serdes.json(Dated): datetime in when can't be a column"),
        (serdes.json({"when": pl.Date, "amount": int}), "date in when can't be a column"),
        (serdes.uuid, "serdes.uuid: UUID can't be a column"),
    ],
)
def test_what_can_t_be_a_column_is_refused_where_the_expression_is_given(serde: Any, what: str) -> None:
    for give in (
        lambda stream: stream.filter(value.amount > 1),
        lambda stream: stream.map((key, value)),
        lambda stream: stream.group_by_key().sum(value.amount),
        lambda stream: stream.split().branch(value.amount > 1).default_branch(),
        lambda stream: stream.group_by_key().reduce(value.last()),
    ):
        builder = StreamsBuilder()
        with pytest.raises(TopologyError) as caught:
            built(give, builder.stream("in", key=serdes.string, value=serde), builder)
        assert what in str(caught.value)
        assert "Remedy: give a function in place of the expression" in str(caught.value)
    stream = StreamsBuilder().stream("in", key=serdes.string, value=serde)
    stream.filter(key != "x")  # the value is not looked at
