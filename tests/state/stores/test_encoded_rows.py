"""Rows and lists in bulk and in bytes: the same as with single calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import serdes, stores
from millstream.state.backends.memory import MemoryBackend
from millstream.state.stores.factory import open_store
from millstream.state.stores.store import changes_of

KEYS = st.sampled_from(["a", "ab", "b", "a\0"])
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 200), st.sampled_from(["", "x", "y"])), max_size=30)


def window_store(*, time_ordered: bool) -> Any:
    spec = stores.window(
        "rows",
        window_size_ms=10,
        retention_ms=50,
        segment_interval_ms=20,
        retain_duplicates=True,
        time_ordered=time_ordered,
    )
    return open_store(spec, MemoryBackend(), serdes.string, serdes.string)


@pytest.mark.parametrize("time_ordered", [False, True])
@settings(max_examples=100, deadline=None)
@given(batches=st.lists(ROWS, max_size=3), first=st.integers(0, 200), last=st.integers(0, 200))
def test_windows_in_bytes_are_those_of_single_puts(
    time_ordered: bool, batches: list[list[tuple[str, int, str]]], first: int, last: int
) -> None:
    one, bulk = window_store(time_ordered=time_ordered), window_store(time_ordered=time_ordered)
    for rows in batches:
        for key, start, value in rows:
            one.put(key, value, start)
        bulk.put_encoded([(key.encode(), start, value.encode()) for key, start, value in rows])
    found = [(key, start, data) for key, start, _, data in bulk.encoded_rows([b"a", b"b"], first, last)]
    for key in ("a", "b"):
        expected = [(start, value) for start, value in one.fetch(key, first, last)]
        assert [(start, data.decode()) for own, start, data in found if own == key.encode()] == expected
    assert bulk.expired_puts == one.expired_puts
    assert list(changes_of(bulk)) == list(changes_of(one))


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.tuples(KEYS, st.sampled_from(["", "x", None])), max_size=20))
def test_lists_in_bytes_are_those_of_single_puts(rows: list[tuple[str, str | None]]) -> None:
    one: Any = open_store(stores.list_value("lists"), MemoryBackend(), serdes.string, serdes.string)
    bulk: Any = open_store(stores.list_value("lists"), MemoryBackend(), serdes.string, serdes.string)
    lists: dict[str, list[str]] = {}
    for key, value in rows:
        one.put(key, value)
        lists[key] = [*lists.get(key, []), value] if value is not None else []
    bulk.save_encoded((key.encode(), [value.encode() for value in values]) for key, values in lists.items())
    expected = {key.encode(): [value.encode() for value in values] for key, values in lists.items() if values}
    assert bulk.load_encoded([key.encode() for key in lists]) == expected
    assert list(bulk.scan_encoded()) == sorted(expected.items())
    assert list(bulk.scan_encoded(backward=True)) == sorted(expected.items(), reverse=True)
    assert list(changes_of(bulk)) == list(changes_of(one))
