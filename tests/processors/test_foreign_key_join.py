"""Joins by foreign key in epochs: stale answers lose, batches are invisible, tables end as they must."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.processors.foreign_key_oracle import (
    LEFT,
    RIGHT,
    Event,
    Tables,
    build,
    joined,
    random_epochs,
    reference,
    run,
    table,
)

from millstream import KTable, Store, StreamsBuilder, serdes

Body = Callable[[StreamsBuilder], KTable[Any, Any]]
Expected = Callable[[Tables], dict[str, str]]
WORDS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def inner(builder: StreamsBuilder, **options: Any) -> KTable[str, str]:
    left, right = table(builder, LEFT, **options), table(builder, RIGHT, **options)
    return left.foreign_key_join(right, reference, joined)


def left_join(builder: StreamsBuilder, **options: Any) -> KTable[str, str]:
    left, right = table(builder, LEFT, **options), table(builder, RIGHT, **options)
    return left.left_foreign_key_join(right, reference, joined)


def uncached(builder: StreamsBuilder) -> KTable[str, str]:
    return left_join(builder, caching=False)


def inner_uncached(builder: StreamsBuilder) -> KTable[str, str]:
    return inner(builder, caching=False)


def stored(builder: StreamsBuilder) -> KTable[str, str]:
    left, right = table(builder, LEFT), table(builder, RIGHT, caching=False)
    return left.foreign_key_join(right, reference, joined, store=Store("result", **WORDS))


def of_views(builder: StreamsBuilder) -> KTable[str, str]:
    left, right = table(builder, LEFT, caching=False), table(builder, RIGHT)
    return left.map_values(lambda value: value + "!").left_foreign_key_join(
        right.map_values(str.upper), reference, joined
    )


def views(tables: Tables) -> dict[str, str]:
    left = {key: value + "!" for key, value in tables.left.items()}
    right = {key: value.upper() for key, value in tables.right.items()}
    return Tables(left, right).left_join()


def joined_back(builder: StreamsBuilder) -> KTable[str, str]:
    left, right = table(builder, LEFT), table(builder, RIGHT)
    return left.foreign_key_join(right, reference, joined).left_join(left, joined)


def back(tables: Tables) -> dict[str, str]:
    return {key: joined(value, tables.left[key]) for key, value in tables.inner().items()}


def joined_back_uncached(builder: StreamsBuilder) -> KTable[str, str]:
    left, right = table(builder, LEFT, caching=False), table(builder, RIGHT, caching=False)
    store = Store("result", caching=False, **WORDS)
    return left.join(left.left_foreign_key_join(right, reference, joined, store=store), joined)


def back_uncached(tables: Tables) -> dict[str, str]:
    return {key: joined(tables.left[key], value) for key, value in tables.left_join().items()}


def of_itself(builder: StreamsBuilder) -> KTable[str, str]:
    """A left row refers to another left row, by what stands behind the colon."""
    rows = table(builder, LEFT)
    return rows.left_foreign_key_join(rows, lambda _, value: "k" + value[-1], joined)


def itself(tables: Tables) -> dict[str, str]:
    return {key: joined(value, tables.left.get("k" + value[-1])) for key, value in tables.left.items()}


def both_ways(builder: StreamsBuilder) -> KTable[str, str]:
    """Left refers to right, right to left; and the results are joined."""
    left, right = table(builder, LEFT), table(builder, RIGHT)
    there = left.left_foreign_key_join(right, reference, joined)
    right.left_foreign_key_join(left, lambda _, word: "k" + word[-1], joined).to_stream().to("other", **WORDS)
    return there


def of_a_result(builder: StreamsBuilder) -> KTable[str, str]:
    """The result refers to the right table once more, by what it was joined with."""
    left, right = table(builder, LEFT), table(builder, RIGHT)
    once = left.foreign_key_join(right, reference, joined)
    return once.left_foreign_key_join(right, lambda _, value: "f" + value[-1], joined)


def twice(tables: Tables) -> dict[str, str]:
    return {key: joined(value, tables.right.get("f" + value[-1])) for key, value in tables.inner().items()}


PROGRAMS: list[tuple[Body, Expected]] = [
    (inner, Tables.inner),
    (left_join, Tables.left_join),
    (uncached, Tables.left_join),
    (inner_uncached, Tables.inner),
    (stored, Tables.inner),
    (of_views, views),
    (joined_back, back),
    (joined_back_uncached, back_uncached),
    (of_itself, itself),
    (both_ways, Tables.left_join),
    (of_a_result, twice),
]
NAMES = [body.__name__ for body, _ in PROGRAMS]
by_program = pytest.mark.parametrize(("body", "expected"), PROGRAMS, ids=NAMES)
IN_ALL_INTERLEAVINGS = {inner_uncached, joined_back}


@by_program
def test_the_last_updates_are_what_both_tables_say_in_random_interleavings(
    body: Body, expected: Expected
) -> None:
    topology = build(body)
    thorough = body in IN_ALL_INTERLEAVINGS or os.environ.get("MILLSTREAM_SOAK")
    for seed in range(100 if thorough else 12):
        rng = random.Random(seed)
        epochs = random_epochs(rng)
        ends = []
        tables = Tables()
        for epoch in epochs:
            tables.take(epoch)
            ends.append(expected(tables))
        found: list[dict[str, str]] = []

        def note(last: Mapping[str, str | None], found: list[dict[str, str]] = found) -> None:
            found.append({key: value for key, value in last.items() if value is not None})

        run(topology, epochs, rng=rng, after_epoch=note, fresh_tasks=seed % 2 == 0)
        assert found == ends, f"seed {seed}"


@by_program
def test_a_batch_gives_what_its_rows_one_by_one_give(body: Body, expected: Expected) -> None:
    del expected
    topology = build(body)
    for seed in range(8):
        epochs = random_epochs(random.Random(seed))
        assert run(topology, epochs) == run(topology, epochs, max_rows=1), f"seed {seed}"


MOVE: list[Event] = [
    (LEFT, "k", "f1:a", 1),
    (RIGHT, "f1", "one", 2),
    (RIGHT, "f2", "two", 3),
]


@pytest.mark.parametrize("time_of_move", [4, 6])
@pytest.mark.parametrize("time_of_change", [4, 5, 7])
@pytest.mark.parametrize("seed", range(4))
def test_the_stale_answer_loses_if_a_row_moves_while_what_it_moves_from_changes(
    time_of_move: int, time_of_change: int, seed: int
) -> None:
    epochs: list[list[Event]] = [
        MOVE,
        [(LEFT, "k", "f2:a", time_of_move), (RIGHT, "f1", "changed", time_of_change)],
    ]
    rows = run(build(uncached), epochs, rng=random.Random(seed))
    assert rows[-1:] == [("k", "f2:a+two", time_of_move)]
    assert [value for _, value, _ in rows if "changed" in (value or "")] == []


def test_an_answer_to_an_earlier_value_of_the_same_reference_is_stale() -> None:
    epoch: list[Event] = [(LEFT, "k", "f1:a", 1), (LEFT, "k", "f1:b", 2), (RIGHT, "f1", "one", 3)]
    assert run(build(uncached), [epoch]) == [("k", "f1:b+None", 2), ("k", "f1:b+one", 3)]


def test_a_row_that_refers_to_nothing_is_joined_with_nothing_by_a_left_join_only() -> None:
    epochs: list[list[Event]] = [[(LEFT, "k", ":a", 1)], [(LEFT, "k", "f1:a", 2)], [(LEFT, "k", ":b", 3)]]
    assert run(build(left_join), epochs) == [
        ("k", ":a+None", 1),
        ("k", "f1:a+None", 2),
        ("k", ":b+None", 3),
    ]
    assert run(build(inner), epochs) == [("k", None, 3)]


def test_a_right_row_is_told_to_all_who_refer_to_it_in_the_order_of_their_keys() -> None:
    rows: list[Event] = [(LEFT, key, "f1:a", time) for time, key in enumerate(("k3", "k1", "k2"))]
    epochs: list[list[Event]] = [rows, [(RIGHT, "f1", "one", 7)]]
    assert run(build(uncached), epochs, partitions={LEFT: 1, RIGHT: 1})[-3:] == [
        ("k1", "f1:a+one", 7),
        ("k2", "f1:a+one", 7),
        ("k3", "f1:a+one", 7),
    ]
