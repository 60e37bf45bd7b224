"""`StreamsConfig(caching=False)`: every update of every table goes on, as if each store had said so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream import (
    KTable,
    SessionWindows,
    Store,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
    serdes,
    value,
)
from millstream.log import Producer, open_log
from millstream.log.api import TopicPartition
from millstream.types import Offset, Partition

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
WORDS = ["a", "b", "a", "a", "b"]

Build = Callable[[StreamsBuilder, Store], KTable[Any, Any]]


def words(builder: StreamsBuilder) -> Any:
    return builder.stream("in", **STRINGS)


TABLES: dict[str, Build] = {
    "count": lambda b, s: words(b).group_by_key().count(store=s),
    "count behind a repartition": lambda b, s: words(b).group_by(lambda k, v: v).count(store=s),
    "count in columns": lambda b, s: words(b).group_by(value).count(store=s),
    "reduce": lambda b, s: words(b).group_by_key().reduce(lambda one, other: one + other, store=s),
    "aggregate": lambda b, s: words(b).group_by_key().aggregate(str, lambda k, v, n: n + v, store=s),
    "windows": lambda b, s: words(b).group_by_key().windowed_by(TimeWindows(10)).count(store=s),
    "sessions": lambda b, s: words(b).group_by_key().windowed_by(SessionWindows(10)).count(store=s),
    "cogroup": lambda b, s: words(b).group_by_key().cogroup(lambda k, v, n: n + 1).aggregate(int, store=s),
    "a table": lambda b, s: b.table("in", **STRINGS, store=s),
    "to_table": lambda b, s: words(b).to_table(store=s),
    "mapped": lambda b, s: b.table("in", **STRINGS, store=Store("base", caching=s.caching)).map_values(
        str.upper, store=s
    ),
    "grouped anew": lambda b, s: (
        b.table("in", **STRINGS, store=Store("base", caching=s.caching))
        .group_by(lambda k, v: (v, v))
        .count(store=s)
    ),
    "joined": lambda b, s: (
        words(b)
        .group_by_key()
        .count(store=Store("base", caching=s.caching))
        .join(
            b.table("other", **STRINGS, store=Store("o", caching=s.caching)), lambda n, v: f"{n}{v}", store=s
        )
    ),
}


def topology(build: Build, *, caching: bool) -> Topology:
    builder = StreamsBuilder()
    build(builder, Store("table", caching=caching)).to_stream().to("out")
    return builder.build()


def outputs(folder: Path, program: Topology, config: StreamsConfig) -> list[Any]:
    log = open_log(folder / "log")
    for topic in ("in", "other"):
        log.create_topic(topic)
    with Producer(log, "other") as other:
        other.send(b"k", b"!", timestamp=0)
    with Producer(log, "in") as producer:
        for at, word in enumerate(WORDS):
            producer.send(b"k", word.encode(), timestamp=at)
    with Streams(program, app_id="app", log=folder / "log", engine="local", config=config) as app:
        app.run(until="caught-up")
    place = TopicPartition("out", Partition(0))
    return [
        (key, data, timestamp)
        for batch in log.read(place, Offset(0), log.latest(place))
        for key, data, timestamp in zip(
            batch.records.column("key").to_pylist(),
            batch.records.column("value").to_pylist(),
            batch.records.column("timestamp").to_pylist(),
            strict=True,
        )
    ]


@pytest.mark.parametrize("name", TABLES)
def test_no_table_is_cached_if_the_application_says_so(name: str, tmp_path: Path) -> None:
    def run(folder: str, *, store: bool, application: bool) -> list[Any]:
        (tmp_path / folder).mkdir()
        config = StreamsConfig(caching=application, state_dir=tmp_path / folder / "state")
        return outputs(tmp_path / folder, topology(TABLES[name], caching=store), config)

    expected = run("by-store", store=False, application=True)
    assert run("by-application", store=True, application=False) == expected
    assert len(run("cached", store=True, application=True)) < len(expected)


def test_the_plan_stays_the_same_so_it_may_be_switched_over_a_restart() -> None:
    program = topology(TABLES["count behind a repartition"], caching=True)
    assert program.without_caching().plan().fingerprint == program.plan().fingerprint
    assert program.without_caching().describe() == program.describe()
    assert program.graph.stores["table"].caching, "the topology itself is as it was"


def test_it_is_read_from_the_environment() -> None:
    assert StreamsConfig.from_env({"MILLSTREAM_CACHING": "false"}).caching is False
