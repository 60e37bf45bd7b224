"""reuse_ktable_source_topics: which tables do without a changelog, before and after."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import Processor, Record, Store, StreamsBuilder, Topology, serdes, stores, timestamps
from millstream.serdes import BaseSerde
from millstream.serdes.primitives import StringSerde
from millstream.testing import TopologyTestDriver

REUSED = "reuse_ktable_source_topics"


def table(optimization: str = REUSED, **options: Any) -> Topology:
    builder = StreamsBuilder()
    given: dict[str, Any] = {"key": serdes.string, "value": serdes.string, "store": "users", **options}
    builder.table("users", **given).to_stream().to("copies")
    return builder.build(optimization=optimization)


def changelogs(topology: Topology) -> list[str]:
    return list(topology.plan().changelog_topics("app"))


@pytest.mark.parametrize(
    ("optimization", "expected"),
    [("none", ["users"]), (REUSED, []), ("all", []), ("merge_repartition_topics", ["users"])],
)
def test_a_table_keeps_no_changelog_if_that_is_asked_for(optimization: str, expected: list[str]) -> None:
    assert changelogs(table(optimization)) == expected


def test_the_description_is_kafkas_and_stays_the_same() -> None:
    assert table(REUSED).describe() == table("none").describe()


@pytest.mark.parametrize(
    "serde", [None, serdes.bytes, serdes.string, serdes.int16, serdes.int32, serdes.int64, serdes.boolean]
)
def test_serdes_of_one_form_do(serde: Any) -> None:
    assert changelogs(table(key=serde)) == changelogs(table(value=serde)) == []


class Shouting(StringSerde):
    def deserialize(self, data: bytes, /) -> str:
        return super().deserialize(data).upper()


@pytest.mark.parametrize(
    "serde",
    [
        serdes.json,
        serdes.uuid,
        serdes.double,
        serdes.auto,
        serdes.nullable(serdes.string),
        Shouting(),
        BaseSerde(),
    ],
)
def test_others_keep_the_changelog(serde: Any) -> None:
    assert changelogs(table(key=serde)) == changelogs(table(value=serde)) == ["users"]


def test_timestamps_must_be_the_records_own() -> None:
    assert changelogs(table(timestamp_extractor=timestamps.fail_on_invalid_timestamp)) == []
    assert changelogs(table(timestamp_extractor=timestamps.skip_invalid_timestamp)) == ["users"]
    assert changelogs(table(timestamp_extractor=lambda record, _time: record.timestamp)) == ["users"]


def test_a_store_without_changelog_stays_one() -> None:
    spec = table(store=Store("users", logging=False)).plan().subtopologies[0].stores["users"]
    assert (spec.logging, spec.source_topic) == (False, None)


def test_only_sources_of_tables_are_meant() -> None:
    builder = StreamsBuilder()
    words: Any = builder.stream("words", key=serdes.string, value=serdes.string)
    words.to_table(store="last")
    words.group_by_key().count(store="counts")
    builder.table("users", key=serdes.string, value=serdes.string, store="users").filter(
        lambda _key, value: value != "", store="filtered"
    )
    assert changelogs(builder.build(optimization=REUSED)) == ["last", "counts", "filtered"]


class Writer(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.state_store("users").delete(record.key)


def test_a_table_that_a_processor_may_write_to_keeps_its_changelog() -> None:
    builder = StreamsBuilder()
    users: Any = builder.table("users", key=serdes.string, value=serdes.string, store="users")
    users.to_stream().process(Writer, "users")
    assert changelogs(builder.build(optimization=REUSED)) == ["users"]


def test_also_if_it_is_connected_after_the_build() -> None:
    topology = table()
    assert changelogs(topology) == []
    topology.add_source("more", "more", key=serdes.string, value=serdes.string)
    topology.add_processor("writer", Writer, "more")
    topology.connect_processor_and_state_stores("writer", "users")
    assert changelogs(topology) == ["users"]


def test_every_build_decides_anew() -> None:
    builder = StreamsBuilder()
    builder.table("users", store="users")
    assert [changelogs(builder.build(optimization=way)) for way in ("all", "none", "all")] == [
        [],
        ["users"],
        [],
    ]


def test_the_plan_says_so() -> None:
    assert table(REUSED).plan().fingerprint != table("none").plan().fingerprint
    assert table(REUSED).plan().summary["subtopologies"][0]["stores"] == [
        {"name": "users", "kind": "timestamped key-value", "logging": True, "source_topic": "users"}
    ]


def test_the_test_driver_has_the_table_both_ways() -> None:
    found = []
    for optimization in ("none", "all"):
        with TopologyTestDriver(table(optimization)) as driver:
            topic = driver.input_topic("users", key=serdes.string, value=serdes.string)
            for key, value in [("a", "1"), ("b", "2"), ("a", None)]:
                topic.pipe(key, value)
            found.append(dict(driver.store("users").all()))
    assert found[0] == found[1] == {"b": "2"}


def test_stores_of_processors_are_not_touched() -> None:
    assert stores.key_value("seen").has_changelog
