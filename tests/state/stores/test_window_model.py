"""Window stores of each shape against a naive model, on every backend, over epochs and replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.state.stores.worlds import StoreWorld

from millstream import ValueAndTimestamp, Window, Windowed, serdes, stores

SIZE = 10
RETENTION = 100
INTERVAL = 40
MAX = 2**63 - 1

# Keys have no length in front of them: some begin with another one, and go on like a time.
KEYS = [b"a", b"a" + bytes(13), b"a" + (50).to_bytes(8, "big"), b"", b"\xff", b"long" * 200]
keys = st.sampled_from(KEYS)
times = st.sampled_from([0, 49, 50, 51]) | st.integers(0, 160) | st.integers(0, 400)
values = st.none() | st.sampled_from([b"", b"1", b"22"])
bounds = st.none() | keys


class WindowWorld(StoreWorld):
    """The model: rows by (key, start, number) and the latest start that was put."""

    spec = stores.window(
        "windows",
        window_size_ms=SIZE,
        retention_ms=RETENTION,
        segment_interval_ms=INTERVAL,
        key=serdes.bytes,
        value=serdes.bytes,
    )

    def new_model(self) -> None:
        self.rows: dict[tuple[bytes, int, int], bytes] = {}
        self.observed = -1
        self.number = 0

    def copy_of_model(self) -> Any:
        return dict(self.rows), self.observed, self.number

    def restore_model(self, saved: Any) -> None:
        rows, self.observed, self.number = saved
        self.rows = dict(rows)

    @rule(key=keys, value=values, start=times)
    def put(self, key: bytes, value: bytes | None, start: int) -> None:
        self.each(lambda store: store.put(key, value, start))
        self.put_in_model(key, value, start)

    def put_in_model(self, key: bytes, value: bytes | None, start: int) -> None:
        if self.spec.retain_duplicates:
            if value is None:
                return
            self.number += 1
        self.observed = max(self.observed, start)
        if value is None:
            self.rows.pop((key, start, self.number), None)
        elif start > self.observed - RETENTION:
            self.rows[key, start, self.number] = value

    @rule(writes=st.lists(st.tuples(keys, values, times), min_size=5, max_size=15))
    def put_many(self, writes: list[tuple[bytes, bytes | None, int]]) -> None:
        for write in writes:
            self.put(*write)

    @rule()
    def fetch_by_every_key(self) -> None:
        for key in KEYS:
            self.fetch(key, 0, MAX)
            self.fetch_range(None, key, 0, MAX)
            self.fetch_range(key, None, 0, MAX)

    @rule(key=keys, start=times)
    def fetch_one(self, key: bytes, start: int) -> None:
        found = self.visible(lambda k, s: k == key and s == start)
        self.expect(found[0][3] if found else None, lambda store: store.fetch(key, start))

    @rule(key=keys, first=times, last=times)
    def fetch(self, key: bytes, first: int, last: int) -> None:
        rows = self.visible(lambda k, s: k == key and first <= s <= last)
        expected = [(start, value) for _, start, _, value in sorted(rows, key=lambda row: row[1:3])]
        self.expect(expected, lambda store: list(store.fetch(key, first, last)))
        self.expect(expected[::-1], lambda store: list(store.backward_fetch(key, first, last)))

    @rule(low=bounds, high=bounds, first=times, last=times)
    def fetch_range(self, low: bytes | None, high: bytes | None, first: int, last: int) -> None:
        expected = self.windowed(
            lambda key, start: (
                (low is None or key >= low) and (high is None or key <= high) and first <= start <= last
            )
        )
        self.expect(expected, lambda store: list(store.fetch_range(low, high, first, last)))
        self.expect(expected[::-1], lambda store: list(store.backward_fetch_range(low, high, first, last)))

    @rule(first=times, last=times)
    def fetch_all(self, first: int, last: int) -> None:
        expected = self.windowed(lambda _, start: first <= start <= last)
        self.expect(expected, lambda store: list(store.fetch_all(first, last)))
        self.expect(expected[::-1], lambda store: list(store.backward_fetch_all(first, last)))

    @rule()
    def all(self) -> None:
        expected = self.windowed(lambda _key, _start: True)
        self.expect(expected, lambda store: list(store.all()))
        self.expect(expected[::-1], lambda store: list(store.backward_all()))

    @rule(key=keys, start=times)
    def an_iterator_sees_the_store_as_it_was(self, key: bytes, start: int) -> None:
        expected = self.windowed(lambda _key, _start: True)
        opened = [store.all() for store in self.stores.values()]
        self.put(key, b"later", start)
        for iterator in opened:
            with iterator as windows:
                assert expected == self.seen(list(windows))

    def seen(self, answer: Any) -> Any:
        """An answer as the model gives it."""
        return answer

    def visible(self, wanted: Any) -> list[tuple[bytes, int, int, bytes]]:
        return [
            (key, start, number, value)
            for (key, start, number), value in self.rows.items()
            if start > self.observed - RETENTION and wanted(key, start)
        ]

    def windowed(self, wanted: Any) -> list[tuple[Windowed[bytes], bytes]]:
        rows = sorted(self.visible(wanted), key=self.order)
        return [(Windowed(key, Window(start, start + SIZE)), value) for key, start, _, value in rows]

    def order(self, row: tuple[bytes, int, int, bytes]) -> Any:
        """By segment, then by the bytes of key, start and number."""
        key, start, number, _ = row
        return start // INTERVAL, key + start.to_bytes(8, "big") + number.to_bytes(4, "big")


class DuplicatesWorld(WindowWorld):
    spec = stores.window(
        "windows",
        window_size_ms=SIZE,
        retention_ms=RETENTION,
        segment_interval_ms=INTERVAL,
        key=serdes.bytes,
        value=serdes.bytes,
        retain_duplicates=True,
    )


class TimeOrderedWorld(WindowWorld):
    spec = stores.window(
        "windows",
        window_size_ms=SIZE,
        retention_ms=RETENTION,
        segment_interval_ms=INTERVAL,
        key=serdes.bytes,
        value=serdes.bytes,
        time_ordered=True,
    )

    def order(self, row: tuple[bytes, int, int, bytes]) -> Any:
        key, start, number, _ = row
        return start, number, key


class TimeOrderedDuplicatesWorld(TimeOrderedWorld):
    spec = stores.window(
        "windows",
        window_size_ms=SIZE,
        retention_ms=RETENTION,
        segment_interval_ms=INTERVAL,
        key=serdes.bytes,
        value=serdes.bytes,
        retain_duplicates=True,
        time_ordered=True,
    )


class TimestampedWorld(WindowWorld):
    """Values with timestamps, written one by one and by the column; seen without them."""

    spec = stores.timestamped_window(
        "windows",
        window_size_ms=SIZE,
        retention_ms=RETENTION,
        segment_interval_ms=INTERVAL,
        key=serdes.bytes,
        value=serdes.bytes,
        time_ordered=True,
    )

    @rule(key=keys, value=values, start=times)
    def put(self, key: bytes, value: bytes | None, start: int) -> None:
        cell = None if value is None else ValueAndTimestamp(value, start + 1)
        self.each(lambda store: store.put(key, cell, start))
        self.put_in_model(key, value, start)

    @rule(cells=st.dictionaries(st.tuples(keys, times), values, min_size=3, max_size=12))
    def save(self, cells: dict[tuple[bytes, int], bytes | None]) -> None:
        def stamped(cell: tuple[bytes, int]) -> tuple[bytes, int] | None:
            value = cells[cell]
            return None if value is None else (value, cell[1] + 1)

        self.each(lambda store: store.save({cell_key(cell): stamped(cell) for cell in cells}))
        for (key, start), value in cells.items():
            self.put_in_model(key, value, start)

    @rule(wanted=st.lists(st.tuples(keys, times), max_size=6))
    def load(self, wanted: list[tuple[bytes, int]]) -> None:
        wanted = [*wanted, *((key, start) for key, start, _ in sorted(self.rows)[::3])]
        visible = {(key, start): value for key, start, _, value in self.visible(lambda _key, _start: True)}
        expected = {
            cell_key(cell): (visible[cell], cell[1] + 1) if cell in visible else None
            for cell in dict.fromkeys(wanted)
        }
        self.expect(expected, lambda store: store.load(map(cell_key, wanted)))

    def expect(self, expected: object, ask: Callable[[Any], object]) -> None:
        super().expect(expected, lambda store: self.seen(ask(store)))

    def seen(self, answer: Any) -> Any:
        return plain(answer)

    def order(self, row: tuple[bytes, int, int, bytes]) -> Any:
        key, start, number, _ = row
        return start, number, key


def cell_key(cell: tuple[bytes, int]) -> bytes:
    """The key's bytes and the window's start."""
    key, start = cell
    return key + start.to_bytes(8, "big")


def plain(answer: Any) -> Any:
    """An answer with the timestamps of its values out of sight, after a look at them."""
    if isinstance(answer, ValueAndTimestamp):
        return answer.value
    if isinstance(answer, list):
        for key, cell in answer:
            assert cell.timestamp == 1 + (key.window.start if isinstance(key, Windowed) else key)
        return [(key, cell.value) for key, cell in answer]
    return answer


SETTINGS = settings(max_examples=25, stateful_step_count=40, deadline=None, print_blob=True)
TestWindows = WindowWorld.TestCase
TestWindowsWithDuplicates = DuplicatesWorld.TestCase
TestWindowsByTime = TimeOrderedWorld.TestCase
TestWindowsByTimeWithDuplicates = TimeOrderedDuplicatesWorld.TestCase
TestTimestampedWindows = TimestampedWorld.TestCase
for case in (
    TestWindows,
    TestWindowsWithDuplicates,
    TestWindowsByTime,
    TestWindowsByTimeWithDuplicates,
    TestTimestampedWindows,
):
    case.settings = SETTINGS
