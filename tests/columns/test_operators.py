"""Expressions in place of functions: what each operator makes of them, and what happens to bad records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl
import pytest
from tests.simulation.epochs import EpochRunner

from millstream import KStream, Record, StreamsBuilder, StreamsConfig, handlers, key, serdes, timestamp, value
from millstream.errors import DeserializationError, ProcessingError, SerializationError, TopologyError
from millstream.handlers import ErrorContext, Verdict
from millstream.task.records import RawBatch
from millstream.testing import TopologyTestDriver

ORDER: dict[str, Any] = {"shop": pl.String, "amount": pl.Int64}
ORDERS = serdes.json(ORDER)
Rows = list[tuple[Any, Any, int]]


def order(shop: str | None, amount: int | None) -> dict[str, Any]:
    return {"shop": shop, "amount": amount}


def run(
    build: Callable[[KStream[Any, Any]], KStream[Any, Any]],
    values: Sequence[Any],
    serde: Any = ORDERS,
    **settings: Any,
) -> Rows:
    """The records that come out of a topology, all values in one batch, as key, value and timestamp."""
    builder = StreamsBuilder()
    build(builder.stream("in", key=serdes.string, value=serde)).to("out")
    raw = RawBatch(
        "in",
        0,
        range(len(values)),
        [b"k%d" % number for number in range(len(values))],
        [one if isinstance(one, bytes | None) else serde.serialize(one) for one in values],
        [10 * number for number in range(len(values))],
    )
    with EpochRunner(builder.build(), partitions={"in": 1}, config=StreamsConfig(**settings)) as runner:
        runner.run_epoch([raw])
        return [(row.key, row.value, row.timestamp) for row in runner.outputs.get("out", ())]


def test_filter_keeps_what_is_true_and_filter_not_keeps_the_rest() -> None:
    values = [order("a", 5), order("b", 20), order("c", None), None]
    assert [k for k, _, _ in run(lambda s: s.filter(value.amount > 10), values)] == [b"k1"]
    kept = run(lambda s: s.filter_not(value.amount > 10), values)
    assert [k for k, _, _ in kept] == [b"k0", b"k2", b"k3"]


def test_map_takes_a_pair_of_expressions() -> None:
    assert run(lambda s: s.map((value.shop, value.amount * 2)), [order("a", 5)]) == [
        (b"a", serdes.int64.serialize(10), 0)
    ]


def test_map_values_may_look_at_key_and_timestamp() -> None:
    made = pl.format("{}@{}", key, timestamp)
    assert run(lambda s: s.map_values(made), [None, order("a", 1)]) == [
        (b"k0", b"k0@0", 0),
        (b"k1", b"k1@10", 10),
    ]


def test_a_literal_is_the_value_of_every_record() -> None:
    assert [v for _, v, _ in run(lambda s: s.map_values(pl.lit("x")), [None, None])] == [b"x", b"x"]


def test_flat_map_values_takes_lists_apart_and_null_has_none() -> None:
    words = run(lambda s: s.flat_map_values(value.str.split(" ")), ["to the", None, ""], serdes.string)
    assert words == [(b"k0", b"to", 0), (b"k0", b"the", 0), (b"k2", b"", 20)]


def test_select_key_leaves_the_value_alone() -> None:
    assert run(lambda s: s.select_key(value.shop), [order("a", 1), None]) == [
        (b"a", ORDERS.serialize(order("a", 1)), 0),
        (None, None, 10),
    ]


def test_numbers_are_those_of_64_bits_between_operators() -> None:
    def lengths(stream: KStream[Any, Any]) -> KStream[Any, Any]:
        # A length is unsigned in Polars: three letters less ten would be four billion.
        return stream.map_values(value.str.len_bytes()).map_values(value - 10)

    assert run(lengths, ["abc"], serdes.string) == [(b"k0", serdes.int64.serialize(-7), 0)]


def test_tiers_mix_in_both_directions() -> None:
    def mixed(stream: KStream[Any, Any]) -> KStream[Any, Any]:
        return (
            stream.filter(value.amount > 1)
            .map_values(lambda one: {"n": one["amount"], "s": one["shop"]})
            .map_values(pl.struct(value.n + 1, value.s.alias("t")))
            .filter(lambda _key, one: one["t"] != "b")
            .map_values(value.n)
        )

    values = [order("a", 1), order("a", 2), order("b", 3), order("c", 4)]
    assert [serdes.int64.deserialize(v) for _, v, _ in run(mixed, values)] == [3, 5]


def test_values_of_several_types_behind_a_function_are_each_taken_for_what_they_are() -> None:
    def mixed(stream: KStream[Any, Any]) -> KStream[Any, Any]:
        return stream.map_values(
            lambda one: {"1": 1, "x": "x", "-": None, "d": {"a": 2}, "l": [3]}[one]
        ).map_values(pl.coalesce(value.cast(pl.String, strict=False), pl.lit("none")))

    values = ["1", "x", "-"]
    assert [v for _, v, _ in run(mixed, values, serdes.string)] == [b"1", b"x", b"none"]


def test_headers_and_timestamps_stay_with_their_records() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string).filter(value != "b")
    stream.flat_map_values(value.str.split("")).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.input_topic("in", key=serdes.string, value=serdes.string)
        for number, one in enumerate(("b", "cd")):
            topic.pipe("k", one, timestamp=number, headers=(("h", b"%d" % number),))
        found = driver.output_topic("out", key=serdes.string, value=serdes.string).read_all()
    assert found == [Record("k", one, 1, (("h", b"1"),)) for one in "cd"]


# What goes wrong.


@contextmanager
def raises(error: type[Exception], text: str) -> Iterator[None]:
    with pytest.raises(error, match=re.escape(text)):
        yield


def parse(stream: KStream[Any, Any]) -> KStream[Any, Any]:
    return stream.map_values(value.cast(pl.Int64), name="parse")


def test_a_record_on_which_an_expression_fails_is_named() -> None:
    values = [*map(str, range(50)), "no number", *map(str, range(50))]
    with raises(ProcessingError, "operator 'parse' of task 0_0 failed") as _:
        run(parse, values, serdes.string)
    with raises(ProcessingError, "topic 'in', partition 0, offset 50, key 'k50'"):
        run(parse, values, serdes.string)


def test_the_handler_is_asked_about_each_bad_record_and_the_others_go_on() -> None:
    asked: list[int | None] = []

    def skip(context: ErrorContext, error: Exception) -> Verdict:
        assert isinstance(error, pl.exceptions.PolarsError)
        asked.append(context.offset)
        return handlers.skip(context, error)

    values = ["1", "x", "2", "y", "3", "4", "z"]
    found = run(parse, values, serdes.string, processing_handler=skip)
    assert [serdes.int64.deserialize(v) for _, v, _ in found] == [1, 2, 3, 4]
    assert asked == [1, 3, 6]


def test_bytes_that_cannot_be_read_go_to_the_deserialization_handler() -> None:
    values = [order("a", 11), b'{"shop": 5, "amount": 12}', order("b", 13)]
    with raises(DeserializationError, "topic 'in', partition 0, offset 1"):
        run(lambda s: s.filter(value.amount > 10), values)
    found = run(lambda s: s.filter(value.amount > 10), values, deserialization_handler=handlers.skip)
    assert [k for k, _, _ in found] == [b"k0", b"k2"]


def test_values_that_cannot_be_written_go_to_the_production_handler() -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=serdes.string, value=serdes.int64).map_values(value * 1000)
    numbers.to("out", value=serdes.int16, name="writer")
    topology = builder.build()
    for handler, expected in ((handlers.skip, [5]), (handlers.fail, None)):
        with TopologyTestDriver(topology, config=StreamsConfig(production_handler=handler)) as driver:
            topic = driver.input_topic("in", key=serdes.string, value=serdes.int64)
            topic.pipe("k", 5)
            if expected is None:
                with raises(SerializationError, "50000 does not fit into 16 bits"):
                    topic.pipe("k", 50)
            else:
                topic.pipe("k", 50)
                read = driver.output_topic("out", key=serdes.string, value=serdes.int16).read_all()
                assert [one.value for one in read] == [5000]


def test_a_number_that_no_column_holds_fails_where_an_expression_looks_at_it() -> None:
    wide = serdes.json({"n": int})
    with raises(ProcessingError, "offset 1"):
        run(lambda s: s.filter(value.n > 1, name="wide"), [{"n": 5}, {"n": 10**30}], wide)


def test_an_expression_that_fails_on_all_records_asks_about_each() -> None:
    values = [b"a", b"b", b"c"]
    dropped = run(
        lambda s: s.map_values(bytes.decode).map_values(value.dt.year()),
        values,
        serdes.bytes,
        processing_handler=handlers.skip,
    )
    assert dropped == []


# What is refused when the topology is built.


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        (pl.col("amount") > 1, "names the column 'amount', but a record has only key, value and timestamp"),
        (value.amount.sum() > 1, "looks at several records at once"),
        (value.amount > value.amount.mean(), "looks at several records at once"),
        (pl.len() > 1, "looks at several records at once"),
        (pl.all() > 1, "may stand for several columns"),
        (value.amount, "gives Int64, but Boolean is needed"),
        (value.price > 1, "can't be computed"),
        (value.shop > 1, "can't be computed"),
    ],
)
def test_an_expression_that_cannot_work_is_refused(expression: pl.Expr, says: str) -> None:
    stream = StreamsBuilder().stream("in", key=serdes.string, value=ORDERS)
    with raises(TopologyError, says):
        stream.filter(expression)


def test_flat_map_values_needs_a_list() -> None:
    with raises(TopologyError, 'flat_map_values: col("value").struct.field_by_name(shop)() gives String'):
        StreamsBuilder().stream("in", value=ORDERS).flat_map_values(value.shop)


def test_what_works_inside_of_a_list_is_fine() -> None:
    total = value.list.eval(pl.element().sum()).list.first()
    lists = serdes.json({"l": pl.List(pl.Int64)})
    stream = run(lambda s: s.map_values(value.l).map_values(total), [{"l": [1, 2]}, {"l": [3]}], lists)
    assert [serdes.int64.deserialize(v) for _, v, _ in stream] == [3, 3]


def test_the_types_of_results_are_known_to_the_operators_behind() -> None:
    stream = StreamsBuilder().stream("in", key=serdes.string, value=ORDERS)
    assert stream.map_values(value.amount * 1.5).value_serde is serdes.double
    assert stream.select_key(value.amount > 1).key_serde is serdes.boolean
    record = stream.map_values(pl.struct(value.shop, n=value.shop.str.len_chars()))
    assert record.value_serde.schema == {"shop": pl.String(), "n": pl.Int64()}
    assert stream.map_values(len).map_values(value + 1).value_serde is None


def test_all_records_of_a_batch_may_fail() -> None:
    assert run(parse, ["x", "y"], serdes.string, processing_handler=handlers.skip) == []


def test_timestamps_of_the_users_own_are_seen_by_expressions() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(
        "in", key=serdes.string, value=serdes.int64, timestamp_extractor=lambda record, _time: record.value
    )
    stream.map_values(timestamp * 2).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in", key=serdes.string, value=serdes.int64).pipe_all([("a", 7), ("b", 3)])
        found = driver.output_topic("out", key=serdes.string, value=serdes.int64).read_all()
    assert found == [Record("a", 14, 7), Record("b", 6, 3)]


def test_several_sources_and_partitions_are_merged_in_the_order_of_time() -> None:
    builder = StreamsBuilder()
    streams = [
        builder.stream(topic, key=serdes.string, value=serdes.string).map_values(value + topic)
        for topic in ("x", "y")
    ]
    streams[0].merge(streams[1]).filter(value != "").to("out")
    raws = [
        RawBatch(topic, 0, range(3), [b"k"] * 3, [b"%d" % time for time in times], times)
        for topic, times in (("x", [1, 9, 4]), ("y", [2, 3, 10]))
    ]
    with EpochRunner(builder.build(), partitions={"x": 1, "y": 1}) as runner:
        runner.run_epoch(raws)
        assert [row.value for row in runner.outputs["out"]] == [b"1x", b"2y", b"3y", b"9x", b"4x", b"10y"]


@pytest.mark.parametrize("default", [True, False])
def test_each_record_goes_to_the_first_branch_that_takes_it(default: bool) -> None:
    builder = StreamsBuilder()
    split = builder.stream("in", key=serdes.string, value=serdes.string).split(name="by-")
    split = split.branch(value.str.starts_with("a"), name="a", consumer=lambda s: s.to("a"))
    split = split.branch(value.cast(pl.Int64) > 5, name="large", consumer=lambda s: s.to("large"))
    if default:
        split.default_branch(name="rest", consumer=lambda s: s.to("rest"))
    config = StreamsConfig(processing_handler=handlers.skip)
    values = [b"a1", b"7", b"2", b"no number", None, b"a2"]
    raw = RawBatch("in", 0, range(6), [b"k"] * 6, values, range(6))
    with EpochRunner(builder.build(), partitions={"in": 1}, config=config) as runner:
        runner.run_epoch([raw])
        found = {topic: [row.value for row in rows] for topic, rows in runner.outputs.items()}
    assert found == {"a": [b"a1", b"a2"], "large": [b"7"], **({"rest": [b"2", None]} if default else {})}


def test_a_split_has_branches_of_one_tier() -> None:
    builder = StreamsBuilder()
    split = builder.stream("in", key=serdes.string, value=serdes.string).split()
    split.branch(value == "a").branch(lambda _key, one: one == "b")
    with raises(TopologyError, "the branches of one split() take functions or expressions, not both"):
        builder.build()
