"""What the type checker knows of a handle after each operator.

`assert_type` does nothing when it runs; mypy, which checks the tests too, is the judge. The functions are
tests all the same, so that nothing is promised here that could not be built.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypedDict, assert_type
from uuid import UUID

import polars as pl
import pytest

from millstream import (
    CogroupedKStream,
    Consumer,
    ConsumerRecord,
    EmitStrategy,
    FixedKeyProcessor,
    FixedKeyRecord,
    GlobalKTable,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    Processor,
    Producer,
    Record,
    SessionWindowedKStream,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindowedKStream,
    TimeWindows,
    UnlimitedWindows,
    Windowed,
    Windows,
    key,
    serdes,
    value,
)
from millstream.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver


class Order(TypedDict):
    shop: str
    amount: int


def stream_of_words() -> KStream[str, str]:
    return StreamsBuilder().stream("words", key=serdes.string, value=serdes.string)


def table_of_words() -> KTable[str, str]:
    return StreamsBuilder().table("words", key=serdes.string, value=serdes.string)


def stream_of_orders() -> KStream[str, Order]:
    return StreamsBuilder().stream("orders", key=serdes.string, value=serdes.json(Order))


def test_sources_have_the_types_of_their_serdes() -> None:
    builder = StreamsBuilder()
    assert_type(builder.stream("a", key=serdes.string, value=serdes.int64), KStream[str, int])
    assert_type(builder.stream(["b", "c"], key=serdes.uuid, value=serdes.bytes), KStream[UUID, bytes])
    assert_type(
        builder.stream(re.compile("d.*"), key=serdes.string, value=serdes.json(Order)), KStream[str, Order]
    )
    assert_type(builder.table("e", key=serdes.string, value=serdes.double), KTable[str, float])
    assert_type(builder.stream("g", value=serdes.string), KStream[bytes, str])
    assert_type(builder.stream("h", key=serdes.string), KStream[str, bytes])
    assert_type(builder.stream("i"), KStream[bytes, bytes])
    assert_type(builder.table("j"), KTable[bytes, bytes])
    assert_type(builder.global_table("f", key=serdes.string, value=serdes.boolean), GlobalKTable[str, bool])


def test_a_schema_given_as_a_mapping_makes_dicts() -> None:
    orders = StreamsBuilder().stream("orders", key=serdes.string, value=serdes.json({"shop": str}))
    assert_type(orders, KStream[str, dict[str, Any]])


def test_filters_keep_types() -> None:
    words = stream_of_words()
    assert_type(words.filter(lambda _, word: word != "the"), KStream[str, str])
    assert_type(words.filter_not(lambda _, word: len(word) > 3), KStream[str, str])
    assert_type(words.peek(print), KStream[str, str])
    assert_type(words.repartition(partitions=4), KStream[str, str])
    assert_type(words.merge(words.select_key(lambda _, word: word)), KStream[str, str])


def test_map_takes_key_and_value_from_the_pair() -> None:
    words = stream_of_words()
    assert_type(words.map(lambda key, word: (len(word), key)), KStream[int, str])
    assert_type(words.map(lambda key, word: (word, (key, 1.5))), KStream[str, tuple[str, float]])


def test_map_values_keeps_the_key() -> None:
    words = stream_of_words()
    assert_type(words.map_values(len), KStream[str, int])
    assert_type(words.map_values(lambda word: word.encode()), KStream[str, bytes])
    assert_type(words.map_values_with_key(lambda key, word: (key, word)), KStream[str, tuple[str, str]])
    assert_type(stream_of_orders().map_values(lambda order: order["amount"]), KStream[str, int])


def test_flat_map_takes_what_the_iterables_hold() -> None:
    words = stream_of_words()
    assert_type(words.flat_map(lambda _, word: [(letter, 1) for letter in word]), KStream[str, int])
    assert_type(words.flat_map_values(str.split), KStream[str, str])
    assert_type(words.flat_map_values(lambda word: map(ord, word)), KStream[str, int])
    assert_type(words.flat_map_values_with_key(lambda key, word: {key, word}), KStream[str, str])


def test_select_key_keeps_the_value() -> None:
    assert_type(stream_of_words().select_key(lambda _, word: len(word)), KStream[int, str])


def test_split_gives_streams_of_the_same_type() -> None:
    branches = stream_of_words().split().branch(lambda _, word: len(word) > 3).default_branch()
    assert_type(branches, dict[str, KStream[str, str]])


def test_grouping_gives_grouped_streams() -> None:
    words = stream_of_words()
    assert_type(words.group_by(lambda _, word: len(word)), KGroupedStream[int, str])
    assert_type(words.group_by_key(), KGroupedStream[str, str])


def test_a_join_by_foreign_key_has_the_keys_of_the_left_table_and_what_the_joiner_returns() -> None:
    builder = StreamsBuilder()
    orders = builder.table("orders", key=serdes.int64, value=serdes.string)
    prices = builder.table("prices", key=serdes.string, value=serdes.double)

    def cost(order: str, price: float) -> float:
        return len(order) * price

    def name(key: int, order: str, price: float | None) -> str:
        return f"{key}, {order}, {price}"

    joined = orders.foreign_key_join(prices, lambda key, order: order[:key], cost)
    assert_type(joined, KTable[int, float])
    left = orders.left_foreign_key_join(prices, lambda _, order: order or None, name, with_key=True)
    assert_type(left, KTable[int, str])


def test_count_gives_a_table_of_ints() -> None:
    counts = stream_of_words().group_by(lambda _, word: len(word)).count(store="counts")
    assert_type(counts, KTable[int, int])
    assert_type(counts.to_stream(), KStream[int, int])


def test_reduce_keeps_the_value() -> None:
    words = stream_of_words().group_by_key()
    assert_type(words.reduce(lambda longest, word: max(longest, word, key=len)), KTable[str, str])
    assert_type(words.reduce(max), KTable[str, str])


def append(_key: str, word: str, words: list[str]) -> list[str]:
    return [*words, word]


def test_aggregate_gives_a_table_of_what_the_aggregator_returns() -> None:
    words = stream_of_words().group_by_key()
    assert_type(words.aggregate(lambda: 0, lambda _, word, total: total + len(word)), KTable[str, int])
    assert_type(words.aggregate(list, append), KTable[str, list[str]])
    assert_type(words.aggregate(list[str], lambda _, word, seen: [*seen, word]), KTable[str, list[str]])
    assert_type(
        words.aggregate(float, lambda _, word, total: total + len(word), value=serdes.double),
        KTable[str, float],
    )


def test_sum_min_and_max_of_a_part_have_its_type() -> None:
    orders = stream_of_orders().group_by(lambda _, order: order["shop"])
    assert_type(orders.sum(lambda order: order["amount"]), KTable[str, int])
    assert_type(orders.min(lambda order: order["amount"]), KTable[str, int])
    assert_type(orders.max(lambda order: order["amount"] / 2), KTable[str, float])


def test_sum_min_and_max_of_values_have_their_type() -> None:
    lengths = stream_of_words().map_values(len).group_by_key()
    assert_type(lengths.sum(), KTable[str, int])
    assert_type(lengths.min(), KTable[str, int])
    assert_type(lengths.max(store="longest"), KTable[str, int])


def add_length(_key: str, word: str, total: int) -> int:
    return total + len(word)


def test_cogroup_has_the_type_of_its_aggregate() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", key=serdes.string, value=serdes.string).group_by_key()
    numbers = builder.stream("numbers", key=serdes.string, value=serdes.int64).group_by_key()
    together = words.cogroup(add_length).cogroup(numbers, lambda _, number, total: total + number)
    assert_type(together, CogroupedKStream[str, int])
    assert_type(together.aggregate(lambda: 0), KTable[str, int])


def test_streams_and_tables_turn_into_each_other() -> None:
    words = stream_of_words()
    assert_type(words.to_table(), KTable[str, str])
    assert_type(words.to_table().to_stream(), KStream[str, str])
    assert_type(words.to_table().to_stream(lambda _, word: len(word)), KStream[int, str])


def test_table_operators_keep_the_key() -> None:
    words = table_of_words()
    assert_type(words.filter(lambda _, word: len(word) > 3), KTable[str, str])
    assert_type(words.filter_not(lambda _, word: len(word) > 3), KTable[str, str])
    assert_type(words.map_values(len), KTable[str, int])
    assert_type(words.map_values_with_key(lambda key, word: (key, len(word))), KTable[str, tuple[str, int]])


class Length:
    def init(self, context: Any) -> None: ...

    def transform(self, key: str, value: str | None) -> int:
        return len(key if value is None else value)

    def close(self) -> None: ...


def test_transform_values_gives_what_the_transformer_returns() -> None:
    assert_type(table_of_words().transform_values(Length), KTable[str, int])


def test_a_table_grouped_anew_is_aggregated_with_its_new_types() -> None:
    by_length = table_of_words().group_by(lambda key, word: (len(word), key))
    assert_type(by_length, KGroupedTable[int, str])
    assert_type(by_length.count(), KTable[int, int])
    assert_type(
        by_length.reduce(lambda so_far, new: so_far + new, lambda so_far, _: so_far), KTable[int, str]
    )
    assert_type(
        by_length.aggregate(
            lambda: 0.5, lambda _, key, total: total + len(key), lambda length, _, total: total - length
        ),
        KTable[int, float],
    )


class Split(Processor[str, str, int, bytes]):
    def process(self, record: Record[str, str]) -> None:
        assert_type(record.value, str)
        for position, letter in enumerate(record.value):
            self.context.forward(record.with_key(position).with_value(letter.encode()))


class Measure(FixedKeyProcessor[str, str, int]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_value(len(record.value)))


def test_a_processor_says_what_it_forwards() -> None:
    words = stream_of_words()
    assert_type(words.process(Split), KStream[int, bytes])
    assert_type(words.process(lambda: Split()), KStream[int, bytes])  # noqa: PLW0108 - a supplier may be a function
    assert_type(words.process_values(Measure), KStream[str, int])


def test_the_topics_of_a_test_have_the_types_of_their_serdes() -> None:
    builder = StreamsBuilder()
    builder.stream("words", key=serdes.string, value=serdes.string).map_values(len).to("lengths")
    with TopologyTestDriver(builder.build()) as driver:
        words = driver.input_topic("words", key=serdes.string, value=serdes.string)
        lengths = driver.output_topic("lengths", key=serdes.string, value=serdes.int64)
        assert_type(words, TestInputTopic[str, str])
        assert_type(lengths, TestOutputTopic[str, int])
        words.pipe("k", "river")
        assert_type(lengths.read(), Record[str, int])


def test_expressions_keep_the_types_that_they_do_not_change() -> None:
    stream = stream_of_orders()
    assert_type(stream.filter(value.amount > 1), KStream[str, Order])
    assert_type(stream.filter_not(value.amount > 1), KStream[str, Order])
    assert_type(stream.map_values(value.amount), KStream[str, Any])
    assert_type(stream.flat_map_values(value.shop.str.split(" ")), KStream[str, Any])
    assert_type(stream.select_key(value.shop), KStream[Any, Order])
    assert_type(stream.map((value.shop, pl.lit(1))), KStream[Any, Any])
    grouped = stream.group_by(value.shop, key=serdes.string)
    assert_type(grouped, KGroupedStream[str, Order])
    assert_type(grouped.sum(value.amount, value=serdes.int64), KTable[str, int])
    assert_type(grouped.min(value.amount), KTable[str, Any])
    assert_type(grouped.reduce(value.last()), KTable[str, Order])
    assert_type(stream.group_by(value.shop), KGroupedStream[Any, Order])
    assert_type(grouped.mean(value.amount), KTable[str, float])
    assert_type(grouped.mean(lambda order: order["amount"]), KTable[str, float])
    assert_type(grouped.max(key, value=serdes.string), KTable[str, str])


def test_windowed_tables_have_windowed_keys() -> None:
    grouped = stream_of_orders().group_by_key()
    windowed = grouped.windowed_by(TimeWindows(10))
    assert_type(windowed, TimeWindowedKStream[str, Order])
    assert_type(grouped.windowed_by(SlidingWindows(10)), TimeWindowedKStream[str, Order])
    assert_type(windowed.emit_strategy(EmitStrategy.on_window_close()), TimeWindowedKStream[str, Order])
    assert_type(windowed.count(), KTable[Windowed[str], int])
    assert_type(windowed.reduce(lambda one, _: one), KTable[Windowed[str], Order])
    assert_type(windowed.sum(lambda order: order["amount"]), KTable[Windowed[str], int])
    assert_type(windowed.mean(lambda order: order["amount"]), KTable[Windowed[str], float])
    assert_type(
        windowed.aggregate(lambda: "", lambda key, order, text: key + order["shop"] + text),
        KTable[Windowed[str], str],
    )


@pytest.mark.parametrize(
    "windows", [TimeWindows(10), SlidingWindows(10), SessionWindows(10), UnlimitedWindows()]
)
def test_windows_of_any_kind_have_one_type(windows: Windows) -> None:
    windowed = stream_of_orders().group_by_key().windowed_by(windows)
    assert_type(windowed, TimeWindowedKStream[str, Order] | SessionWindowedKStream[str, Order])
    assert_type(windowed.count(), KTable[Windowed[str], int])


def test_sessions_have_windowed_keys() -> None:
    sessions = stream_of_words().group_by_key().windowed_by(SessionWindows(10))
    assert_type(sessions, SessionWindowedKStream[str, str])
    assert_type(sessions.count(), KTable[Windowed[str], int])
    assert_type(sessions.max(), KTable[Windowed[str], str])
    assert_type(
        sessions.aggregate(
            lambda: 0, lambda key, word, total: total + len(key + word), lambda key, one, two: one + two
        ),
        KTable[Windowed[str], int],
    )


def test_windowed_cogroups_have_windowed_keys() -> None:
    def longer(key: str, word: str, total: int) -> int:
        return total + len(key + word)

    cogrouped = stream_of_words().group_by_key().cogroup(longer)
    assert_type(cogrouped.windowed_by(UnlimitedWindows()).aggregate(lambda: 0), KTable[Windowed[str], int])
    assert_type(
        cogrouped.windowed_by(SessionWindows(10)).aggregate(lambda: 0, lambda key, one, two: one + two),
        KTable[Windowed[str], int],
    )


def test_a_producer_and_a_consumer_know_their_types(tmp_path: Path) -> None:
    producer = Producer(tmp_path, "visits", key=serdes.string, value=serdes.int64, partitions=1)
    assert_type(producer, Producer[str, int])
    producer.send("ann", 3)
    producer.flush()
    consumer = Consumer(tmp_path, "visits", key=serdes.string, value=serdes.int64)
    assert_type(consumer, Consumer[str, int])
    for record in consumer:
        assert_type(record, ConsumerRecord[str, int])
        assert_type(record.value, int | None)
    assert_type(Consumer(tmp_path, "visits"), Consumer[bytes, bytes])
