"""Cells in bulk are what single reads and writes are: for stores by key, by window and by session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import ValueAndTimestamp, Window, Windowed, serdes, stores
from millstream.processors.aggregations.column_groups import load_cells, save_cells
from millstream.state.backends.memory import MemoryBackend
from millstream.state.specs import StoreBuilder
from millstream.state.stores.cell_store import Cell, CellStore, Frozen
from millstream.state.stores.factory import open_store
from millstream.state.stores.segments import apply_changes
from millstream.state.stores.store import changes_of, epoch_committed

SIZE = 10
SEGMENTS: dict[str, Any] = {"retention_ms": 100, "segment_interval_ms": 40}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store, and how its cells are read and written one by one."""

    spec: StoreBuilder
    key: Callable[[str, int, int], Any]
    """The key of a table's row, of a name, a time and a length."""
    get: Callable[[Any, Any], Cell]
    put: Callable[[Any, Any, Cell], None]
    timestamp: Callable[[Any, int], int] = lambda _key, timestamp: timestamp
    """What becomes of a timestamp."""


def stamped(cell: Cell) -> ValueAndTimestamp[Any] | None:
    return None if cell is None else ValueAndTimestamp(*cell)


def as_cell(found: ValueAndTimestamp[Any] | None) -> Cell:
    return None if found is None else (found.value, found.timestamp)


def session_cell(store: Any, key: Windowed[str]) -> Cell:
    value = store.fetch_session(key.key, key.window.start, key.window.end)
    return None if value is None else (value, key.window.end)


def window_of(name: str, time: int, _length: int) -> Windowed[str]:
    return Windowed(name, Window(time, time + SIZE))


def session_of(name: str, time: int, length: int) -> Windowed[str]:
    return Windowed(name, Window(time, time + length))


def kinds(value: Any) -> dict[str, Kind]:
    both: dict[str, Any] = {"key": serdes.string, "value": value}
    found = {
        "key-value": Kind(
            stores.timestamped_key_value("cells", **both),
            lambda name, _time, _length: name,
            lambda store, key: as_cell(store.get(key)),
            lambda store, key, cell: store.put(key, stamped(cell)),
        )
    }
    for order, by_time in (("by key", False), ("by time", True)):
        shape = {"time_ordered": by_time, **SEGMENTS, **both}
        found[f"window {order}"] = Kind(
            stores.timestamped_window("cells", window_size_ms=SIZE, **shape),
            window_of,
            lambda store, key: as_cell(store.fetch(key.key, key.window.start)),
            lambda store, key, cell: store.put(key.key, stamped(cell), key.window.start),
        )
        found[f"session {order}"] = Kind(
            stores.session("cells", **shape),
            session_of,
            session_cell,
            lambda store, key, cell: store.put(key, None if cell is None else cell[0]),
            lambda key, _timestamp: int(key.window.end),
        )
    return found


KINDS = kinds(serdes.int64)
LISTS = kinds(serdes.json)
# One key goes on like the time of another: keys have no length in front of them.
PLACES = st.tuples(
    st.sampled_from(["", "a", "a\0\0\0\0\0\0\0\0", "b"]), st.integers(0, 300), st.integers(0, 20)
)
CELLS = st.none() | st.tuples(st.integers(-9, 9), st.integers(0, 400))
EPOCHS = st.lists(st.lists(st.dictionaries(PLACES, CELLS, max_size=6), max_size=3), max_size=4)


def opened(kind: Kind) -> tuple[Any, MemoryBackend]:
    backend = MemoryBackend()
    return open_store(kind.spec, backend, kind.spec.key, kind.spec.value), backend


def commit(kind: Kind, store: Any, backend: MemoryBackend) -> None:
    apply_changes(backend, changes_of(store), b"1", segmented=kind.spec.is_segmented)
    epoch_committed(store)


@pytest.mark.parametrize("name", KINDS)
@settings(deadline=None, max_examples=60)
@given(epochs=EPOCHS, wanted=st.lists(PLACES, max_size=4))
def test_load_and_save_are_get_and_put_of_each(
    name: str, epochs: list[list[dict[Any, Cell]]], wanted: list[Any]
) -> None:
    kind = KINDS[name]
    (bulk, bulk_backend), (single, single_backend) = opened(kind), opened(kind)
    assert isinstance(bulk, CellStore)
    keys = [kind.key(*place) for epoch in epochs for batch in epoch for place in batch]
    keys += [kind.key(*place) for place in wanted]
    for epoch in epochs:
        before = {key: kind.get(single, key) for key in keys}
        for batch in epoch:
            cells = {kind.key(*place): cell for place, cell in batch.items()}
            bulk.save(dict(zip(bulk.encode_keys(list(cells)), cells.values(), strict=True)))
            for key, cell in cells.items():
                kind.put(single, key, cell)
            now = {key: kind.get(single, key) for key in keys}
            assert by_key(bulk.load, bulk, keys) == now
            assert by_key(bulk.load_frozen, bulk, keys) == now
        assert by_key(bulk.load_committed, bulk, keys) == before
        assert list(changes_of(bulk)) == list(changes_of(single))
        commit(kind, bulk, bulk_backend)
        commit(kind, single, single_backend)


def by_key(load: Callable[[list[bytes]], dict[bytes, Cell]], store: Any, keys: list[Any]) -> dict[Any, Cell]:
    encoded = store.encode_keys(keys)
    found = load(encoded)
    assert found.keys() == set(encoded)
    return {key: found[data] for key, data in zip(keys, encoded, strict=True)}


@pytest.mark.parametrize("name", KINDS)
def test_cells_in_columns_are_the_same_cells(name: str) -> None:
    kind = KINDS[name]
    (columns, _), (rows, _) = opened(kind), opened(kind)
    keys = sorted(set(rows.encode_keys([kind.key(name, at, 5) for name in "ab" for at in (0, 50, 200)])))
    cells = {key: (number, 300 + number) for number, key in enumerate(keys)}
    rows.save(cells)
    save_cells(columns, pl.Series(keys), pl.Series(range(len(keys))), pl.Series(range(300, 300 + len(keys))))
    assert list(changes_of(columns)) == list(changes_of(rows))
    values, times = load_cells(columns, keys)
    found = [None if value is None else (value, time) for value, time in zip(values, times, strict=True)]
    assert found == list(rows.load(keys).values())


@pytest.mark.parametrize("name", LISTS)
def test_values_that_can_be_changed_are_frozen(name: str) -> None:
    kind = LISTS[name]
    store, _ = opened(kind)
    key = kind.key("a", 20, 5)
    (data,) = store.encode_keys([key])
    store.save({data: (store.frozen([1]), 7)})
    time = kind.timestamp(key, 7)
    assert store.load_frozen([data]) == {data: (Frozen(b"[1]"), time)}
    assert store.load([data]) == {data: ([1], time)}
    assert kind.get(store, key) == ([1], time)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "key-value"])
def test_cells_that_have_expired_by_their_turn_are_counted_and_not_there(name: str) -> None:
    kind = KINDS[name]
    store, backend = opened(kind)
    early, late = store.encode_keys([kind.key("a", 0, 5), kind.key("a", 200, 5)])
    store.save({early: (1, 1)})
    commit(kind, store, backend)
    store.save({late: (2, 2), early: (3, 3)})
    assert store.expired_puts == 1
    assert store.load([early])[early] is None
    assert store.load_committed([early])[early] is not None
