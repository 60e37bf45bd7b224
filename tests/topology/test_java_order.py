"""Java's order of strings in a hash map, which `describe()` shows."""

from __future__ import annotations

from millstream.topology.java_order import hash_order


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
