"""Whatever leaves columns or partial aggregates for a slower form is counted at its node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import polars as pl
import pytest
from tests.simulation.epochs import EpochRunner

from millstream import Store, StreamsBuilder, StreamsConfig, handlers, serdes, value
from millstream.processors.columns import column
from millstream.serdes import BaseSerde
from millstream.task.records import RawBatch

COLUMNS, PARTIALS = "columns-fell-back", "partials-fell-back"
TABLE = Store("table")
Rows = Sequence[tuple[bytes, bytes]]


class Upper(BaseSerde[str]):
    """Text, by a serde that no column knows."""

    name = "upper"

    def serialize(self, value: str, /) -> bytes:
        return value.upper().encode()

    def deserialize(self, data: bytes, /) -> str:
        return data.decode()


@dataclass(frozen=True, slots=True)
class Case:
    """A topology, its records by topic, and which counters of its nodes it moves."""

    build: Callable[[StreamsBuilder], object]
    expected: dict[tuple[str, str], int]
    topics: Sequence[Rows] = ([(b"k", b"to"), (b"l", b"be")],)
    times: Sequence[int] = (0, 1)


def words(builder: StreamsBuilder, **serde: Any) -> Any:
    return builder.stream(
        ["in-0", "in-1"], name="source", **{"key": serdes.string, "value": serdes.string, **serde}
    )


def doubles(*numbers: float) -> Sequence[Rows]:
    return ([(b"k", serdes.double.serialize(number)) for number in numbers],)


CASES = {
    "nothing falls back": Case(
        lambda builder: words(builder).filter(value != "x").group_by_key().count(store=TABLE, name="count"),
        {},
    ),
    "a source whose serde has no column": Case(
        lambda builder: words(builder, value=Upper()).filter(value != "x", name="filter"),
        {("source", COLUMNS): 2},
    ),
    "a sink whose serde has no column": Case(
        lambda builder: words(builder).filter(value != "x").to("out", value=Upper(), name="sink"),
        {("sink", COLUMNS): 2},
    ),
    "an expression over values of several types": Case(
        lambda builder: (
            words(builder)
            .map_values(lambda word: word if word == "to" else 7)
            .map_values(value.cast(pl.String), name="text")
        ),
        {("text", COLUMNS): 2},
    ),
    "topics whose records can't be merged as columns": Case(
        lambda builder: words(builder).filter(value != "x", name="filter"),
        {("source", COLUMNS): 3},  # those of the bad record's topic, and the other to be merged with them
        topics=([(b"k", b"to")], [(b"k", b"be"), (b"l", b"\xff")]),
    ),
    "a comparison with NaN in columns": Case(
        lambda builder: (
            words(builder, value=serdes.double).group_by_key().max(value, store=TABLE, name="max")
        ),
        {("max", COLUMNS): 2, ("max", PARTIALS): 2},
        topics=doubles(math.nan, 1.0),
    ),
    "keys that have no column": Case(
        lambda builder: (
            words(builder, key=serdes.uuid)
            .filter(value != "x")
            .group_by_key()
            .count(store=TABLE, name="count")
        ),
        {("source", COLUMNS): 2, ("count", COLUMNS): 2, ("count", PARTIALS): 2},
        topics=([(str(UUID(int=number)).encode(), b"x1") for number in (1, 2)],),
    ),
    "numbers as keys of a large batch of rows": Case(
        lambda builder: words(builder, key=serdes.int64).group_by_key().count(store=TABLE, name="count"),
        {("count", COLUMNS): 2},
        topics=([(serdes.int64.serialize(number), b"to") for number in (1, 1)],),
    ),
    "a sum of doubles, row by row": Case(
        lambda builder: words(builder, value=serdes.double).group_by_key().sum(store=TABLE, name="sum"),
        {("sum", COLUMNS): 2, ("sum", PARTIALS): 2},
        topics=doubles(0.1, 0.2),
    ),
    "timestamps out of order in front of a repartition": Case(
        lambda builder: (
            words(builder).group_by(lambda _, word: word, name="by-word").count(store=TABLE, name="count")
        ),
        {("by-word-repartition-sink", PARTIALS): 2},
        times=(1, 0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fall_back_is_counted_at_its_node(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column, "MANY_ROWS", 0)
    case = CASES[name]
    builder = StreamsBuilder()
    case.build(builder)
    raws = [
        RawBatch(
            f"in-{number}",
            0,
            range(len(rows)),
            [k for k, _ in rows],
            [v for _, v in rows],
            case.times[: len(rows)],
        )
        for number, rows in enumerate(case.topics)
    ]
    config = StreamsConfig(deserialization_handler=handlers.skip)
    with EpochRunner(builder.build(), partitions={"in-0": 1, "in-1": 1}, config=config) as runner:
        runner.run_epoch(raws)
        counted = {
            (node, counter): count
            for nodes in runner.metrics.as_dict().values()
            for node, counters in nodes.items()
            for counter, count in counters.items()
            if counter.endswith("-fell-back")
        }
    assert counted == case.expected
