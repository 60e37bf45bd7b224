"""Windows in columns leave the state, send the updates and count the late records of single rows."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from tests.simulation.epochs import EpochRunner

from millstream import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    UnlimitedWindows,
    Window,
    Windowed,
    handlers,
    key,
    serdes,
    timestamp,
    value,
)
from millstream.errors import TopologyError
from millstream.processors.aggregations.sum import sum_of
from millstream.processors.columns import column
from millstream.task.records import RawBatch

RECORD = serdes.json({"n": pl.Int64, "f": pl.Float64, "s": pl.String})
Rows = Sequence[tuple[str | None, Any, int]]
Epochs = Sequence[Rows]
FELL_BACK = ("columns-fell-back", "partials-fell-back")
SOAK = bool(os.environ.get("MILLSTREAM_SOAK"))
WINDOWS = {
    "tumbling": TimeWindows(100, grace=30),
    "tumbling, no grace": TimeWindows(10),
    "hopping": TimeWindows(100, advance=50, grace=20),
    "hopping, the size no multiple": TimeWindows(100, advance=30, grace=10),
    "hopping, many windows": TimeWindows(1000, advance=7),
    "hopping over segments": TimeWindows(90_000, advance=20_000, grace=5_000),
    "unlimited": UnlimitedWindows(start=50),
    "endless grace": TimeWindows(100, advance=60, grace=2**63 - 200),
}


@dataclass(frozen=True, slots=True)
class Found:
    """What a run has made."""

    sent: list[Any]
    stored: list[Any]
    """The rows of the store, byte by byte."""
    counted: dict[str, int]
    """Late and dropped records."""
    fell_back: int


def run(
    aggregated: Callable[[Any], Any],
    epochs: Epochs,
    *,
    serde: Any = RECORD,
    key_serde: Any = serdes.string,
    max_rows: int | None = None,
    fresh_tasks: bool = False,
    behind: Callable[[Any], Any] = lambda table: table.to_stream().to("out"),
) -> Found:
    builder = StreamsBuilder()
    behind(aggregated(builder.stream("in", key=key_serde, value=serde)))
    config = StreamsConfig(processing_handler=handlers.skip)
    with EpochRunner(
        builder.build(), partitions={"in": 1}, config=config, max_rows=max_rows, fresh_tasks=fresh_tasks
    ) as runner:
        offset = 0
        for epoch in epochs:
            runner.run_epoch([raw_of(epoch, key_serde, serde, offset)])
            offset += len(epoch)
        counters: dict[str, int] = {}
        for nodes in runner.metrics.as_dict().values():
            for found in nodes.values():
                for name, count in found.items():
                    counters[name] = counters.get(name, 0) + count
        stored: list[Any] = [
            list(store.overlay.committed.scan(None, None)) for store in runner.stores("table")
        ]
        return Found(
            [(row.key, row.value, row.timestamp, row.headers) for row in runner.outputs.get("out", ())],
            stored,
            {name: counters.get(name, 0) for name in ("records-late", "records-dropped")},
            sum(counters.get(name, 0) for name in FELL_BACK),
        )


def raw_of(rows: Rows, key_serde: Any, serde: Any, offset: int) -> RawBatch:
    return RawBatch(
        "in",
        0,
        range(offset, offset + len(rows)),
        [None if name is None else key_serde.serialize(name) for name, _, _ in rows],
        [None if one is None else serde.serialize(one) for _, one, _ in rows],
        [time for _, _, time in rows],
        [(("row", b"%d" % (offset + number)),) for number in range(len(rows))],
    )


def random_epochs(seed: int, *, rows: int = 40, step: int = 1) -> Epochs:
    """Records that go on in time, out of order, with jumps; some are late, some without key or value."""
    rng, now = random.Random(seed), 0

    def record() -> dict[str, Any] | None:
        if rng.random() < 0.1:
            return None
        number = rng.randint(-9, 9)
        double = rng.choice((0.1, 1e16, -1e16, 3.3, 0.0))  # sums of these depend on the order
        return {"n": number, "f": double, "s": rng.choice(("", "a", "b", "é", "z"))}

    epochs: list[Rows] = []
    for _ in range(4):
        some: list[tuple[str | None, Any, int]] = []
        for _ in range(rng.randint(0, rows)):
            now += step * (rng.choice((0, 1, 3, 50)) if rng.random() < 0.95 else 2_000)
            late = step * rng.choice((0, 0, 5, 40, 200))
            # One key goes on like the time of another.
            name = rng.choice((None, "", "a", "a\0\0\0\0\0\0\0\0", "ab", "b"))
            some.append((name, record(), max(0, now - late)))
        epochs.append(some)
    return epochs


def plain(epochs: Epochs, of: str) -> Epochs:
    """The same records, with one field as their value."""
    return [[(name, one and one[of], time) for name, one, time in epoch] for epoch in epochs]


def alike(one: Found, other: Found) -> bool:
    return (one.sent, one.stored, one.counted) == (other.sent, other.stored, other.counted)


# The row tier: large batches in columns, small ones row by row.


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("how", ["count", "sum", "min", "max"])
def test_large_batches_of_rows_are_what_small_ones_are(
    how: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def aggregated(stream: Any) -> Any:
        return getattr(stream.group_by_key().windowed_by(WINDOWS[name]), how)(store="table")

    step = 500 if "segments" in name else 1
    for seed in range(4 if SOAK else 2):
        epochs = plain(random_epochs(seed, step=step), "n")
        monkeypatch.setattr(column, "MANY_ROWS", 10**9)
        rows = run(aggregated, epochs, serde=serdes.int64)
        monkeypatch.setattr(column, "MANY_ROWS", 0)
        monkeypatch.setattr(column, "FEW_ROWS", -1)
        columns = run(aggregated, epochs, serde=serdes.int64, fresh_tasks=seed % 2 == 1)
        assert alike(columns, rows), f"seed {seed}"
        assert columns.fell_back == 0
        in_pieces = run(aggregated, epochs, serde=serdes.int64, max_rows=7)
        assert alike(in_pieces, rows), f"seed {seed}"


@pytest.mark.parametrize("key_serde", [serdes.string, serdes.bytes, serdes.int64, serdes.auto])
def test_keys_of_rows_may_be_text_bytes_or_numbers(key_serde: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[Any, Any] = {
        serdes.bytes: [b"", b"\0", b"a"],
        serdes.int64: [0, -1, 2**62],
    }
    rng = random.Random(1)
    keys = names.get(key_serde, ["", "a", "é"])
    epochs = [[(rng.choice(keys), 1, rng.randint(0, 300)) for _ in range(30)] for _ in range(2)]

    def aggregated(stream: Any) -> Any:
        return stream.group_by_key().windowed_by(TimeWindows(50, grace=200)).count(store="table")

    monkeypatch.setattr(column, "MANY_ROWS", 10**9)
    rows = run(aggregated, epochs, serde=serdes.int64, key_serde=key_serde.bind("keys"))
    monkeypatch.setattr(column, "MANY_ROWS", 0)
    columns = run(aggregated, epochs, serde=serdes.int64, key_serde=key_serde.bind("keys"))
    assert alike(columns, rows)
    assert columns.fell_back == 0


# The column tier.

CASES: dict[str, tuple[str, Any, Any]] = {
    "sum of ints": ("sum", value.n, lambda one: one["n"]),
    "sum of doubles": ("sum", value.f, lambda one: one["f"]),
    "min of ints": ("min", value.n, lambda one: one["n"]),
    "max of doubles": ("max", value.f, lambda one: one["f"]),
    "max of text": ("max", value.s, lambda one: one["s"]),
    "mean of ints": ("mean", value.n, lambda one: one["n"]),
    "mean of doubles": ("mean", value.f, lambda one: one["f"]),
}


def old_and_new(table: Any) -> None:
    """Moves every record to one key, which takes the old value away and adds the new one."""
    table.group_by(lambda name, one: (name.key, one), key=serdes.string).aggregate(
        list, lambda _k, one, seen: [*seen, one], lambda _k, one, seen: [s for s in seen if s != one]
    ).to_stream().to("out")


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("name", ["tumbling", "hopping, the size no multiple", "hopping over segments"])
@pytest.mark.parametrize("case", CASES)
def test_both_tiers_agree(case: str, name: str, caching: bool) -> None:
    how, expression, function = CASES[case]

    def aggregated(of: Any) -> Callable[[Any], Any]:
        store = Store("table", caching=caching)
        return lambda stream: getattr(stream.group_by_key().windowed_by(WINDOWS[name]), how)(of, store=store)

    for seed in range(3 if SOAK else 1):
        epochs = random_epochs(seed, step=500 if "segments" in name else 1)
        columns = run(aggregated(expression), epochs)
        assert alike(columns, run(aggregated(function), epochs)), f"seed {seed}"
        assert columns.fell_back == 0
        assert alike(run(aggregated(expression), epochs, max_rows=5, fresh_tasks=True), columns)


@pytest.mark.parametrize("caching", [True, False])
def test_old_values_agree(caching: bool) -> None:
    def aggregated(of: Any) -> Callable[[Any], Any]:
        store = Store("table", caching=caching)
        return lambda stream: stream.group_by_key().windowed_by(WINDOWS["hopping"]).sum(of, store=store)

    for seed in range(4 if SOAK else 2):
        epochs = random_epochs(seed)
        columns = run(aggregated(value.n), epochs, behind=old_and_new)
        assert alike(columns, run(aggregated(lambda one: one["n"]), epochs, behind=old_and_new))


@pytest.mark.parametrize("caching", [True, False])
def test_counts_of_the_column_tier_have_records_without_a_value_in_them(caching: bool) -> None:
    def counted(stream: Any) -> Any:
        store = Store("table", caching=caching)
        return stream.group_by_key().windowed_by(WINDOWS["hopping"]).count(store=store)

    for seed in range(6 if SOAK else 3):
        epochs = random_epochs(seed)
        columns = run(lambda stream: counted(stream.filter(timestamp >= 0)), epochs)
        assert alike(columns, run(lambda stream: counted(stream.filter(lambda _k, _v: True)), epochs))
        assert columns.fell_back == 0


def test_what_an_expression_makes_null_is_in_no_window() -> None:
    rows: Epochs = [[("a", {"n": None, "f": 0.0, "s": ""}, 500), ("a", {"n": 1, "f": 0.0, "s": ""}, 5)]]
    found = run(
        lambda stream: stream.group_by_key().windowed_by(TimeWindows(10)).sum(value.n, store="table"), rows
    )
    assert [(one, time) for _, one, time, _ in found.sent] == [(serdes.int64.serialize(1), 5)]
    assert found.counted == {"records-late": 0, "records-dropped": 1}


@pytest.mark.parametrize("name", ["tumbling", "hopping"])
@pytest.mark.parametrize("on_close", [False, True])
@pytest.mark.parametrize("caching", [True, False])
def test_an_expression_that_fails_fails_as_a_function_does(caching: bool, on_close: bool, name: str) -> None:
    """The record moves time, and if it is late it does not fail."""

    def aggregated(of: Any) -> Callable[[Any], Any]:
        def build(stream: Any) -> Any:
            windowed = stream.group_by_key().windowed_by(WINDOWS[name])
            if on_close:
                windowed = windowed.emit_strategy(EmitStrategy.on_window_close())
            return windowed.sum(of, store=Store("table", caching=caching))

        return build

    for seed in range(4 if SOAK else 2):
        epochs = random_epochs(seed)
        # Only some of the texts are numbers.
        columns = run(aggregated(value.s.str.replace("a", "1").str.replace("z", "2").cast(pl.Int64)), epochs)
        rows = run(aggregated(lambda one: int(one["s"].replace("a", "1").replace("z", "2"))), epochs)
        assert alike(columns, rows), f"seed {seed}"


def test_an_operator_of_the_column_tier_takes_expressions_and_what_comes_out_of_one() -> None:
    stream = StreamsBuilder().stream("in", key=serdes.string, value=serdes.int64)
    windowed = stream.group_by_key().windowed_by(TimeWindows(10))
    behind = stream.filter(value > 0).group_by_key().windowed_by(TimeWindows(10))
    plans = [
        one._in_its_tier("sum", sum_of, of)
        for one, of in ((windowed, None), (windowed, value), (behind, None))
    ]
    assert [plan.spec.columnar for plan in plans] == [False, True, True]


# Windowed keys behind the table.


@pytest.mark.parametrize("many", [0, 10**9])
def test_expressions_behind_a_windowed_table_see_key_start_and_end(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column, "MANY_ROWS", many)
    monkeypatch.setattr(column, "FEW_ROWS", -1)
    rows: Epochs = [[("a", 1, 5), ("b", 2, 15), ("a", 3, 25)]]

    def behind(table: Any) -> None:
        table.to_stream().filter(key.start >= 10).map(
            (pl.concat_str(key.key, pl.lit("@"), key.end.cast(pl.String)), value * 10)
        ).to("out")

    found = run(
        lambda stream: stream.group_by_key().windowed_by(TimeWindows(10)).sum(store="table"),
        rows,
        serde=serdes.int64,
        behind=behind,
    )
    assert [(name, serdes.int64.deserialize(one)) for name, one, _, _ in found.sent] == [
        (b"b@20", 20),
        (b"a@30", 30),
    ]


def test_functions_behind_a_windowed_table_see_windowed_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column, "MANY_ROWS", 0)
    monkeypatch.setattr(column, "FEW_ROWS", -1)
    seen: list[Any] = []
    rows: Epochs = [[("a", 1, 5), ("b", 2, 15)]]
    run(
        lambda stream: stream.group_by_key().windowed_by(TimeWindows(10)).count(store="table"),
        rows,
        serde=serdes.int64,
        behind=lambda table: table.to_stream().foreach(lambda name, one: seen.append((name, one))),
    )
    assert seen == [(Windowed("a", Window(0, 10)), 1), (Windowed("b", Window(10, 20)), 1)]


# What columns can't do is counted.


@pytest.mark.parametrize(
    ("name", "aggregated", "serde", "rows"),
    [
        (
            "a sum that may leave 64 bits",
            lambda windowed: windowed.sum(store="table"),
            serdes.int64,
            [("a", 2**62, 5), ("b", 1, 6)],
        ),
        (
            "a sum of doubles, row by row",
            lambda windowed: windowed.sum(store="table"),
            serdes.double,
            [("a", 0.5, 5), ("b", 1.0, 6)],
        ),
        (
            "NaN in a comparison",
            lambda windowed: windowed.max(value, store="table"),
            serdes.double,
            [("a", float("nan"), 5), ("b", 1.0, 6)],
        ),
        (
            "windows that are emitted on close",
            lambda windowed: windowed.emit_strategy(EmitStrategy.on_window_close()).sum(value, store="table"),
            serdes.int64,
            [("a", 1, 5), ("b", 1, 600)],
        ),
    ],
)
def test_what_columns_cannot_do_is_counted(
    name: str, aggregated: Any, serde: Any, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    del name
    monkeypatch.setattr(column, "MANY_ROWS", 0)

    def build(stream: Any) -> Any:
        return aggregated(stream.group_by_key().windowed_by(TimeWindows(10)))

    found = run(build, [rows], serde=serde)
    assert found.fell_back > 0
    monkeypatch.setattr(column, "MANY_ROWS", 10**9)
    assert repr(found.sent) == repr(run(build, [rows], serde=serde).sent)


@pytest.mark.parametrize("windows", [SlidingWindows(10), SessionWindows(10)])
def test_expressions_need_time_windows(windows: Any) -> None:
    stream = StreamsBuilder().stream("in", key=serdes.string, value=serdes.int64)
    with pytest.raises(TopologyError, match="an expression can be aggregated by time windows only"):
        stream.group_by_key().windowed_by(windows).sum(value)


# Large ones.


def test_many_windows_per_record_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a pane are folded before they are put into its windows."""
    monkeypatch.setattr(column, "MANY_ROWS", 0)
    minute, day = 60_000, 24 * 3600 * 1000
    rng = random.Random(5)
    rows: Epochs = [
        [(f"k{rng.randrange(3)}", 1, number * 20 + rng.randrange(minute)) for number in range(3_000)]
    ]
    heights: list[int] = []
    concat = pl.concat

    def watched(frames: Any, **given: Any) -> Any:
        found = concat(frames, **given)
        if isinstance(found, pl.DataFrame):
            heights.append(found.height)
        return found

    monkeypatch.setattr(pl, "concat", watched)
    found = run(
        lambda stream: (
            stream.group_by_key()
            .windowed_by(TimeWindows(day, advance=minute, grace=day))
            .count(store="table")
        ),
        rows,
        serde=serdes.int64,
    )
    assert found.fell_back == 0
    assert sum(int.from_bytes(one) for _, one, _, _ in found.sent) == sum(
        time // minute + 1 for _, _, time in rows[0]
    )
    assert max(heights) < 20_000
