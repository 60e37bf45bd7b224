"""Table operators that compute each value from one: filter, map_values, transform_values, to_stream."""

from __future__ import annotations

from typing import Any

import pytest
from tests.processors.kit import batch_of, fails_on, opened, updates_of

from millstream.processors.table_values import (
    Compute,
    KeepIf,
    KeepIfNot,
    MapIfPresent,
    MapWithKeyIfPresent,
    StoredTableValues,
    TableToStream,
    TableValues,
)


def large(key: str, value: int) -> bool:
    return value > 5


def computed(compute: Compute, *, send_old: bool, skip: bool = False) -> TableValues:
    operator = TableValues(compute, send_old=send_old, skip_if_both_null=skip)
    opened(operator)
    return operator


def test_filter_turns_what_it_leaves_out_into_tombstones() -> None:
    operator = computed(KeepIf(large), send_old=False, skip=True)
    out = operator.process(batch_of(("a", 7), ("a", 3), ("a", 2)))
    assert updates_of(out) == [("a", 7, None, 0), ("a", None, None, 1), ("a", None, None, 2)]


def test_filter_that_knows_old_values_spares_needless_tombstones() -> None:
    operator = computed(KeepIf(large), send_old=True, skip=True)
    out = operator.process(batch_of(("a", 7), ("a", 3), ("a", 2), olds=[None, 7, 3]))
    assert updates_of(out) == [("a", 7, None, 0), ("a", None, 7, 1)]


def test_filter_not_is_the_opposite() -> None:
    operator = computed(KeepIfNot(large), send_old=False)
    assert updates_of(operator.process(batch_of(("a", 7), ("a", 3)))) == [
        ("a", None, None, 0),
        ("a", 3, None, 1),
    ]


@pytest.mark.parametrize(
    "compute",
    [
        KeepIf(fails_on(None)),
        KeepIfNot(fails_on(None)),
        MapIfPresent(fails_on(None)),
        MapWithKeyIfPresent(fails_on(None)),
    ],
    ids=lambda compute: type(compute).__name__,
)
def test_a_deleted_row_is_not_shown_to_predicates_and_mappers(compute: Compute) -> None:
    assert compute("a", None) is None


def test_map_values_maps_the_old_value_too() -> None:
    operator = computed(MapIfPresent(lambda value: value * 10), send_old=True)
    out = operator.process(batch_of(("a", 1), ("a", None), olds=[None, 1]))
    assert updates_of(out) == [("a", 10, None, 0), ("a", None, 10, 1)]


def test_map_values_with_key_sees_the_key() -> None:
    operator = computed(MapWithKeyIfPresent(lambda key, value: f"{key}{value}"), send_old=False)
    assert updates_of(operator.process(batch_of(("a", 1)))) == [("a", "a1", None, 0)]


def test_map_values_never_leaves_an_update_out() -> None:
    operator = computed(MapIfPresent(lambda value: None), send_old=True)
    out = operator.process(batch_of(("a", 1), olds=[2]))
    assert updates_of(out) == [("a", None, None, 0)]


def test_a_row_whose_old_value_fails_is_left_out() -> None:
    operator = TableValues(MapIfPresent(fails_on(2)), send_old=True, skip_if_both_null=False)
    notes = opened(operator)
    out = operator.process(batch_of(("a", 1), ("a", 3), olds=[None, 2]))
    assert updates_of(out) == [("a", 1, None, 0)]
    assert notes.messages == [(1, "can't do 2")]


def stored(compute: Compute, *, send_old: bool, skip: bool = False, caching: bool = False) -> Any:
    operator = StoredTableValues("table", compute, caching=caching, send_old=send_old, skip_if_both_null=skip)
    return operator, opened(operator)


def test_with_a_store_the_old_value_is_what_the_store_held() -> None:
    operator, _ = stored(MapIfPresent(lambda value: value * 10), send_old=True)
    out = operator.process(batch_of(("a", 1), ("a", 2), ("a", None), olds=[8, 8, 8]))
    assert updates_of(out) == [("a", 10, None, 0), ("a", 20, 10, 1), ("a", None, 20, 2)]


def test_a_stored_filter_spares_needless_tombstones_if_it_sends_old_values() -> None:
    operator, notes = stored(KeepIf(large), send_old=True, skip=True)
    out = operator.process(batch_of(("a", 3), ("a", 7), ("a", 2), ("a", 1)))
    assert updates_of(out) == [("a", 7, None, 1), ("a", None, 7, 2)]
    assert notes.table.load([b"a"]) == {b"a": None}


def test_a_stored_filter_that_sends_no_old_values_sends_every_tombstone() -> None:
    operator, _ = stored(KeepIf(large), send_old=False, skip=True)
    assert updates_of(operator.process(batch_of(("a", 3)))) == [("a", None, None, 0)]


def test_a_stored_result_keeps_the_time_of_its_update() -> None:
    operator, notes = stored(MapIfPresent(lambda value: value), send_old=False)
    operator.process(batch_of(("a", 1), ("a", 2), timestamps=[9, 4]))
    assert notes.table.load([b"a"]) == {b"a": (2, 4)}


def test_a_row_that_fails_changes_nothing_in_the_store() -> None:
    operator, notes = stored(MapIfPresent(fails_on(2)), send_old=True)
    out = operator.process(batch_of(("a", 1), ("a", 2), ("b", 3)))
    assert updates_of(out) == [("a", 1, None, 0), ("b", 3, None, 2)]
    assert notes.table.load([b"a"]) == {b"a": (1, 0)}


def test_to_stream_shows_new_values_only() -> None:
    operator = TableToStream()
    opened(operator)
    out = operator.process(batch_of(("a", 1), ("a", None), olds=[None, 1]))
    assert updates_of(out) == [("a", 1, None, 0), ("a", None, None, 1)]
    assert out.olds is None
