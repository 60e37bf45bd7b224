"""A view answers what its store does: global stores, and timestamped ones with timestamps out of sight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream import (
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedKeyValueStore,
    ReadOnlyWindowStore,
    StoreBuilder,
    ValueAndTimestamp,
    Window,
    Windowed,
    serdes,
    stores,
)
from millstream.errors import StoreError
from millstream.state.backends.memory import MemoryBackend
from millstream.state.stores.factory import open_store
from millstream.state.stores.views import global_store
from millstream.testing.stores import PlainValues, PlainWindows

KEYS = ("a", "ab", "b")

KEY_VALUE: dict[str, Callable[[Any], Any]] = {
    "get": lambda store: [store.get(key) for key in (*KEYS, "none")],
    "range": lambda store: store.range("ab", None),
    "reverse_range": lambda store: store.reverse_range(None, "ab"),
    "prefix_scan": lambda store: store.prefix_scan("a", serdes.string),
    "all": lambda store: store.all(),
    "reverse_all": lambda store: store.reverse_all(),
    "approximate_num_entries": lambda store: store.approximate_num_entries(),
}
WINDOW: dict[str, Callable[[Any], Any]] = {
    "fetch": lambda store: [store.fetch(key, 10) for key in (*KEYS, "none")],
    "fetch of a stretch": lambda store: store.fetch("a", 0, 20),
    "backward_fetch": lambda store: store.backward_fetch("a", 0, 20),
    "fetch_range": lambda store: store.fetch_range("ab", None, 0, 10),
    "backward_fetch_range": lambda store: store.backward_fetch_range("ab", None, 0, 10),
    "fetch_all": lambda store: store.fetch_all(5, 15),
    "backward_fetch_all": lambda store: store.backward_fetch_all(5, 15),
    "all": lambda store: store.all(),
    "backward_all": lambda store: store.backward_all(),
}
SESSION: dict[str, Callable[[Any], Any]] = {
    "fetch_session": lambda store: [store.fetch_session(key, 10, 15) for key in (*KEYS, "none")],
    "find_sessions": lambda store: store.find_sessions("a", 5, 10),
    "backward_find_sessions": lambda store: store.backward_find_sessions("a", 5, 10),
    "find_sessions_range": lambda store: store.find_sessions_range("ab", None, 5, 10),
    "backward_find_sessions_range": lambda store: store.backward_find_sessions_range(None, "ab", 5, 10),
    "fetch": lambda store: store.fetch("a"),
    "backward_fetch": lambda store: store.backward_fetch("a"),
    "fetch_range": lambda store: store.fetch_range(None, "ab"),
    "backward_fetch_range": lambda store: store.backward_fetch_range(None, "ab"),
}
VERSIONED: dict[str, Callable[[Any], Any]] = {
    "get": lambda store: [store.get(key) for key in (*KEYS, "none")],
    "get as of": lambda store: store.get("a", 10),
    "versions": lambda store: [store.versions(key, 0, 15) for key in (*KEYS, "none")],
    "all": lambda store: store.all(),
}


def key_values(spec: StoreBuilder, value: Callable[[int], Any]) -> Any:
    store: Any = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
    for number, key in enumerate(KEYS):
        store.put(key, value(number))
    return store


def windows(spec: StoreBuilder, value: Callable[[int], Any]) -> Any:
    store: Any = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
    for number, (key, start) in enumerate((key, start) for key in KEYS for start in (0, 10, 20)):
        store.put(key, value(number), start)
    return store


def sessions() -> Any:
    store: Any = open_store(SPECS[2], MemoryBackend(), serdes.string, serdes.int64)
    for number, (key, start) in enumerate((key, start) for key in KEYS for start in (0, 10, 20)):
        store.put(Windowed(key, Window(start, start + 5)), number)
    return store


SPECS = [
    stores.key_value("store"),
    stores.window("store", window_size_ms=10, retention_ms=100),
    stores.session("store", retention_ms=100),
    stores.versioned_key_value("store", history_retention_ms=100),
]
CASES: list[tuple[type, Any, dict[str, Callable[[Any], Any]]]] = [
    (ReadOnlyKeyValueStore, key_values(SPECS[0], int), KEY_VALUE),
    (ReadOnlyWindowStore, windows(SPECS[1], int), WINDOW),
    (ReadOnlySessionStore, sessions(), SESSION),
    (ReadOnlyVersionedKeyValueStore, windows(SPECS[3], int), VERSIONED),
]


def answer(found: Any) -> Any:
    return list(found) if isinstance(found, Iterator) else found


@pytest.mark.parametrize(
    ("interface", "store", "query"),
    [
        pytest.param(interface, store, query, id=f"{interface.__name__}-{name}")
        for interface, store, queries in CASES
        for name, query in queries.items()
    ],
)
def test_a_global_store_answers_as_the_store_itself(
    interface: type, store: Any, query: Callable[[Any], Any]
) -> None:
    view = global_store(store)
    assert isinstance(view, interface)
    assert answer(query(view)) == answer(query(store))


@pytest.mark.parametrize("store", [store for _, store, _ in CASES], ids=lambda store: type(store).__name__)
def test_a_global_store_cannot_be_written_to(store: Any) -> None:
    with pytest.raises(StoreError, match="store 'store' is global and can only be read here"):
        global_store(store).put("a", 1)


def test_a_global_store_of_any_other_kind_can_be_read_too() -> None:
    store: Any = open_store(stores.list_value("store"), MemoryBackend(), serdes.string, serdes.int64)
    store.put("a", 1)
    assert global_store(store).get("a") == [1]


@pytest.mark.parametrize("name", KEY_VALUE)
def test_plain_values_are_those_of_a_store_without_timestamps(name: str) -> None:
    stamped = key_values(stores.timestamped_key_value("store"), lambda value: ValueAndTimestamp(value, 7))
    query = KEY_VALUE[name]
    assert answer(query(PlainValues(stamped, lambda: 7))) == answer(query(CASES[0][1]))


@pytest.mark.parametrize("name", WINDOW)
def test_plain_windows_are_those_of_a_store_without_timestamps(name: str) -> None:
    spec = stores.timestamped_window("store", window_size_ms=10, retention_ms=100)
    stamped = windows(spec, lambda value: ValueAndTimestamp(value, 7))
    query = WINDOW[name]
    assert answer(query(PlainWindows(stamped, lambda: 7))) == answer(query(CASES[1][1]))
