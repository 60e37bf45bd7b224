"""The column tier against a plain loop: the same work on the same input bytes, to the same output bytes.

As for the row tier, both start at the log's Arrow rows and end at Arrow rows as the log takes them, in one
process on one core. Text first, the very loop that the row tier is held against; then records in JSON.
"""

from __future__ import annotations

import os

# Before Polars is loaded, and as Spark's workers have it.
os.environ["POLARS_MAX_THREADS"] = "1"
os.environ["_RJEM_MALLOC_CONF"] = "dirty_decay_ms:10000,muzzy_decay_ms:10000"

import random
from typing import Any, TypedDict

import msgspec
import polars as pl
import pyarrow as pa

from benchmarks.figures import Figure, Scale, at_most, measured, ratio
from benchmarks.row_tier import _check_same, _input, _loop_count_last, _loop_stateless, _python_rows, _task
from benchmarks.timing import alternately
from millstream import Store, StreamsBuilder, Topology, key, serdes, value
from millstream.log.blocks import record_batch

__all__ = ["column_tier"]


class Order(TypedDict):
    """A record."""

    shop: str
    amount: int
    price: float


class Total(TypedDict):
    """What becomes of it."""

    amount: int
    total: float


SMALL, EXPENSIVE = 900, 10.0


def column_tier(scale: Scale) -> list[Figure]:
    """Five stateless operators on text and on JSON, and a count."""
    count = scale.of(1_000_000, 200_000)
    text, orders = _input(count), _orders(count)
    rounds = scale.of(5, 3)
    found: list[Figure] = []
    for name, loop, topology, rows, goal in (
        ("five stateless operators on text", _loop_stateless, _on_text(), text, 1 / 3),
        ("five stateless operators on JSON", _loop_on_orders, _on_orders(), orders, 1 / 3),
        ("count, caching on", _loop_count_last, _count(), text, None),
    ):
        _check_same(loop(rows), _task(topology, rows))
        taken = alternately({"loop": lambda: loop(rows), "task": lambda: _task(topology, rows)}, rounds)  # noqa: B023 - called here
        plain = measured(f"{name}: plain loop", taken["loop"], group=name)
        task = measured(f"{name}: column tier", taken["task"], group=name)
        times = ratio(f"{name}: column tier to plain loop", task, plain)
        found += [plain, task, times if goal is None else at_most(times, goal)]
    return [*found, *_fused(text, rounds)]


def _fused(rows: pa.RecordBatch, rounds: int) -> list[Figure]:
    """The five operators on text by Polars alone: one by one, as the tier runs them, and as one query."""
    columns = {"key": rows.column(0), "value": rows.column(1), "row": pa.array(range(rows.num_rows))}
    frame = pl.from_arrow(pa.table(columns))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_columns(pl.col("key", "value").cast(pl.String))
    if not _five(frame).equals(_five(frame.lazy()).collect()):
        raise AssertionError("one query gives something else")
    taken = alternately(
        {"each": lambda: _five(frame), "query": lambda: _five(frame.lazy()).collect()}, rounds
    )
    each = measured("five operators in Polars alone: one by one", taken["each"])
    query = measured("five operators in Polars alone: one lazy query", taken["query"])
    return [each, query, ratio("five operators in Polars alone: one lazy query to one by one", query, each)]


def _five(frame: Any) -> Any:
    number, word = _halves()
    return (
        frame.with_columns(value=pl.struct(number=number, word=word))
        .filter(value.number < SMALL)
        .with_columns(value=pl.struct(number=value.number * 2, word=value.word))
        .with_columns(key=pl.concat_str(value.word, pl.lit("/"), key), value=value.number)
        .filter(value % 2 == 0)
    )


def _halves() -> tuple[pl.Expr, pl.Expr]:
    halves = value.str.split_exact(":", 1)
    return halves.struct.field("field_0").cast(pl.Int64), halves.struct.field("field_1")


def _on_text() -> Topology:
    """What `row_tier` does by functions."""
    builder = StreamsBuilder()
    number, word = _halves()
    (
        builder.stream("in", key=serdes.string, value=serdes.string)
        .map_values(pl.struct(number=number, word=word))
        .filter(value.number < SMALL)
        .map_values(pl.struct(number=value.number * 2, word=value.word))
        .map((pl.concat_str(value.word, pl.lit("/"), key), value.number))
        .filter(value % 2 == 0)
        .to("out", key=serdes.string, value=serdes.int64)
    )
    return builder.build()


def _orders(count: int) -> pa.RecordBatch:
    chance = random.Random(7)
    values = [
        msgspec.json.encode(
            {
                "amount": chance.randrange(1000),
                "price": chance.randrange(100, 5000) / 100,
                "shop": f"shop-{chance.randrange(50)}",
            }
        )
        for _ in range(count)
    ]
    return record_batch([b"order"] * count, values, range(count))


def _on_orders() -> Topology:
    builder = StreamsBuilder()
    order = serdes.json({"shop": str, "amount": int, "price": float})
    (
        builder.stream("in", key=serdes.string, value=order)
        .filter(value.amount < SMALL)
        .select_key(value.shop)
        .map_values(pl.struct(value.amount, total=value.amount * value.price))
        .filter_not(value.total < EXPENSIVE)
        .map_values(pl.struct(value.total, amount=value.amount + 1))
        .to("out", key=serdes.string, value=serdes.json({"amount": int, "total": float}))
    )
    return builder.build()


def _loop_on_orders(rows: pa.RecordBatch) -> pa.RecordBatch:
    decode = msgspec.json.Decoder(Order).decode
    encode = msgspec.json.Encoder(order="sorted").encode
    keys: list[bytes] = []
    values: list[bytes] = []
    timestamps: list[int] = []
    for _, data, timestamp in _python_rows(rows):
        order = decode(data)
        if not order["amount"] < SMALL:
            continue
        shop = order["shop"]
        total: Total = {"amount": order["amount"], "total": order["amount"] * order["price"]}
        if total["total"] < EXPENSIVE:
            continue
        one_more: Total = {"total": total["total"], "amount": total["amount"] + 1}
        keys.append(shop.encode())
        values.append(encode(one_more))
        timestamps.append(timestamp)
    return record_batch(keys, values, timestamps)


def _count() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=serdes.string)
        .filter(key.is_not_null())
        .group_by_key()
        .count(store=Store("counts", caching=True))
        .to_stream()
        .to("out", key=serdes.string, value=serdes.int64)
    )
    return builder.build()
