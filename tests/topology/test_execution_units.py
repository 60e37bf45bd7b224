"""Which nodes may pass batches on, and which have to take turns."""

from __future__ import annotations

import pytest

from millstream.topology.execution_units import units_of

CHAIN = {"a": ["b"], "b": ["c"], "c": ["d"], "d": []}
DIAMOND = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": ["e"], "e": []}


def test_without_shared_stores_every_node_is_by_itself() -> None:
    assert units_of(DIAMOND, []) == (("a",), ("b",), ("c",), ("d",), ("e",))


def test_a_store_of_one_node_changes_nothing() -> None:
    assert units_of(CHAIN, [["b"]]) == (("a",), ("b",), ("c",), ("d",))


def test_nodes_that_share_a_store_are_one_unit_with_all_between_them() -> None:
    assert units_of(CHAIN, [["a", "c"]]) == (("a", "b", "c"), ("d",))


def test_nodes_beside_the_way_stay_out() -> None:
    assert units_of(DIAMOND, [["b", "d"]]) == (("a",), ("c",), ("b", "d"), ("e",))


def test_both_ways_of_a_diamond_are_between() -> None:
    assert units_of(DIAMOND, [["a", "d"]]) == (("a", "b", "c", "d"), ("e",))


def test_siblings_that_share_a_store_are_a_unit_behind_all_their_parents() -> None:
    children = {"a": ["x"], "b": ["y"], "x": [], "y": []}
    assert units_of(children, [["x", "y"]]) == (("a",), ("b",), ("x", "y"))


def test_a_node_can_be_drawn_in_because_it_lies_between_two_units() -> None:
    children = {"a": ["m"], "m": ["c"], "c": [], "d": ["b"], "b": []}
    assert units_of(children, [["a", "b"], ["b", "c"]]) == (("d",), ("a", "m", "c", "b"))


def test_units_that_enclose_each_other_become_one() -> None:
    children = {"a": ["x"], "x": ["b"], "b": ["y"], "y": []}
    assert units_of(children, [["a", "b"], ["x", "y"]]) == (("a", "x", "b", "y"),)


@pytest.mark.parametrize("shared", [[], [["a", "c"]], [["b", "c"]], [["a", "e"]], [["b", "c"], ["d", "e"]]])
def test_parents_come_before_children(shared: list[list[str]]) -> None:
    units = units_of(DIAMOND, shared)
    position = {name: number for number, unit in enumerate(units) for name in unit}
    assert sorted(position) == sorted(DIAMOND)
    assert all(position[name] <= position[child] for name, behind in DIAMOND.items() for child in behind)
