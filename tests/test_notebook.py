"""How things are shown: in a few words, and in notebooks as tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

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
    handlers,
    serdes,
)
from millstream.log import Producer, open_log
from millstream.testing import TopologyTestDriver

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
LONGEST = 120


def counting() -> tuple[StreamsBuilder, KTable[str, int]]:
    builder = StreamsBuilder()
    lines = builder.stream("lines", **STRINGS)
    counts = lines.flat_map_values(str.split).group_by(lambda _, word: word).count(store="counts")
    counts.to_stream().to("word-counts", key=serdes.string, value=serdes.int64)
    return builder, counts


def test_handles_are_said_in_a_few_words() -> None:
    builder, counts = counting()
    stream = builder.stream("more", **STRINGS)
    grouped = stream.group_by_key()
    assert repr(stream) == "KStream('KSTREAM-SOURCE-0000000009', key=serdes.string, value=serdes.string)"
    assert repr(counts) == "KTable('KSTREAM-AGGREGATE-0000000003', store='counts', value=serdes.int64)"
    shown = [
        builder,
        stream.node,
        grouped,
        grouped.windowed_by(TimeWindows(5)),
        grouped.windowed_by(SessionWindows(5)),
        grouped.cogroup(lambda k, v, n: n),
        stream.split(),
        builder.table("users", **STRINGS).group_by(lambda k, v: (v, k)),
        builder.global_table("rates", **STRINGS, store="rates"),
        builder.build(),
        StreamsConfig(),
    ]
    assert [one for one in map(repr, shown) if len(one) > LONGEST] == []
    assert repr(builder.build()).startswith("<Topology of ")


def test_settings_are_shown_where_they_differ_from_the_usual_and_never_a_secret() -> None:
    assert repr(StreamsConfig()) == "StreamsConfig()"
    config = StreamsConfig(
        tick_ms=5, processing_handler=handlers.skip, snapshot_uri="s3://key:secret@bucket", caching=False
    )
    assert repr(config) == "StreamsConfig(processing_handler=skip, caching=False, tick_ms=5)"


def test_a_topology_is_a_picture() -> None:
    topology = counting()[0].build()
    bundle = topology._repr_mimebundle_()
    assert bundle["text/plain"] == topology.describe()
    picture = ET.fromstring(bundle["image/svg+xml"])  # noqa: S314 - drawn one line above
    texts = ["".join(one.itertext()) for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:2] == ["Sub-topology 0", "Sub-topology 1"]
    for word in ("from lines", "store counts", "to word-counts", "KSTREAM-FLATMAPVALUES-0000000001"):
        assert word in texts
    dashed = [one for one in picture.iter("{http://www.w3.org/2000/svg}line") if one.get("stroke-dasharray")]
    assert len(dashed) == 1, "the repartition"
    assert "image/svg+xml" not in Topology()._repr_mimebundle_()


def test_what_names_hold_is_escaped_in_pictures_and_tables() -> None:
    builder = StreamsBuilder()
    builder.table("in", **STRINGS, store="table")
    with TopologyTestDriver(builder.build()) as driver:
        driver.store("table").put("<b>", "a & b")
        html = driver.store("table")._repr_mimebundle_()["text/html"]
    assert '<td style="text-align:left;vertical-align:top">&lt;b&gt;</td>' in html
    assert "a &amp; b" in html


def test_stores_and_topics_of_the_test_driver_are_tables() -> None:
    with TopologyTestDriver(counting()[0].build()) as driver:
        source = driver.input_topic("lines", **STRINGS)
        source.pipe("k", "to the river to", timestamp=5)
        counts = driver.store("counts")
        assert counts._repr_mimebundle_()["text/plain"].splitlines() == [
            repr(counts).strip("<>"),
            "key    value",
            "river  1",
            "the    1",
            "to     2",
        ]
        out = driver.output_topic("word-counts", key=serdes.string, value=serdes.int64)
        assert repr(out) == "<TestOutputTopic 'word-counts' with 4 records to read>"
        assert out._repr_mimebundle_()["text/plain"].splitlines()[1:3] == [
            "key    value  timestamp",
            "to     1      5",
        ]
        assert len(out) == 4, "showing takes nothing out"
        assert repr(source) == "<TestInputTopic 'lines'>"


@pytest.mark.parametrize("kind", ["window", "session", "versioned"])
def test_stores_of_every_kind_are_tables(kind: str) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", **STRINGS).group_by_key()
    if kind == "window":
        grouped.windowed_by(TimeWindows(10)).count(store="table")
    elif kind == "session":
        grouped.windowed_by(SessionWindows(10)).count(store="table")
    else:
        builder.table("other", **STRINGS, store=Store("table", versioned=1_000))
    with TopologyTestDriver(builder.build()) as driver:
        topic = "other" if kind == "versioned" else "in"
        driver.input_topic(topic, **STRINGS).pipe("k", "v", timestamp=15)
        ask: Any = {
            "window": driver.window_store,
            "session": driver.session_store,
            "versioned": driver.versioned_store,
        }[kind]
        shown = ask("table")._repr_mimebundle_()["text/plain"].splitlines()[1:]
    assert (
        shown
        == {
            "window": ["key  start  end  value", "k    10     20   1"],
            "session": ["key  start  end  value", "k    15     15   1"],
            "versioned": ["key  value  timestamp", "k    v      15"],
        }[kind]
    )


def test_an_application_and_its_stores_are_tables(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    log.create_topic("lines")
    with Producer(log, "lines") as producer:
        for number in range(30):
            producer.send(b"k", f"word-{number:02}".encode())
    config = StreamsConfig(state_dir=tmp_path / "state")
    topology = counting()[0].build()
    with Streams(topology, app_id="words", log=tmp_path / "log", engine="local", config=config) as app:
        assert repr(app) == "<Streams 'words': created, 0 epochs>"
        app.run(until="caught-up")
        replica = app.store("counts")
        rows = replica._repr_mimebundle_()["text/plain"].splitlines()
        assert rows[1:3] == ["key      value", "word-00  1"]
        assert rows[-1] == "..."
        assert len(rows) == 2 + 20 + 1
        assert repr(replica).startswith("<StoreReplica 'counts' of 'words' at epoch ")
        shown = app._repr_mimebundle_()
        assert "<td" in shown["text/html"]
        text = [line.split() for line in shown["text/plain"].splitlines()]
    assert ["records", "60"] in text or ["records", "30"] in text
    assert ["state", "running"] in text
