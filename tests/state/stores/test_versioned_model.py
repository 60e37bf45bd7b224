"""Versioned stores against a naive model, on every backend, over epochs and replays."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.state.stores.test_window_model import KEYS, times, values
from tests.state.stores.worlds import StoreWorld

from millstream import VersionedKeyValueStore, VersionedRecord, serdes, stores

RETENTION = 100
INTERVAL = 30

keys = st.sampled_from(KEYS[:3])


class VersionedWorld(StoreWorld):
    """The model: all versions of a key that were ever kept, by time, and the latest time."""

    spec = stores.versioned_key_value(
        "versions",
        history_retention_ms=RETENTION,
        segment_interval_ms=INTERVAL,
        key=serdes.bytes,
        value=serdes.bytes,
    )

    def new_model(self) -> None:
        self.versions: dict[bytes, dict[int, bytes | None]] = {}
        self.observed = -1

    def copy_of_model(self) -> Any:
        return {key: dict(versions) for key, versions in self.versions.items()}, self.observed

    def restore_model(self, saved: Any) -> None:
        versions, self.observed = saved
        self.versions = {key: dict(kept) for key, kept in versions.items()}

    @rule(key=keys, value=values, time=times)
    def put(self, key: bytes, value: bytes | None, time: int) -> None:
        expected = self._put(key, value, time)
        assert [expected] * len(self.stores) == self.each(lambda store: store.put(key, value, time))

    @rule(writes=st.lists(st.tuples(keys, values, times), min_size=5, max_size=15))
    def put_many(self, writes: list[tuple[bytes, bytes | None, int]]) -> None:
        for write in writes:
            self.put(*write)

    @rule()
    def look_at_every_time(self) -> None:
        for key in KEYS[:3]:
            self.all_versions(key, 0, 500)
            for time in self.versions.get(key, ()):
                self.get_as_of(key, time)

    @rule(key=keys, value=values, back=st.integers(0, 130))
    def put_around_the_end_of_history(self, key: bytes, value: bytes | None, back: int) -> None:
        self.put(key, value, max(0, self.observed - back))

    @rule(key=keys, time=times)
    def delete(self, key: bytes, time: int) -> None:
        valid = self._as_of(key, time)
        expected = None if self._put(key, None, time) == VersionedKeyValueStore.NOT_PUT else valid
        assert [expected] * len(self.stores) == self.each(lambda store: store.delete(key, time))

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        self.expect(self._latest(key), lambda store: store.get(key))

    @rule(key=keys, time=times)
    def get_as_of(self, key: bytes, time: int) -> None:
        self.expect(self._as_of(key, time), lambda store: store.get(key, time))

    @rule(key=keys, first=times, last=times)
    def all_versions(self, key: bytes, first: int, last: int) -> None:
        horizon = max(first, self.observed - RETENTION)
        expected = [
            record
            for record in self._records(key)
            if record.timestamp <= last and (record.valid_to is None or record.valid_to > horizon)
        ]
        self.expect(expected, lambda store: store.versions(key, first, last))

    @rule()
    def all(self) -> None:
        latest = {key: self._latest(key) for key in sorted(self.versions)}
        expected = [(key, record) for key, record in latest.items() if record is not None]
        self.expect(expected, lambda store: list(store.all()))

    def _put(self, key: bytes, value: bytes | None, time: int) -> int:
        if time < self.observed - RETENTION:
            return VersionedKeyValueStore.NOT_PUT
        self.observed = max(self.observed, time)
        versions = self.versions.setdefault(key, {})
        versions[time] = value
        return min(
            (later for later in versions if later > time), default=VersionedKeyValueStore.VALID_TO_UNDEFINED
        )

    def _records(self, key: bytes) -> list[VersionedRecord[bytes]]:
        versions = sorted(self.versions.get(key, {}).items())
        ends: list[int | None] = [*(time for time, _ in versions[1:]), None]
        ends = ends[: len(versions)]
        return [
            VersionedRecord(value, time, end)
            for (time, value), end in zip(versions, ends, strict=True)
            if value is not None
        ]

    def _latest(self, key: bytes) -> VersionedRecord[bytes] | None:
        return next((record for record in self._records(key) if record.valid_to is None), None)

    def _as_of(self, key: bytes, time: int) -> VersionedRecord[bytes] | None:
        latest = self._latest(key)
        if latest is not None and latest.timestamp <= time:
            return latest
        if time < self.observed - RETENTION:
            return None
        return next(
            (
                r
                for r in self._records(key)
                if r.timestamp <= time and (r.valid_to is None or time < r.valid_to)
            ),
            None,
        )


TestVersions = VersionedWorld.TestCase
TestVersions.settings = settings(max_examples=60, stateful_step_count=50, deadline=None, print_blob=True)
