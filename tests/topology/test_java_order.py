"""Java's order of strings in a hash map and of things in a tree set, which `describe()` shows."""

from __future__ import annotations

import random

from millstream.topology.java_order import TreeSet, hash_order


def test_names_come_in_the_order_of_their_hashes() -> None:
    # new HashSet<>(List.of("orders", "payments", "users", "a")) prints [a, orders, users, payments]
    assert hash_order(["orders", "payments", "users", "a"]) == hash_order(
        ["a", "users", "payments", "orders"]
    )
    assert hash_order(["b", "a"]) == ["a", "b"]


def test_a_name_counts_once() -> None:
    assert hash_order(["a", "a"]) == ["a"]


def test_a_larger_map_has_more_places() -> None:
    names = [f"topic-{number}" for number in range(40)]
    assert sorted(hash_order(names)) == sorted(names)


def test_a_tree_set_is_sorted() -> None:
    numbers = list(range(200))
    random.Random(1).shuffle(numbers)
    tree: TreeSet[int] = TreeSet(lambda number: number)
    for number in numbers:
        tree.add(number)
    assert list(tree) == sorted(numbers)


def test_a_tree_set_does_not_sort_again_when_ranks_change() -> None:
    ranks = {"a": 1, "b": 2, "c": 3}
    tree: TreeSet[str] = TreeSet(lambda name: ranks[name])
    for name in "abc":
        tree.add(name)
    # It is asked at the root, b, which looks smaller than a now, and then at c.
    ranks |= {"b": 0, "d": 1}
    tree.add("d")
    assert list(tree) == ["a", "b", "d", "c"]
