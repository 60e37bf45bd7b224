"""Joins by foreign key in programs: names, serdes, partitions, and mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream import Store, StreamsBuilder, StreamsConfig, Suppressed, Topology, handlers, serdes, stores
from millstream.errors import ProcessingError, TopologyError
from millstream.testing import TopologyTestDriver

WORDS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
JSON: dict[str, Any] = {"key": serdes.string, "value": serdes.json}


def pair(left: object, right: object) -> str:
    return f"{left}+{right}"


def reference(_key: object, value: Any) -> Any:
    return value["customer"]


def built(build: Callable[[StreamsBuilder], Any]) -> Topology:
    builder = StreamsBuilder()
    build(builder)
    return builder.build()


def orders(builder: StreamsBuilder, foreign_key: Any = reference, **options: Any) -> Any:
    left: Any = builder.table("orders", **JSON)
    result = left.left_foreign_key_join(
        builder.table("customers", **WORDS), foreign_key, options.pop("joiner", pair), **options
    )
    result.to_stream().to("out", **WORDS)
    return result


def played(topology: Topology, *records: tuple[str, str, Any], **options: Any) -> list[tuple[str, Any]]:
    with TopologyTestDriver(topology, **options) as driver:
        topics: dict[str, Any] = {
            "orders": driver.input_topic("orders", **JSON),
            "customers": driver.input_topic("customers", **WORDS),
        }
        for topic, key, value in records:
            topics[topic].pipe(key, value, 0)
        out: Any = driver.output_topic("out", **WORDS)
        return [(record.key, record.value) for record in out.read_all()]


def test_what_a_join_keeps_and_sends_has_kafkas_names() -> None:
    plan = built(lambda b: orders(b, name="buyers", store="result")).undivided_plan()
    assert sorted(plan.repartition_topics) == [
        "buyers-subscription-registration-topic",
        "buyers-subscription-response-topic",
    ]
    assert [sorted(sub.stores) for sub in plan.subtopologies] == [
        ["orders-STATE-STORE-0000000000", "result"],
        ["buyers-subscription-store", "customers-STATE-STORE-0000000003"],
    ]


def test_the_joiner_may_have_the_key() -> None:
    topology = built(lambda b: orders(b, joiner=lambda key, left, right: f"{key}:{right}", with_key=True))
    rows = [("customers", "ann", "Ann"), ("orders", "1", {"customer": "ann"})]
    assert played(topology, *rows) == [("1", "1:Ann")]


def test_the_result_is_a_table_with_a_store_of_its_own_only_if_asked_for() -> None:
    assert orders(StreamsBuilder(), store="result").queryable_store_name == "result"
    assert orders(StreamsBuilder()).queryable_store_name is None


def test_tables_may_have_different_keys_and_numbers_of_partitions() -> None:
    def build(builder: StreamsBuilder) -> None:
        left: Any = builder.table("l", key=serdes.int64, value=serdes.string)
        left.foreign_key_join(builder.table("r", **WORDS), lambda _, value: value, pair)

    counts = built(build).plan().partitions({"l": 2, "r": 3})
    assert {topic: count for topic, count in counts.items() if topic.endswith("-topic")} == {
        "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic": 3,
        "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic": 2,
    }


def test_automatic_serdes_do() -> None:
    builder = StreamsBuilder()
    left = builder.stream("l", **WORDS).map(lambda key, value: (int(key), {"of": value}))
    right = builder.stream("r", **WORDS).group_by_key().count()
    result: Any = left.to_table().foreign_key_join(right, lambda _, row: row["of"], lambda row, count: count)
    result.to_stream().to("out", key=serdes.int64, value=serdes.int64)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("l", **WORDS).pipe("7", "a", 0)
        driver.input_topic("r", **WORDS).pipe("a", "x", 1)
        out = driver.output_topic("out", key=serdes.int64, value=serdes.int64)
        assert out.read_latest() == {7: 1}


@pytest.mark.parametrize("foreign_key", [None, "customer", 7])
def test_a_foreign_key_that_is_no_function_is_refused(foreign_key: Any) -> None:
    with pytest.raises(TopologyError) as caught:
        orders(StreamsBuilder(), foreign_key)
    assert str(caught.value) == (
        f"left_foreign_key_join() with the foreign_key {foreign_key!r}, which can't be called. Remedy: give "
        "a function of key and value of the left row that returns the key of the right row, as in "
        'foreign_key=lambda key, value: value["customer"]; None refers to no row'
    )


def test_a_joiner_that_is_no_function_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"with the joiner 'pair', which can't be called. Remedy: give a"):
        orders(StreamsBuilder(), joiner="pair")


def test_other_things_than_tables_are_refused() -> None:
    builder = StreamsBuilder()
    left: Any = builder.table("l", **WORDS)
    with pytest.raises(
        TopologyError, match=r"foreign_key_join\(\) with KStream.*a stream becomes one by to_t"
    ):
        left.foreign_key_join(builder.stream("r", **WORDS), reference, pair)


class Remembers:
    def init(self, context: Any) -> None:
        self.seen = context.state_store("seen")

    def transform(self, _key: Any, value: Any) -> Any:
        return value

    def close(self) -> None: ...


def test_a_left_table_that_is_found_by_code_that_may_write_is_refused_unless_it_has_a_store() -> None:
    def joined(**options: Any) -> Callable[[StreamsBuilder], Any]:
        def build(builder: StreamsBuilder) -> None:
            builder.add_state_store(stores.key_value("seen", **WORDS))
            left: Any = builder.table("l", **WORDS).transform_values(Remembers, "seen", **options)
            left.foreign_key_join(builder.table("r", **WORDS), lambda _, value: value, pair)

        return build

    with pytest.raises(TopologyError) as caught:
        built(joined(name="remembered"))
    assert str(caught.value) == (
        "foreign_key_join() of the table at 'remembered', whose rows are found by asking the transformer of "
        "transform_values() again, with its state stores 'seen': the last step of the join runs apart from "
        "that. Remedy: transform_values(..., store=Store(...)), so that rows are found in a store"
    )
    plan = built(joined(store=Store("kept", **WORDS))).plan()
    assert [name for sub in plan.subtopologies for name in sub.copies.values()] == ["kept-copy-10000"]


def test_a_row_behind_suppress_is_joined_as_it_was_sent() -> None:
    def build(builder: StreamsBuilder) -> None:
        left: Any = builder.table("orders", **JSON).suppress(Suppressed.until_time_limit(0))
        left.foreign_key_join(builder.table("customers", **WORDS), reference, pair).to_stream().to(
            "out", **WORDS
        )

    plan = built(build).plan()
    assert sorted(name for sub in plan.subtopologies for name in sub.copies.values()) == [
        "KTABLE-SUPPRESS-STATE-STORE-0000000004-copy-10000",
        "orders-STATE-STORE-0000000000-copy-10000",
    ]
    rows = [("customers", "ann", "Ann"), ("orders", "1", {"customer": "ann"}), ("customers", "ann", "ANN")]
    assert played(built(build), *rows) == [("1", "{'customer': 'ann'}+Ann"), ("1", "{'customer': 'ann'}+ANN")]


def test_tables_of_two_builders_are_refused() -> None:
    left: Any = StreamsBuilder().table("l", **WORDS)
    with pytest.raises(TopologyError, match=r"foreign_key_join\(\) of streams from two StreamsBuilders"):
        left.foreign_key_join(StreamsBuilder().table("r", **WORDS), reference, pair)


def test_a_foreign_key_of_another_type_than_the_keys_of_the_right_table_says_so() -> None:
    topology = built(orders)
    with pytest.raises(ProcessingError) as caught:
        played(topology, ("orders", "1", {"customer": 7}))
    message = str(caught.value)
    assert (
        "what foreign_key returned, a key of the right table, does not fit the serde of the join. Cannot "
        "serialize a value with serdes.string: expected str, got int (it is 7)"
    ) in message
    assert "topic 'orders', partition 0, offset 0" in message
    assert "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION" in message


def test_a_row_on_which_the_foreign_key_fails_can_be_skipped() -> None:
    config = StreamsConfig(processing_handler=handlers.skip)
    rows = [("orders", "1", {}), ("orders", "2", {"customer": None})]
    assert played(built(orders), *rows, config=config) == [("2", "{'customer': None}+None")]


def test_a_row_on_which_the_joiner_fails_can_be_skipped() -> None:
    def joiner(left: Any, right: Any) -> str:
        return pair(left["customer"], right.upper())

    config = StreamsConfig(processing_handler=handlers.skip)
    rows = [("orders", "1", {"customer": "ann"}), ("customers", "ann", "Ann")]
    assert played(built(lambda b: orders(b, joiner=joiner)), *rows, config=config) == [("1", "ann+ANN")]


def test_stale_answers_and_rows_without_a_reference_are_counted() -> None:
    builder = StreamsBuilder()
    left: Any = builder.table("orders", **JSON)
    result = left.foreign_key_join(builder.table("customers", **WORDS), reference, pair, name="buyers")
    result.to_stream().to("out", **WORDS)
    with TopologyTestDriver(builder.build()) as driver:
        topic: Any = driver.input_topic("orders", **JSON)
        topic.pipe("1", {"customer": None}, 0)
        counters = driver.metrics.as_dict()["0_0"]["buyers-subscription-registration-processor"]
        assert counters["records-dropped"] == 1


def test_a_versioned_left_table_sends_only_its_latest_rows() -> None:
    builder = StreamsBuilder()
    left: Any = builder.table("orders", store=Store("orders", versioned=100, **JSON), **JSON)
    left.left_foreign_key_join(builder.table("customers", **WORDS), reference, pair).to_stream().to(
        "out", **WORDS
    )
    with TopologyTestDriver(builder.build()) as driver:
        topic: Any = driver.input_topic("orders", **JSON)
        topic.pipe("1", {"customer": "b"}, 20)
        topic.pipe("1", {"customer": "a"}, 10)
        out: Any = driver.output_topic("out", **WORDS)
        assert [record.timestamp for record in out.read_all()] == [20]
