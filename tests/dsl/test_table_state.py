"""Which tables have a store and which send old values: settled by what is built behind them."""

from __future__ import annotations

from typing import Any

from millstream import KTable, StreamsBuilder, serdes
from millstream.processors.table import TableOperator
from millstream.processors.table_values import TableValues

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def kept(key: str, value: str) -> bool:
    return bool(value)


def grouped(table: KTable[Any, Any]) -> None:
    table.group_by(lambda key, value: (value, key), **STRINGS).count(store="groups")


def stores_of(builder: StreamsBuilder) -> list[str]:
    return sorted(name for sub in builder.build().plan().subtopologies for name in sub.stores)


def sends_old(builder: StreamsBuilder, node: str) -> bool:
    operator = builder.build().graph.nodes[node].make()  # type: ignore[union-attr]
    assert isinstance(operator, TableOperator | TableValues)
    return operator.send_old


def test_a_table_that_nobody_needs_to_look_up_has_no_store() -> None:
    builder = StreamsBuilder()
    builder.table("in", **STRINGS).map_values(len).to_stream().to("out")
    assert stores_of(builder) == []


def test_a_named_store_is_always_there() -> None:
    builder = StreamsBuilder()
    assert builder.table("in", store="rows", **STRINGS).queryable_store_name == "rows"
    assert stores_of(builder) == ["rows"]


def test_grouping_a_table_gives_it_a_store_and_makes_it_send_old_values() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", name="table", **STRINGS)
    grouped(table)
    assert table.queryable_store_name is None
    assert stores_of(builder) == ["groups", "in-STATE-STORE-0000000000"]
    assert sends_old(builder, "table")


def test_the_demand_for_old_values_goes_up_to_a_table_that_has_them() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", name="table", **STRINGS)
    grouped(table.map_values(str.upper, name="upper").filter(kept, name="kept"))
    assert [sends_old(builder, node) for node in ("table", "upper", "kept")] == [True] * 3


def test_a_stored_table_in_between_answers_the_demand_itself() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", name="table", store="rows", **STRINGS)
    grouped(table.map_values(str.upper, name="upper", store="uppers"))
    assert [sends_old(builder, node) for node in ("table", "upper")] == [False, True]


def test_a_filter_takes_old_values_only_if_the_table_has_a_store_when_it_is_called() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", name="table", **STRINGS)
    table.filter(kept, name="before")
    grouped(table)
    table.filter(kept, name="after")
    assert [sends_old(builder, node) for node in ("before", "after")] == [False, True]


def test_the_filters_own_store_does_not_help() -> None:
    builder = StreamsBuilder()
    builder.table("in", **STRINGS).filter(kept, name="kept", store="kept-rows")
    assert not sends_old(builder, "kept")


def test_a_filter_of_an_aggregation_has_old_values() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", **STRINGS).group_by_key().count(name="counts")
    counts.filter(lambda key, count: count > 1, name="many")
    assert [sends_old(builder, node) for node in ("counts", "many")] == [True, True]


def test_a_store_that_is_asked_for_without_a_name_is_made_only_if_needed() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", **STRINGS)
    table.filter(kept, value=serdes.string).to_stream().to("out")
    assert stores_of(builder) == []
