"""`split()`: what is in the dictionary at the end."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import BranchedKStream, KStream, StreamsBuilder, serdes


def split(name: str | None = "s-") -> BranchedKStream[str, str]:
    return StreamsBuilder().stream("in", key=serdes.string, value=serdes.string).split(name=name)


def always(key: str, value: str) -> bool:
    return True


def test_unnamed_branches_are_numbered_from_1_and_the_default_is_0() -> None:
    branches = split().branch(always).branch(always).default_branch()
    assert list(branches) == ["s-1", "s-2", "s-0"]


def test_names_are_put_behind_that_of_the_split() -> None:
    branches = split().branch(always, name="large").default_branch(name="rest")
    assert list(branches) == ["s-large", "s-rest"]


def test_without_a_default_there_are_only_the_branches() -> None:
    assert list(split().branch(always, name="large").no_default_branch()) == ["s-large"]


def test_an_unnamed_split_has_a_numbered_name() -> None:
    assert list(split(None).branch(always).no_default_branch()) == ["KSTREAM-BRANCH-00000000011"]


def test_a_function_puts_what_it_makes_into_the_dictionary() -> None:
    made: list[KStream[str, str]] = []

    def shout(branch: KStream[str, str]) -> KStream[str, str]:
        made.append(branch.map_values(str.upper))
        return made[0]

    assert split().branch(always, name="large", function=shout).no_default_branch() == {"s-large": made[0]}


def test_a_function_that_makes_nothing_leaves_the_branch_out() -> None:
    assert split().branch(always, function=lambda branch: None).no_default_branch() == {}


def test_a_consumer_uses_the_branch_up() -> None:
    used: list[Any] = []
    assert split().branch(always, consumer=used.append).default_branch(consumer=used.append) == {}
    assert len(used) == 2


def test_a_branch_that_is_not_there_is_told_with_those_that_are() -> None:
    orders = StreamsBuilder().stream("orders").split(name="orders-")
    branches = orders.branch(lambda key, _: bool(key), name="large").default_branch(name="rest")
    with pytest.raises(KeyError, match=r"orders-large.*orders-rest.*Remedy"):
        branches["large"]
    assert branches.get("large") is None
