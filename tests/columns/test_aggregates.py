"""Aggregations of the column tier leave the state and send the updates of the row tier."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from tests.simulation.epochs import EpochRunner

from millstream import (
    Store,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
    handlers,
    key,
    serdes,
    value,
)
from millstream.errors import MillstreamError, TopologyError
from millstream.processors.aggregations.keyed_columns import ColumnAggregation
from millstream.processors.columns.column import Column
from millstream.serdes.mean_serde import Mean
from millstream.task.records import RawBatch

Epochs = Sequence[Sequence[tuple[str | None, Any]]]
RECORD = serdes.json({"n": pl.Int64, "f": pl.Float64, "s": pl.String})


def run(
    how: str,
    of: Any,
    epochs: Epochs,
    *,
    caching: bool,
    serde: Any = RECORD,
    old: bool = False,
    handler: Any = handlers.fail,
) -> tuple[list[Any], list[Any]]:
    """What a table sends, and what its store holds; keys are strings."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serde).group_by_key()
    if of is None:
        grouped = builder.stream("in", key=serdes.string, value=serde).filter(pl.lit(True)).group_by_key()
    given = () if of is None else (of,)
    table = getattr(grouped, how)(*given, store=Store("table", caching=caching))
    if old:
        # Moves every record to one key, which takes the old value away and adds the new one.
        table = table.group_by(lambda _key, one: ("all", one)).aggregate(
            list, lambda _k, one, seen: [*seen, one], lambda _k, one, seen: [s for s in seen if s != one]
        )
    table.to_stream().to("out")
    config = StreamsConfig(processing_handler=handler)
    with EpochRunner(builder.build(), partitions={"in": 1}, config=config) as runner:
        offset = 0
        for epoch in epochs:
            runner.run_epoch([raw_of(epoch, serde, offset)])
            offset += len(epoch)
        sent = [(row.key, row.value, row.timestamp) for row in runner.outputs.get("out", ())]
        return sent, rows_of(runner, "table")


def rows_of(runner: EpochRunner, name: str) -> list[Any]:
    """Keys and cells of a store in all its partitions."""
    stores: Sequence[Any] = runner.stores(name)
    return [pair for store in stores for pair in store.all()]


def raw_of(rows: Sequence[tuple[str | None, Any]], serde: Any, offset: int) -> RawBatch:
    rng = random.Random(offset)
    return RawBatch(
        "in",
        0,
        range(offset, offset + len(rows)),
        [None if name is None else name.encode() for name, _ in rows],
        [None if one is None else serde.serialize(one) for _, one in rows],
        [max(0, offset + number + rng.randint(-5, 5)) for number in range(len(rows))],
    )


def random_epochs(seed: int) -> Epochs:
    rng = random.Random(seed)

    def record() -> dict[str, Any] | None:
        if rng.random() < 0.1:
            return None
        number = rng.choice((None, rng.randint(-9, 9)))
        # Sums of these depend on the order in which they are added.
        double = rng.choice((None, rng.choice((0.1, 1e16, -1e16, 3.3, 0.0))))
        return {"n": number, "f": double, "s": rng.choice((None, "", "a", "b", "é", "z"))}

    return [
        [(rng.choice((None, "a", "b", "c")), record()) for _ in range(rng.randint(0, 12))] for _ in range(4)
    ]


CASES: dict[str, tuple[str, Any, Any]] = {
    "sum of ints": ("sum", value.n, lambda one: one["n"]),
    "sum of doubles": ("sum", value.f, lambda one: one["f"]),
    "min of ints": ("min", value.n, lambda one: one["n"]),
    "max of doubles": ("max", value.f, lambda one: one["f"]),
    "min of text": ("min", value.s, lambda one: one["s"]),
    "max of text": ("max", value.s, lambda one: one["s"]),
    "max of booleans": ("max", value.n > 0, lambda one: None if one["n"] is None else one["n"] > 0),
    "mean of ints": ("mean", value.n, lambda one: one["n"]),
    "mean of doubles": ("mean", value.f, lambda one: one["f"]),
}


def without_nulls(epochs: Epochs, of: Callable[[Any], Any]) -> Epochs:
    """The records that have something to fold: a function of the row tier must not meet the others."""
    return [[(name, one) for name, one in epoch if one is None or of(one) is not None] for epoch in epochs]


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_both_tiers_agree(case: str, old: bool, caching: bool) -> None:
    how, expression, function = CASES[case]
    for seed in range(15):
        epochs = without_nulls(random_epochs(seed), function)
        columns = run(how, expression, epochs, caching=caching, old=old)
        assert columns == run(how, function, epochs, caching=caching, old=old), f"seed {seed}"


@pytest.mark.parametrize("caching", [True, False])
def test_counts_agree(caching: bool) -> None:
    for seed in range(15):
        epochs = random_epochs(seed)
        counted = run("count", None, epochs, caching=caching)
        ones = [[(name, one and {**one, "n": 1}) for name, one in epoch] for epoch in epochs]
        assert counted == run("sum", lambda one: one["n"], ones, caching=caching)


def test_what_an_expression_makes_null_is_left_out() -> None:
    rows: Epochs = [[("a", {"n": 1, "f": None, "s": None}), ("a", {"n": None, "f": None, "s": None})]]
    sent, _ = run("sum", value.n, rows, caching=False)
    assert [serdes.int64.deserialize(one) for _, one, _ in sent] == [1]


@pytest.mark.parametrize("caching", [True, False])
def test_a_sum_that_leaves_64_bits_fails_at_the_record_that_does_it(caching: bool) -> None:
    large = {"n": 2**62, "f": None, "s": None}
    rows: Epochs = [[("a", large), ("b", {**large, "n": 1})], [("a", large), ("b", {**large, "n": 5})]]
    with pytest.raises(MillstreamError, match="9223372036854775808 does not fit into 64 bits") as raised:
        run("sum", value.n, rows, caching=caching)
    assert "offset 2" in str(raised.value)
    _, state = run("sum", value.n, rows, caching=caching, handler=handlers.skip)
    assert [(name, cell.value) for name, cell in state] == [("a", 2**62), ("b", 6)]


def test_not_a_number_and_the_two_zeros_are_compared_as_in_the_row_tier() -> None:
    nan = float("nan")
    for numbers in ([nan, 1.0], [1.0, nan, 0.5], [0.0, -0.0], [-0.0, 0.0]):
        for how in ("min", "max"):
            together: Epochs = [[("a", number) for number in numbers]]
            one_by_one: Epochs = [[("a", number)] for number in numbers]
            for rows in (together, one_by_one):
                columns = run(how, value, rows, caching=False, serde=serdes.double)
                functions = run(how, lambda one: one, rows, caching=False, serde=serdes.double)
                assert repr(columns) == repr(functions)


def test_a_mean_is_a_float_whose_store_keeps_total_and_count() -> None:
    rows: Epochs = [[("a", {"n": number, "f": None, "s": None}) for number in (1, 2, 6)]]
    sent, [(name, cell)] = run("mean", value.n, rows, caching=True)
    assert [serdes.double.deserialize(one) for _, one, _ in sent] == [3.0]
    assert (name, cell.value, cell.value.total, cell.value.count) == ("a", Mean(9.0, 3), 9.0, 3)


def test_a_group_by_expression_moves_records_to_the_partition_of_their_new_key() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("in", key=serdes.string, value=RECORD)
    orders.group_by(value.s).sum(value.n, store="sums").to_stream().to("out")
    orders.group_by(key).count(store="counts").to_stream().to("counts")
    rows: Epochs = [
        [("k", {"n": n, "f": None, "s": s}) for n, s in ((1, "a"), (2, "b"), (4, "a"), (8, None))]
    ]
    with EpochRunner(builder.build(), partitions={"in": 3}) as runner:
        runner.run_epoch([raw_of(rows[0], RECORD, 0)])
        sums = {name: cell.value for name, cell in rows_of(runner, "sums")}
        counts = {name: cell.value for name, cell in rows_of(runner, "counts")}
    assert sums == {"a": 5, "b": 2}
    assert counts == {"k": 4}


def test_keys_of_any_type_with_columns_can_be_grouped_by() -> None:
    for made, expected in (
        (value.n, [1]),
        (value.f, [0.5]),
        (value.n > 0, [True]),
        (pl.struct(value.n, value.s), [{"n": 1, "s": "x"}]),
        (pl.concat_list(value.n, value.n), [[1, 1]]),
    ):
        builder = StreamsBuilder()
        stream = builder.stream("in", key=serdes.string, value=RECORD)
        stream.group_by(made).count(store="counts")
        with EpochRunner(builder.build(), partitions={"in": 1}) as runner:
            runner.run_epoch([raw_of([("k", {"n": 1, "f": 0.5, "s": "x"})] * 2, RECORD, 0)])
            found = rows_of(runner, "counts")
            assert [name for name, cell in found if cell.value == 2] == expected


def test_aggregates_without_an_expression_behind_expressions_are_columns() -> None:
    stream = StreamsBuilder().stream("in", key=serdes.string, value=serdes.int64)
    stream.filter(value > 1).group_by_key().count(store="c")
    stream.group_by(key).sum(store="s")
    stream.group_by_key().count(store="rows")
    assert sum(isinstance(operator, ColumnAggregation) for operator in _operators(stream)) == 2


def _operators(stream: Any) -> list[Any]:
    topology = Topology()
    stream.graph.write(topology)
    return [node.make() for node in topology.graph.nodes.values() if hasattr(node, "make")]


@pytest.mark.parametrize("caching", [True, False])
def test_a_count_behind_an_expression_is_combined_in_front_of_its_repartition_if_it_is_cached(
    caching: bool,
) -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", key=serdes.string, value=serdes.string).flat_map_values(value.str.split(" "))
    words.group_by(value).count(store=Store("counts", caching=caching)).to_stream().to("out")
    topology = builder.build()
    [sink] = topology.plan().subtopologies[0].sinks
    assert (sink.combine is not None) == caching
    rows = [("k", "a b a"), ("k", "b"), ("k", "a")] * 1000
    with EpochRunner(topology, partitions={"in": 2}) as runner:
        for epoch in (0, 1):
            raw = raw_of(rows, serdes.string, epoch * len(rows))
            runner.run_epoch([replace(raw, timestamps=Column(range(len(rows))))])
        counts = {name: cell.value for name, cell in rows_of(runner, "counts")}
        sent = len(runner.outputs["out"])
    assert counts == {"a": 6000, "b": 4000}
    assert sent == (4 if caching else 10_000)


def test_sums_behind_an_expression_are_not_combined_in_front() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.int64).select_key(value)
    stream.group_by_key().sum(store="sums")
    stream.group_by_key().min(value + 1, store="least")
    sinks = [sink for sub in builder.build().plan().subtopologies for sink in sub.sinks]
    assert [sink.combine for sink in sinks] == [None, None]


REDUCERS: dict[str, tuple[pl.Expr, Callable[[Any, Any], Any]]] = {
    "last": (value.last(), lambda _so_far, new: new),
    "first": (value.first(), lambda so_far, _new: so_far),
    "of the largest number": (
        value.sort_by(value.n, nulls_last=False, maintain_order=True).last(),
        lambda one, new: (
            new
            if new["n"] is not None and (one["n"] is None or new["n"] >= one["n"])
            else one
            if one["n"] is not None or new["n"] is not None
            else new
        ),
    ),
}


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("case", REDUCERS)
def test_reducers_agree(case: str, caching: bool) -> None:
    expression, function = REDUCERS[case]
    for seed in range(8):
        epochs = random_epochs(seed)
        columns = run("reduce", expression, epochs, caching=caching)
        assert columns == run("reduce", function, epochs, caching=caching), f"seed {seed}"


@pytest.mark.parametrize("caching", [True, False])
def test_a_record_on_which_a_reducer_fails_is_left_out_alone(caching: bool) -> None:
    strict = value.str.to_integer().max().cast(pl.String)
    rows: Epochs = [[("a", "1"), ("a", "5"), ("a", "x"), ("b", "2")], [("a", "3"), ("b", "7")]]
    _, state = run("reduce", strict, rows, caching=caching, serde=serdes.string, handler=handlers.skip)
    assert [(name, cell.value) for name, cell in state] == [("a", "5"), ("b", "7")]


@pytest.mark.parametrize("operator", ["sum", "mean"])
def test_text_can_t_be_added_up_and_build_says_so(operator: str) -> None:
    grouped = StreamsBuilder().stream("in", key=serdes.string, value=RECORD).group_by_key()
    for stream in (grouped, grouped.windowed_by(TimeWindows(10))):
        with pytest.raises(TopologyError, match="gives String, but a number is needed"):
            getattr(stream, operator)(value.s)


@pytest.mark.parametrize(
    ("reducer", "says"),
    [
        (value + 1, "does not make one value of several values"),
        (key.last(), "does not make one value of several values"),
        (value.n.max(), "gives Int64, but values are Struct"),
    ],
)
def test_a_reducer_that_is_none_is_refused(reducer: pl.Expr, says: str) -> None:
    grouped = StreamsBuilder().stream("in", key=serdes.string, value=RECORD).group_by_key()
    with pytest.raises(TopologyError, match=says):
        grouped.reduce(reducer)
