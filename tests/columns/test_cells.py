"""Cells of a table in columns: the same bytes as the store's own bulk calls."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from millstream import serdes, stores
from millstream.processors.aggregations.column_groups import load_cells, save_cells
from millstream.serdes.columns import CannotError
from millstream.state.backends.memory import MemoryBackend
from millstream.state.changelog.rows import changelog_rows
from millstream.state.specs import StoreKind
from millstream.state.stores.key_value import TimestampedKeyValueStore
from millstream.state.stores.overlay import Overlay
from millstream.state.stores.written_columns import WrittenColumns

TABLE = stores.timestamped_key_value("table")
KEYS = [b"a", b"b", b"c"]
TIMES = [5, 0, 2**40]
SERDES: dict[str, tuple[Any, list[Any], bool]] = {
    "int64": (serdes.int64, [1, -(2**63), 7], True),
    "int32": (serdes.int32, [1, -(2**31), 7], True),
    "double": (serdes.double, [0.5, -0.0, 7.0], True),
    "string": (serdes.string, ["", "ü", "x" * 300], True),
    "bytes": (serdes.bytes, [b"", b"\0", b"x"], True),
    "automatic": (serdes.auto.bind("values"), [1, 2, 3], True),
    "json": (serdes.json, ["a", "b", "c"], False),
}


def store_of(value: Any) -> TimestampedKeyValueStore[bytes]:
    return TimestampedKeyValueStore(TABLE, Overlay(MemoryBackend()), serdes.bytes, value)


@pytest.mark.parametrize("name", SERDES)
def test_cells_in_columns_have_the_bytes_of_single_ones(name: str) -> None:
    serde, values, in_columns = SERDES[name]
    store, plain = store_of(serde), store_of(serde)
    save_cells(store, pl.Series(KEYS), pl.Series(values), pl.Series(TIMES))
    plain.save(dict(zip(KEYS, zip(values, TIMES, strict=True), strict=True)))
    written, expected = store.overlay.sorted_entries(), plain.overlay.sorted_entries()
    assert isinstance(written, WrittenColumns) is in_columns
    assert list(written) == list(expected)
    kind = StoreKind.TIMESTAMPED_KEY_VALUE
    assert changelog_rows(written, kind, 9).equals(changelog_rows(expected, kind, 9))
    found, times = load_cells(store, [b"", *KEYS])
    assert (list(found), times.to_list()) == ([None, *values], [None, *TIMES])


def test_cells_are_read_over_what_was_committed() -> None:
    store = store_of(serdes.int64)
    store.save({b"a": (1, 5), b"b": (2, 6)})
    store.overlay.committed.write(store.overlay.sorted_entries(), marker=b"1")  # type: ignore[attr-defined]
    store.overlay.clear()
    save_cells(store, pl.Series([b"b"]), pl.Series([3]), pl.Series([7]))
    found, times = load_cells(store, KEYS)
    assert (list(found), times.to_list()) == ([1, 3, None], [5, 7, None])


def test_a_value_that_its_serde_refuses_changes_nothing() -> None:
    store = store_of(serdes.int32)
    with pytest.raises(pl.exceptions.InvalidOperationError):
        save_cells(store, pl.Series([b"a"]), pl.Series([2**31]), pl.Series([7]))
    assert not len(store.overlay)


def test_a_cell_that_is_too_short_is_left_to_the_store() -> None:
    store = store_of(serdes.int64)
    store.overlay.put(b"a", b"short")
    with pytest.raises(CannotError):
        load_cells(store, [b"a"])
