"""Whoever asks for a name of Kafka Streams is told ours; checkers of types refuse it all the same."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from mypy import api
from tests.test_kafka_streams_map import rows

import millstream
from millstream import JoinWindows, Streams, StreamsBuilder, TimeWindows, Topology, serdes, testing
from millstream.kafka_names import KafkaNames, missing, missing_class

STREAM = StreamsBuilder().stream("in", key=serdes.string, value=serdes.string)
TABLE = StreamsBuilder().table("in", key=serdes.string, value=serdes.string)


@pytest.mark.parametrize(
    ("owner", "name", "ours"),
    [
        (STREAM, "mapValues", "map_values(...), or map_values_with_key(...)"),
        (STREAM, "groupByKey", "Remedy: group_by_key(...)"),
        (STREAM, "count", "stream.group_by_key().count(...)"),
        (STREAM, "transformValues", "process_values(...)"),
        (STREAM, "through", "repartition()"),
        (STREAM, "windowed_by", "stream.group_by_key().windowed_by(...)"),
        (TABLE, "toStream", "to_stream(...)"),
        (TABLE, "to", "to_stream() first"),
        (TABLE, "queryableStoreName", "queryable_store_name"),
        (STREAM.group_by_key(), "windowedBy", "windowed_by(...)"),
        (STREAM.group_by_key().windowed_by(TimeWindows(5)), "emitStrategy", "emit_strategy(...)"),
        (STREAM.split(), "defaultBranch", "default_branch(...)"),
        (StreamsBuilder(), "globalTable", "global_table(...)"),
        (Topology(), "addSource", "add_source(...)"),
        (TimeWindows, "ofSizeWithNoGrace", "TimeWindows(size)"),
        (TimeWindows(5), "advanceBy", "TimeWindows(size, advance=...)"),
        (JoinWindows, "ofTimeDifferenceWithNoGrace", "JoinWindows(before)"),
        (Streams, "cleanUp", "cleanup()"),
        (millstream, "KafkaStreams", "Remedy: Streams"),
        (millstream, "Consumed", "keyword arguments of builder.stream()"),
    ],
)
def test_a_name_of_kafka_s_is_answered_with_ours(owner: Any, name: str, ours: str) -> None:
    if owner is Streams:
        assert ours in str(missing(Streams, name))
        return
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert ours in str(caught.value)
    assert not hasattr(owner, name)


def test_an_import_of_a_name_of_kafka_s_is_answered_with_ours() -> None:
    with pytest.raises(ImportError, match=r"'Materialized' is called so in Kafka Streams. Remedy: store="):
        exec("from millstream import Materialized")  # noqa: S102
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from millstream import nothing")  # noqa: S102


def test_every_name_of_the_map_that_is_another_one_here_is_answered() -> None:
    unanswered: list[str] = []
    homes: dict[str, Any] = {**vars(millstream), **vars(testing), "KafkaStreams": Streams}
    for row in rows():
        for full in row.names:
            owner, _, name = full.rpartition(".")
            home = homes.get(owner)
            if not inspect.isclass(home) or not issubclass(home, KafkaNames):
                continue
            if hasattr(home, name) or row.here in {"no", "a callable"}:
                continue
            if "Remedy: " not in str(missing(home, name)):
                unanswered.append(full)
    assert unanswered == []


def test_a_name_that_nobody_knows_is_refused_as_usual() -> None:
    with pytest.raises(AttributeError) as caught:
        STREAM.foo  # type: ignore[attr-defined]  # noqa: B018 - that is asked
    assert str(caught.value) == "'KStream' object has no attribute 'foo'"
    assert missing_class("Foo") is None


def test_mypy_refuses_names_of_kafka_s_and_unknown_ones(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import millstream\n"
        "from millstream import StreamsBuilder, TimeWindows\n"
        "stream = StreamsBuilder().stream('in')\n"
        "stream.mapValues(len)\n"
        "TimeWindows.ofSizeWithNoGrace(5)\n"
        "millstream.KafkaStreams\n"
        "stream.group_by_key().windowedBy(TimeWindows(5))\n"
    )
    found, _, _ = api.run(["--no-error-summary", "--hide-error-context", str(program)])
    lines = [line.split(":")[1] for line in found.splitlines() if "[attr-defined]" in line]
    assert lines == ["4", "5", "6", "7"]
