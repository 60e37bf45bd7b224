"""split().branch().default_branch() and no_default_branch()."""

from __future__ import annotations

from collections.abc import Mapping

from tests.semantics.registry import dsl
from tests.semantics.shapes import NUMBERS, WORDS, numbers, words

from millstream import KStream, StreamsBuilder


def _tag(branches: Mapping[str, KStream[str, int]]) -> None:
    """Send all branches to one topic, each value with the name under which its branch is known."""
    for name, branch in sorted(branches.items()):
        _send_tagged(name, branch)


def _send_tagged(name: str, branch: KStream[str, int]) -> None:
    branch.map_values(lambda v: f"{name} {v}").to("out", **WORDS)


@dsl
def split_with_default(b: StreamsBuilder) -> None:
    _tag(numbers(b, "in").split().branch(lambda k, v: v < 10).branch(lambda k, v: v < 100).default_branch())


@dsl
def split_without_default(b: StreamsBuilder) -> None:
    _tag(
        numbers(b, "in").split().branch(lambda k, v: v < 10).branch(lambda k, v: v < 100).no_default_branch()
    )


@dsl
def split_named(b: StreamsBuilder) -> None:
    _tag(
        numbers(b, "in")
        .split(name="size-")
        .branch(lambda k, v: v < 10, name="small")
        .branch(lambda k, v: v < 100)
        .default_branch(name="large")
    )


@dsl
def split_named_with_unnamed_branches(b: StreamsBuilder) -> None:
    _tag(
        numbers(b, "in")
        .split(name="size-")
        .branch(lambda k, v: v < 10)
        .branch(lambda k, v: v < 100)
        .default_branch()
    )


@dsl
def split_unnamed_with_named_branches(b: StreamsBuilder) -> None:
    _tag(
        numbers(b, "in")
        .split()
        .branch(lambda k, v: v < 10, name="-small")
        .branch(lambda k, v: v < 100, name="-middle")
        .no_default_branch()
    )


@dsl
def split_with_function(b: StreamsBuilder) -> None:
    _tag(
        numbers(b, "in")
        .split(name="size-")
        .branch(lambda k, v: v < 10, function=lambda s: s.map_values(lambda v: -v))
        .branch(lambda k, v: v < 100, function=lambda s: s.filter(lambda k, v: v != 50), name="middle")
        .default_branch(function=lambda s: s.map_values(lambda v: v + 1), name="large")
    )


@dsl
def split_with_function_returning_null(b: StreamsBuilder) -> None:
    _tag(
        numbers(b, "in")
        .split(name="size-")
        .branch(lambda k, v: v < 10, function=lambda s: None, name="small")
        .branch(lambda k, v: v < 100, name="middle")
        .no_default_branch()
    )


@dsl
def split_with_consumer(b: StreamsBuilder) -> None:
    _tag(
        numbers(b, "in")
        .split(name="size-")
        .branch(
            lambda k, v: v < 10,
            consumer=lambda s: s.map_values(lambda v: f"consumed {v}").to("out", **WORDS),
        )
        .branch(lambda k, v: v < 100, name="middle")
        .default_branch(consumer=lambda s: s.foreach(lambda k, v: None), name="large")
    )


@dsl
def split_with_default_only(b: StreamsBuilder) -> None:
    _tag(numbers(b, "in").split().default_branch())


@dsl
def split_first_match_wins(b: StreamsBuilder) -> None:
    _tag(
        numbers(b, "in")
        .split(name="p-")
        .branch(lambda k, v: v > 0, name="first")
        .branch(lambda k, v: v > 0, name="second")
        .default_branch(name="third")
    )


@dsl
def split_sees_nulls(b: StreamsBuilder) -> None:
    parts = (
        words(b, "in")
        .split(name="null-")
        .branch(lambda k, v: k is None, name="key")
        .branch(lambda k, v: v is None, name="value")
        .default_branch(name="neither")
    )
    parts["null-key"].to("keyless")
    parts["null-value"].to("tombstones")
    parts["null-neither"].to("out")


@dsl
def split_nested_and_merged(b: StreamsBuilder) -> None:
    outer = (
        numbers(b, "in")
        .split(name="sign-")
        .branch(lambda k, v: v < 0, name="minus")
        .default_branch(name="plus")
    )
    inner = (
        outer["sign-plus"]
        .split(name="parity-")
        .branch(lambda k, v: v % 2 == 0, name="even")
        .no_default_branch()
    )
    outer["sign-minus"].merge(inner["parity-even"]).to("out", **NUMBERS)


@dsl
def split_branch_raising_fails(b: StreamsBuilder) -> None:
    _tag(numbers(b, "in").split().branch(lambda k, v: 1 // v > 0).no_default_branch())
