"""The bytes of every kind of store, pinned: a store that was written once must be readable for ever."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import Buffered, ValueAndTimestamp, Window, Windowed, serdes, stores
from millstream.state.backends.memory import MemoryBackend
from millstream.state.specs import StoreBuilder
from millstream.state.stores.factory import open_store
from millstream.state.stores.segments import apply_changes
from millstream.state.stores.store import changes_of, epoch_committed

SERDES: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
TIMES: dict[str, Any] = {"retention_ms": 600_000, **SERDES}
WINDOWS: dict[str, Any] = {"window_size_ms": 10, **TIMES}
NOTE = "01 00000000000493e0"  # format 1, segments of 300,000 ms


def rows_of(store: Any) -> list[tuple[str, str]]:
    """What the store has written, in hexadecimal."""
    return [(key.hex(), "deleted" if value is None else value.hex()) for key, value in changes_of(store)]


def spaced(*rows: tuple[str, str]) -> list[tuple[str, str]]:
    """Rows as they are written below, for people."""
    return [(key.replace(" ", ""), value.replace(" ", "")) for key, value in rows]


def opened(spec: StoreBuilder) -> Any:
    return open_store(spec, MemoryBackend(), spec.key, spec.value)


def test_a_window_is_segment_key_start_and_number_as_in_kafka() -> None:
    store = opened(stores.window("s", **WINDOWS))
    store.put("k", "v", 300_007)
    assert rows_of(store) == spaced(
        ("", f"{NOTE} 00000000000493e7 0000000000000000 00000000"),
        ("0000000000000001 6b 00000000000493e7 00000000", "76"),
    )


def test_duplicates_are_numbered() -> None:
    store = opened(stores.window("s", retain_duplicates=True, **WINDOWS))
    store.put("k", "v", 7)
    store.put("k", "w", 7)
    assert rows_of(store) == spaced(
        ("", f"{NOTE} 0000000000000007 0000000000000000 00000002"),
        ("0000000000000000 6b 0000000000000007 00000001", "76"),
        ("0000000000000000 6b 0000000000000007 00000002", "77"),
    )


def test_windows_by_time_have_an_index_by_key() -> None:
    store = opened(stores.window("s", time_ordered=True, **WINDOWS))
    store.put("k", "v", 7)
    assert rows_of(store) == spaced(
        ("", f"{NOTE} 0000000000000007 0000000000000000 00000000"),
        ("0000000000000000 00 0000000000000007 00000000 6b", "76"),
        ("0000000000000000 01 6b 0000000000000007 00000000", ""),
    )


def test_a_timestamped_window_has_its_timestamp_before_the_value() -> None:
    store = opened(stores.timestamped_window("s", **WINDOWS))
    store.put("k", ValueAndTimestamp("v", 9), 7)
    assert rows_of(store)[1:] == spaced(
        ("0000000000000000 6b 0000000000000007 00000000", "0000000000000009 76")
    )


def test_a_session_is_segment_key_end_and_start_as_in_kafka() -> None:
    store = opened(stores.session("s", **TIMES))
    store.put(Windowed("k", Window(5, 300_009)), "v")
    assert rows_of(store) == spaced(
        ("", f"{NOTE} 00000000000493e9 0000000000000000 00000000"),
        ("0000000000000001 6b 00000000000493e9 0000000000000005", "76"),
    )


def test_sessions_by_time_have_an_index_by_key() -> None:
    store = opened(stores.session("s", time_ordered=True, **TIMES))
    store.put(Windowed("k", Window(5, 9)), "v")
    assert rows_of(store)[1:] == spaced(
        ("0000000000000000 00 0000000000000009 0000000000000005 6b", "76"),
        ("0000000000000000 01 6b 0000000000000009 0000000000000005", ""),
    )


def test_versions_are_in_the_segment_in_which_they_were_replaced() -> None:
    spec = stores.versioned_key_value("s", history_retention_ms=60_000, **SERDES)
    store = opened(spec)
    store.put("k", "v", 5)
    store.put("k", None, 7)
    store.put("k", "w", 20_001)
    store.put("gone", None, 20_002)
    assert rows_of(store) == spaced(
        ("", "01 0000000000004e20 0000000000004e22 0000000000000000 00000000"),
        ("0000000000000000 00 6b 0000000000000005", "0000000000000007 01 76"),
        ("0000000000000000 01 6b", "deleted"),
        ("0000000000000001 00 6b 0000000000000007", "0000000000004e21 00"),
        ("0000000000000001 01 676f6e65", "0000000000004e22"),
        ("ffffffffffffffff 6b", "0000000000004e21 77"),
    )


def test_a_list_has_the_bytes_of_kafkas_list_serde() -> None:
    store = opened(stores.list_value("s", **SERDES))
    store.put("k", "v")
    store.put("k", "")
    assert rows_of(store) == spaced(("6b", "01 00000002 00000001 76 00000000"))


def test_a_buffered_record_is_found_by_time_and_by_key() -> None:
    store = opened(stores.time_ordered_buffer("s", **SERDES))
    store.put(Buffered("k", "v", timestamp=9, time=7, headers=(("h", b"x"), ("n", None)), old_value="o"))
    record = (
        "0000000000000009 03 00000002 00000001 68 00000001 78 00000001 6e ffffffff 00000001 76 00000001 6f"
    )
    size = 14 + len(record.replace(" ", "")) // 2
    assert rows_of(store) == spaced(
        ("", f"0000000000000001 {size:016x} 00000000"),
        ("00 0000000000000007 6b 00000000", record),
        ("01 6b", "0000000000000007"),
    )


def test_buffered_duplicates_are_numbered() -> None:
    store = opened(stores.time_ordered_buffer("s", retain_duplicates=True, **SERDES))
    store.put(Buffered("k", None, timestamp=9, time=7))
    assert rows_of(store)[1:] == spaced(("00 0000000000000007 6b 00000001", "0000000000000009 00 00000000"))


@pytest.mark.parametrize("retention_ms", [600_000, 60_000, 6_000_000])
def test_a_store_keeps_its_segments_when_its_retention_is_changed(retention_ms: int) -> None:
    backend = MemoryBackend()
    spec = stores.window("s", **WINDOWS)
    store: Any = open_store(spec, backend, spec.key, spec.value)
    for start in (0, 250_000, 500_000):
        store.put("k", str(start), start)
    apply_changes(backend, changes_of(store), b"1", segmented=True)
    epoch_committed(store)

    changed = stores.window("s", **{**WINDOWS, "retention_ms": retention_ms})
    again: Any = open_store(changed, backend, changed.key, changed.value)
    visible = [start for start in (0, 250_000, 500_000) if start > 500_000 - retention_ms]
    assert visible == [start for start, _ in again.fetch("k", 0, 10**9)]
