"""Session stores against a naive model, on every backend, over epochs and replays."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.state.stores.test_window_model import KEYS, bounds, keys, times, values
from tests.state.stores.worlds import StoreWorld

from millstream import Window, Windowed, serdes, stores

RETENTION = 100
INTERVAL = 40

lengths = st.integers(0, 60)


class SessionWorld(StoreWorld):
    """The model: values by (key, end, start) and the latest end that was put."""

    spec = stores.session(
        "sessions",
        retention_ms=RETENTION,
        segment_interval_ms=INTERVAL,
        key=serdes.bytes,
        value=serdes.bytes,
    )

    def new_model(self) -> None:
        self.rows: dict[tuple[bytes, int, int], bytes] = {}
        self.observed = -1

    def copy_of_model(self) -> Any:
        return dict(self.rows), self.observed

    def restore_model(self, saved: Any) -> None:
        rows, self.observed = saved
        self.rows = dict(rows)

    @rule(key=keys, value=values, start=times, length=lengths)
    def put(self, key: bytes, value: bytes | None, start: int, length: int) -> None:
        end = start + length
        self.each(lambda store: store.put(Windowed(key, Window(start, end)), value))
        self._put(key, value, start, end)

    @rule(writes=st.lists(st.tuples(keys, values, times, lengths), min_size=5, max_size=15))
    def put_many(self, writes: list[tuple[bytes, bytes | None, int, int]]) -> None:
        for write in writes:
            self.put(*write)

    @rule()
    def fetch_by_every_key(self) -> None:
        for key in KEYS:
            self.fetch(key)
            self.fetch_range(None, key)
            self.fetch_range(key, None)

    @rule(pick=st.integers(0, 100))
    def remove(self, pick: int) -> None:
        if self.rows:
            key, end, start = sorted(self.rows)[pick % len(self.rows)]
            self.each(lambda store: store.remove(Windowed(key, Window(start, end))))
            self._put(key, None, start, end)

    @rule(key=keys, start=times, length=lengths)
    def fetch_session(self, key: bytes, start: int, length: int) -> None:
        self._check_fetch(key, start, start + length)

    @rule(pick=st.integers(0, 100))
    def fetch_a_session_that_was_put(self, pick: int) -> None:
        if self.rows:
            key, end, start = sorted(self.rows)[pick % len(self.rows)]
            self._check_fetch(key, start, end)

    @rule(key=keys, earliest_end=times, latest_start=times)
    def find_sessions(self, key: bytes, earliest_end: int, latest_start: int) -> None:
        wanted = (earliest_end, latest_start)
        expected = sorted(self.found((key, key), *wanted), key=lambda pair: _bounds(pair[0])[::-1])
        self.expect(expected, lambda store: list(store.find_sessions(key, *wanted)))
        self.expect(expected[::-1], lambda store: list(store.backward_find_sessions(key, *wanted)))

    @rule(low=bounds, high=bounds, earliest_end=times, latest_start=times)
    def find_sessions_range(
        self, low: bytes | None, high: bytes | None, earliest_end: int, latest_start: int
    ) -> None:
        wanted = (earliest_end, latest_start)
        expected = self.found((low, high), *wanted)
        self.expect(expected, lambda store: list(store.find_sessions_range(low, high, *wanted)))
        self.expect(
            expected[::-1], lambda store: list(store.backward_find_sessions_range(low, high, *wanted))
        )

    @rule(wanted=st.sets(keys), earliest_end=times)
    def sessions_of(self, wanted: set[bytes], earliest_end: int) -> None:
        found = {
            key: [
                (session.window.end, session.window.start, value)
                for session, value in sorted(
                    self.found((key, key), earliest_end), key=lambda pair: _bounds(pair[0])[::-1]
                )
            ]
            for key in wanted
        }
        expected = {key: sessions for key, sessions in found.items() if sessions}
        self.expect(expected, lambda store: store.sessions_of(wanted, earliest_end))

    @rule(first=times, last=times)
    def find_ended(self, first: int, last: int) -> None:
        expected = [pair for pair in self.found() if first <= pair[0].window.end <= last]
        self.expect(expected, lambda store: list(store.find_ended(first, last)))

    @rule(key=keys)
    def fetch(self, key: bytes) -> None:
        expected = sorted(self.found((key, key)), key=lambda pair: _bounds(pair[0])[::-1])
        self.expect(expected, lambda store: list(store.fetch(key)))
        self.expect(expected[::-1], lambda store: list(store.backward_fetch(key)))

    @rule(low=bounds, high=bounds)
    def fetch_range(self, low: bytes | None, high: bytes | None) -> None:
        expected = self.found((low, high))
        self.expect(expected, lambda store: list(store.fetch_range(low, high)))
        self.expect(expected[::-1], lambda store: list(store.backward_fetch_range(low, high)))

    def found(
        self,
        between: tuple[bytes | None, bytes | None] = (None, None),
        earliest_end: int = 0,
        latest_start: int = 10**9,
    ) -> list[tuple[Windowed[bytes], bytes]]:
        low, high = between
        rows = [
            (key, end, start)
            for key, end, start in self.rows
            if end > self.observed - RETENTION
            and end >= earliest_end
            and start <= latest_start
            and (low is None or key >= low)
            and (high is None or key <= high)
        ]
        return [
            (Windowed(key, Window(start, end)), self.rows[key, end, start])
            for key, end, start in sorted(rows, key=self.order)
        ]

    def order(self, row: tuple[bytes, int, int]) -> Any:
        """By segment, then by the bytes of key, end and start."""
        key, end, start = row
        return end // INTERVAL, key + end.to_bytes(8, "big") + start.to_bytes(8, "big")

    def _put(self, key: bytes, value: bytes | None, start: int, end: int) -> None:
        self.observed = max(self.observed, end)
        if value is None:
            self.rows.pop((key, end, start), None)
        elif end > self.observed - RETENTION:
            self.rows[key, end, start] = value

    def _check_fetch(self, key: bytes, start: int, end: int) -> None:
        is_visible = end > self.observed - RETENTION
        expected = self.rows.get((key, end, start)) if is_visible else None
        self.expect(expected, lambda store: store.fetch_session(key, start, end))


class TimeOrderedSessionWorld(SessionWorld):
    spec = stores.session(
        "sessions",
        retention_ms=RETENTION,
        segment_interval_ms=INTERVAL,
        key=serdes.bytes,
        value=serdes.bytes,
        time_ordered=True,
    )

    def order(self, row: tuple[bytes, int, int]) -> Any:
        key, end, start = row
        return end, start, key


def _bounds(session: Windowed[bytes]) -> tuple[int, int]:
    return session.window.start, session.window.end


SETTINGS = settings(max_examples=25, stateful_step_count=40, deadline=None, print_blob=True)
TestSessions = SessionWorld.TestCase
TestSessionsByTime = TimeOrderedSessionWorld.TestCase
TestSessions.settings = TestSessionsByTime.settings = SETTINGS
