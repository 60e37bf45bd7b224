"""Cells of windows in columns: the same rows, notes and counts as the store's own bulk calls."""

from __future__ import annotations

from typing import Any, TypeAlias

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import serdes, stores
from millstream.processors.aggregations.column_groups import decoded_cells, encoded_cells
from millstream.state.backends.memory import MemoryBackend
from millstream.state.changelog.rows import changelog_rows
from millstream.state.specs import StoreKind
from millstream.state.stores.factory import open_store
from millstream.state.stores.segments import apply_changes
from millstream.state.stores.store import changes_of, epoch_committed
from millstream.state.stores.written_columns import WrittenColumns

SPEC = stores.timestamped_window("cells", window_size_ms=10, retention_ms=100, segment_interval_ms=40)
# One key goes on like the time of another: keys have no length in front of them.
NAMES = st.sampled_from([b"", b"a", b"a" + bytes(8), b"a\0\0\0\0\0\0\0\x28", b"ab", b"b"])
Places: TypeAlias = list[tuple[bytes, int]]
EPOCHS = st.lists(st.lists(st.tuples(NAMES, st.integers(0, 300)), unique=True, max_size=8), max_size=5)


def opened() -> tuple[Any, MemoryBackend]:
    backend = MemoryBackend()
    return open_store(SPEC, backend, serdes.bytes, serdes.int64), backend


def columns_of(places: Places) -> tuple[pl.Series, pl.Series]:
    names, starts = [name for name, _ in places], [start for _, start in places]
    return pl.Series(names, dtype=pl.Binary), pl.Series(starts, dtype=pl.Int64)


def save(store: Any, places: Places) -> None:
    """Write the places in the order given, by columns in the order of their keys."""
    turns = {place: turn for turn, place in enumerate(places)}
    ordered = sorted(places)
    numbers = pl.Series([turns[place] for place in ordered], dtype=pl.Int64)
    data = encoded_cells(store, numbers, numbers + 1_000)
    assert data is not None
    store.save_windows(*columns_of(ordered), data, numbers + 1_000, numbers)


def load(store: Any, places: Places) -> list[Any]:
    values, times = decoded_cells(store, store.load_windows(*columns_of(places)))
    return [None if time is None else (one, time) for one, time in zip(values, times, strict=True)]


@settings(deadline=None, max_examples=150)
@given(epochs=EPOCHS, wanted=st.lists(st.tuples(NAMES, st.integers(0, 300)), unique=True, max_size=6))
def test_cells_in_columns_are_the_same_cells(epochs: list[Places], wanted: Places) -> None:
    (columns, columns_backend), (rows, rows_backend) = opened(), opened()
    asked = sorted({*wanted, *(place for epoch in epochs for place in epoch)})
    cells = [name + start.to_bytes(8) for name, start in asked]
    for epoch in epochs:
        save(columns, epoch)
        rows.save(
            {name + start.to_bytes(8): (turn, turn + 1_000) for turn, (name, start) in enumerate(epoch)}
        )
        assert load(columns, asked) == list(rows.load(cells).values())
        assert (columns.expired_puts, columns.observed_time) == (rows.expired_puts, rows.observed_time)
        changes, expected = changes_of(columns), changes_of(rows)
        kind = StoreKind.TIMESTAMPED_WINDOW
        assert changelog_rows(changes, kind, 7).equals(changelog_rows(expected, kind, 7))
        for store, backend, entries in ((columns, columns_backend, changes), (rows, rows_backend, expected)):
            apply_changes(backend, entries, b"1", segmented=True)
            epoch_committed(store)
        assert list(columns_backend.scan()) == list(rows_backend.scan())
        assert load(columns, asked) == list(rows.load(cells).values())


def test_cells_stay_columns_up_to_the_changelog_without_those_whose_segment_is_gone() -> None:
    store, _ = opened()
    save(store, [(b"a", 10), (b"b", 500), (b"a", 480)])
    changes = changes_of(store)
    assert isinstance(changes, WrittenColumns)
    segments = [int.from_bytes(row[:8]) for row in changes.key_column.to_pylist()]
    assert segments == [0, 12, 12]  # the note, and segments of 40 ms from 480 on: what began at 10 is gone
    assert changes.time_column.to_pylist() == [None, 1_002, 1_001]


def test_windows_later_than_any_that_was_written_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = opened()
    save(store, [(b"a", 40)])
    asked: list[list[bytes]] = []
    get = store.overlay.get_ascending

    def watched(keys: list[bytes]) -> Any:
        asked.append(keys)
        return get(keys)

    monkeypatch.setattr(store.overlay, "get_ascending", watched)
    assert load(store, [(b"a", 40), (b"a", 50)]) == [(0, 1_000), None]
    assert [len(keys) for keys in asked] == [1]
    assert load(store, [(b"b", 50)]) == [None]
    assert len(asked) == 1
