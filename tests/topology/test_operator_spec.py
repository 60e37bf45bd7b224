"""What each operator of the DSL declares itself to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream import FixedKeyProcessor, KStream, KTable, Processor, Store, StreamsBuilder, Topology, stores
from millstream import value as column
from millstream.processors.aggregations.count import COUNT
from millstream.processors.stateless import PassThrough
from millstream.topology.nodes import ProcessorNode
from millstream.topology.operator_spec import (
    CHAIN_TAIL,
    CHAINED,
    COLUMNAR,
    PLAIN,
    ChainingStrategy,
    OperatorSpec,
)

Bytes = KStream[bytes, bytes]


class Same:
    """A transformer that changes nothing."""

    def init(self, context: Any) -> None:
        """Take no notice."""

    def transform(self, key: object, value: object) -> object:
        del key
        return value

    def close(self) -> None:
        """Nothing to close."""


def spec_of(topology: Topology, name: str = "it") -> OperatorSpec:
    node = topology.graph.nodes[name]
    assert isinstance(node, ProcessorNode)
    return node.spec


def of_stream(shape: Callable[[Bytes], object]) -> OperatorSpec:
    builder = StreamsBuilder()
    shape(builder.stream("in"))
    return spec_of(builder.build())


def of_table(shape: Callable[[KTable[bytes, bytes]], object]) -> OperatorSpec:
    builder = StreamsBuilder()
    shape(builder.table("in"))
    return spec_of(builder.build())


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (lambda s: s.filter(max, name="it"), CHAINED),
        (lambda s: s.filter(column.is_not_null(), name="it"), COLUMNAR),
        (lambda s: s.map_values(bytes, name="it"), CHAINED),
        (lambda s: s.flat_map_values(list, name="it"), CHAIN_TAIL),
        (lambda s: s.map(max, name="it"), OperatorSpec(ChainingStrategy.ALWAYS, changes_key=True)),
        (lambda s: s.select_key(max, name="it"), OperatorSpec(ChainingStrategy.ALWAYS, changes_key=True)),
        (lambda s: s.select_key(column, name="it"), OperatorSpec(columnar=True, changes_key=True)),
        (lambda s: s.flat_map(max, name="it"), OperatorSpec(ChainingStrategy.TAIL, changes_key=True)),
        (lambda s: s.foreach(print, name="it"), CHAIN_TAIL),
        (lambda s: s.merge(s, name="it"), CHAINED),
        (lambda s: s.split(name="it").branch(max).no_default_branch(), PLAIN),
        (lambda s: s.split(name="it").branch(column.is_null()).no_default_branch(), COLUMNAR),
        (lambda s: s.to_table(name="it"), PLAIN),
        (lambda s: s.to_table(name="it", store="kept"), OperatorSpec(stores=("kept",))),
        (lambda s: s.group_by_key().aggregate(int, max, name="it", store="a"), OperatorSpec(stores=("a",))),
        (
            lambda s: s.process(Processor, name="it"),
            OperatorSpec(sees_context=True, may_schedule=True, changes_key=True),
        ),
        (
            lambda s: s.process_values(FixedKeyProcessor, name="it"),
            OperatorSpec(sees_context=True, may_schedule=True),
        ),
    ],
)
def test_what_operators_of_streams_are(shape: Callable[[Bytes], object], expected: OperatorSpec) -> None:
    assert of_stream(shape) == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (lambda t: t.filter(max, name="it"), PLAIN),
        (lambda t: t.map_values(bytes, name="it", store="kept"), OperatorSpec(stores=("kept",))),
        (lambda t: t.to_stream(name="it"), PLAIN),
        (lambda t: t.group_by(max, name="it").count(store="n"), OperatorSpec(changes_key=True)),
        (
            lambda t: t.transform_values(Same, name="it"),
            OperatorSpec(sees_context=True, may_schedule=True),
        ),
        (
            lambda t: t.transform_values(Same, name="it", store="kept"),
            OperatorSpec(sees_context=True, may_schedule=True, stores=("kept",)),
        ),
    ],
)
def test_what_operators_of_tables_are(
    shape: Callable[[KTable[bytes, bytes]], object], expected: OperatorSpec
) -> None:
    assert of_table(shape) == expected


def test_only_a_cached_table_lets_its_input_be_combined() -> None:
    def combine(caching: bool) -> object:
        store = Store("counts", caching=caching)
        return of_stream(lambda s: s.group_by_key().count(name="it", store=store)).combine

    assert [combine(True), combine(False)] == [COUNT, None]


def test_a_reducer_lets_its_input_be_combined_if_it_is_said_to_be_commutative() -> None:
    def combine(commutative: bool) -> object:
        return of_stream(lambda s: s.group_by_key().reduce(max, commutative=commutative, name="it")).combine

    assert [combine(True) is not None, combine(False)] == [True, None]


def test_of_columns_only_a_count_lets_its_input_be_combined() -> None:
    def combine(how: str) -> object:
        def shape(stream: Bytes) -> None:
            getattr(stream.map_values(column.bin.size()).group_by_key(), how)(name="it")

        spec = of_stream(shape)
        assert spec.columnar
        return spec.combine

    assert [combine("count"), combine("sum"), combine("max")] == [COUNT, None, None]


def test_a_processor_of_the_users_own_is_given_stores_after_it_is_added() -> None:
    topology = Topology().add_source("in", "a").add_processor("it", Processor, "in")
    topology.add_state_store(stores.key_value("one"), "it").add_state_store(stores.key_value("two"))
    topology.connect_processor_and_state_stores("it", "two", "one")
    assert spec_of(topology).stores == ("one", "two")
    assert spec_of(topology).sees_context


def test_a_store_that_is_only_read_is_not_written_to() -> None:
    spec = OperatorSpec(stores=("mine", "yours"), only_reads=frozenset({"yours"}))
    assert [spec.writes(store) for store in ("mine", "yours", "unknown")] == [True, False, False]


def test_a_source_topic_does_for_the_changelog_of_a_store_that_others_only_read() -> None:
    def changelogs(only_reads: frozenset[str]) -> dict[str, str]:
        builder = StreamsBuilder()
        builder.table("users", store="users").to_stream().to("out")
        topology = builder.build(optimization="all")
        parent = next(name for name in topology.graph.nodes if "TOSTREAM" in name)
        topology.add_operator("reader", PassThrough, (parent,), OperatorSpec(only_reads=only_reads))
        topology.connect("reader", ["users"])
        return topology.plan().changelog_topics("app")

    assert changelogs(frozenset({"users"})) == {}
    assert changelogs(frozenset()) == {"users": "app-users-changelog"}
