"""Time-ordered buffers and list-valued stores against naive models, on every backend."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.state.stores.test_window_model import bounds, keys, values
from tests.state.stores.worlds import StoreWorld

from millstream import Buffered, serdes, stores

times = st.integers(0, 40)
headers = st.sampled_from([(), (("trace", b"7"),), (("a", None), ("a", b""))])


Place = tuple[int, bytes, int]


def in_order(places: Iterable[Place]) -> list[Place]:
    """By time, then by the bytes of key and number, as rows are."""
    return sorted(places, key=lambda place: (place[0], place[1] + place[2].to_bytes(4, "big")))


class BufferWorld(StoreWorld):
    """The model: records by (time, key, number)."""

    spec = stores.time_ordered_buffer("waiting", key=serdes.bytes, value=serdes.bytes)

    def new_model(self) -> None:
        self.records: dict[Place, Buffered[bytes, bytes]] = {}
        self.number = 0

    def copy_of_model(self) -> Any:
        return dict(self.records), self.number

    def restore_model(self, saved: Any) -> None:
        records, self.number = saved
        self.records = dict(records)

    @rule(key=keys, value=values, old=values, time=times, headers=headers)
    def put(self, key: bytes, value: bytes | None, old: bytes | None, time: int, headers: Any) -> None:
        record = Buffered(key, value, time + 1, time, headers, old)
        self.each(lambda store: store.put(record))
        if self.spec.retain_duplicates:
            self.number += 1
            self.records[time, key, self.number] = record
            return
        place = next((place for place in self.records if place[1] == key), (time, key, 0))
        first = self.records.get(place, record)
        self.records[place] = Buffered(key, value, time + 1, first.time, headers, first.old_value)

    @rule(time=times)
    def evict_until(self, time: int) -> None:
        expected = [self.records.pop(place) for place in in_order(self.records) if place[0] <= time]
        self.expect(expected, lambda store: store.evict_until(time))

    @rule(left=st.integers(0, 5))
    def evict_while(self, left: int) -> None:
        surplus = in_order(self.records)[: max(0, len(self.records) - left)]
        expected = [self.records.pop(place) for place in surplus]
        self.expect(expected, lambda store: list(store.evict_while(lambda: len(store) > left)))

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        if not self.spec.retain_duplicates:
            expected = next((record for record in self.records.values() if record.key == key), None)
            self.expect(expected, lambda store: store.get(key))

    @rule()
    def look(self) -> None:
        ordered = [self.records[place] for place in in_order(self.records)]
        self.expect(ordered, lambda store: list(store.all()))
        self.expect(len(ordered), len)
        self.expect(ordered[0].time if ordered else None, lambda store: store.earliest_time())
        self.expect(bool(ordered), lambda store: store.num_bytes > sum(len(record.key) for record in ordered))


class DuplicatesWorld(BufferWorld):
    spec = stores.time_ordered_buffer("waiting", key=serdes.bytes, value=serdes.bytes, retain_duplicates=True)


class ListWorld(StoreWorld):
    """The model: lists by key."""

    spec = stores.list_value("lists", key=serdes.bytes, value=serdes.bytes)

    def new_model(self) -> None:
        self.lists: dict[bytes, list[bytes]] = {}

    def copy_of_model(self) -> Any:
        return {key: list(values) for key, values in self.lists.items()}

    def restore_model(self, saved: Any) -> None:
        self.lists = {key: list(values) for key, values in saved.items()}

    @rule(key=keys, value=values)
    def put(self, key: bytes, value: bytes | None) -> None:
        self.each(lambda store: store.put(key, value))
        if value is None:
            self.lists.pop(key, None)
        else:
            self.lists.setdefault(key, []).append(value)

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        self.expect(self.lists.get(key, []), lambda store: store.get(key))

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        self.expect(self.lists.pop(key, []), lambda store: store.delete(key))

    @rule(low=bounds, high=bounds)
    def look(self, low: bytes | None, high: bytes | None) -> None:
        pairs = [(key, value) for key in sorted(self.lists) for value in self.lists[key]]
        self.expect(pairs, lambda store: list(store.all()))
        between = [
            (key, value)
            for key, value in pairs
            if (low is None or key >= low) and (high is None or key <= high)
        ]
        self.expect(between, lambda store: list(store.range(low, high)))


SETTINGS = settings(max_examples=25, stateful_step_count=40, deadline=None, print_blob=True)
TestBuffers = BufferWorld.TestCase
TestBuffersWithDuplicates = DuplicatesWorld.TestCase
TestLists = ListWorld.TestCase
TestBuffers.settings = TestBuffersWithDuplicates.settings = TestLists.settings = SETTINGS
