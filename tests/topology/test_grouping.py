"""Sub-topologies: what edges and shared stores hold together."""

from __future__ import annotations

from millstream import Processor, Topology, stores
from millstream.topology.grouping import UnionFind, node_groups


def test_disjoint_sets_grow_together() -> None:
    sets: UnionFind[str] = UnionFind()
    sets.unite("ab")
    sets.unite("cd")
    assert sets.find("a") == sets.find("b")
    assert sets.find("a") != sets.find("c")
    sets.unite("bd")
    assert len({sets.find(item) for item in "abcd"}) == 1


def test_nodes_that_are_connected_are_one_group_in_the_order_of_addition() -> None:
    topology = Topology().add_source("one", "a").add_source("two", "b")
    topology.add_sink("out2", "y", "two").add_sink("out1", "x", "one")
    assert node_groups(topology.graph) == [["one", "out1"], ["two", "out2"]]


def test_a_shared_store_joins_groups() -> None:
    topology = Topology().add_source("one", "a").add_source("two", "b")
    topology.add_processor("p1", Processor, "one").add_processor("p2", Processor, "two")
    topology.add_state_store(stores.key_value("shared"), "p1", "p2")
    assert node_groups(topology.graph) == [["one", "two", "p1", "p2"]]


def test_a_node_with_two_parents_joins_groups() -> None:
    topology = Topology().add_source("one", "a").add_source("two", "b").add_sink("out", "x", "one", "two")
    assert node_groups(topology.graph) == [["one", "two", "out"]]


def test_a_global_store_is_a_group_of_its_own() -> None:
    topology = Topology().add_source("one", "a")
    topology.add_global_store(stores.key_value("rates"), "src", "rates", "update", Processor)
    assert node_groups(topology.graph) == [["one"], ["src", "update"]]
