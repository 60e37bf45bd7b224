"""Joins with tables by expressions: what functions give, whatever the batches."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.processors.table_join_oracle import Epoch, epochs, played

from millstream import Store, StreamsBuilder, key, other, serdes, timestamp, value
from millstream.errors import TopologyError
from millstream.processors.columns import column
from millstream.testing import TopologyTestDriver

WORDS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
EXPRESSION = value + "+" + other.fill_null("None")


def joined(left: str, right: str | None) -> str:
    return f"{left}+{right}"


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.sampled_from(["join", "left_join"]),
    epochs("s", "t"),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([None, 4]),
    st.sampled_from([0, column.MANY_ROWS]),
)
def test_an_expression_joins_as_a_function_does(
    kind: str, script: list[Epoch], max_rows: int | None, grace: int | None, many: int
) -> None:
    def run(joiner: Any) -> list[Any]:
        builder = StreamsBuilder()
        table = builder.table("t", store=Store("t", versioned=None if grace is None else 100), **WORDS)
        stream = builder.stream("s", **WORDS).filter(value.is_not_null())
        getattr(stream, kind)(table, joiner, grace=grace).to("out", **WORDS)
        return played(builder.build(), script, ["s", "t"], max_rows=max_rows)

    with patch.object(column, "MANY_ROWS", many):
        found = run(EXPRESSION)
    assert found == run(joined)


def test_fields_of_both_sides_are_columns_and_the_result_has_a_serde() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=serdes.string, value=serdes.json({"amount": pl.Int64()}))
    prices = builder.table("prices", key=serdes.string, value=serdes.json({"price": pl.Int64()}))
    total = orders.join(prices, pl.struct(total=value.amount * other.price, item=key, at=timestamp))
    assert total.in_columns
    total.to("out")
    anything: dict[str, Any] = {"key": serdes.string, "value": serdes.json}
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("prices", **anything).pipe("bread", {"price": 3}, timestamp=1)
        driver.input_topic("orders", **anything).pipe("bread", {"amount": 4}, timestamp=2)
        (record,) = driver.output_topic("out", **anything).read_all()
    assert record.value == {"total": 12, "item": "bread", "at": 2}


def test_a_global_table_is_joined_by_an_expression() -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", key=serdes.string, value=serdes.int64)
    amounts = builder.stream("amounts", key=serdes.string, value=serdes.int64)
    amounts.left_join(rates, value * other.fill_null(0), key_of=lambda key, value: key).to("out")
    numbers: dict[str, Any] = {"key": serdes.string, "value": serdes.int64}
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("rates", **numbers).pipe("a", 3, timestamp=1)
        driver.input_topic("amounts", **numbers).pipe("a", 4, timestamp=2)
        driver.input_topic("amounts", **numbers).pipe("b", 4, timestamp=2)
        records = driver.output_topic("out", **numbers).read_all()
    assert [record.value for record in records] == [12, 0]


def test_an_expression_that_can_not_be_is_refused_when_the_join_is_written() -> None:
    builder = StreamsBuilder()
    table, stream = builder.table("t", **WORDS), builder.stream("s", **WORDS)
    with pytest.raises(TopologyError, match="record has only key, value, timestamp and other"):
        stream.join(table, pl.col("price"))
    with pytest.raises(TopologyError, match="record has only key, value and timestamp"):
        stream.map_values(other)
    with pytest.raises(TopologyError, match=r"join: .* can't be computed"):
        stream.join(table, other.price)
