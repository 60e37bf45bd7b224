"""Typed stores on every backend answer as a plain dictionary does, in order of the keys' bytes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from millstream import serdes, stores
from millstream.errors import StoreError
from millstream.record import ValueAndTimestamp
from millstream.state.backends import NAMES, supplier
from millstream.state.backends.memory import MemoryBackend
from millstream.state.specs import StoreBuilder, StoreKind
from millstream.state.stores.factory import open_store
from millstream.state.stores.key_value import KeyValueStore, TimestampedKeyValueStore
from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.state.stores.overlay import Overlay

VALUES: dict[StoreKind, list[Any]] = {
    StoreKind.KEY_VALUE: [None, "", "x", "é"],
    StoreKind.TIMESTAMPED_KEY_VALUE: [
        None,
        ValueAndTimestamp("", 0),
        ValueAndTimestamp("x", 5),
        ValueAndTimestamp("é", 2**63 - 1),
    ],
}
"""What a store of each kind may be given."""

keys = st.text("\0aé\U0010ffff", max_size=3)
bounds = st.none() | keys
choices = st.integers(0, 3)


class StoreLikeADictionary(RuleBasedStateMachine):
    """A store of some kind on some backend, beside a dictionary."""

    kind: ClassVar[StoreKind]
    backend_name: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="stores-"))
        self.backend = supplier(self.backend_name).open(self.folder / "store")
        spec = StoreBuilder("stock", self.kind)
        store = open_store(spec, self.backend, serdes.string, serdes.string)
        assert isinstance(store, KeyValueStore)
        self.store: KeyValueStore[str, Any] = store
        self.committed: dict[str, Any] = {}
        self.model: dict[str, Any] = {}
        self.epoch = 0

    def teardown(self) -> None:
        self.backend.close()
        shutil.rmtree(self.folder)

    @rule(key=keys, choice=choices)
    def put(self, key: str, choice: int) -> None:
        value = VALUES[self.kind][choice]
        self.store.put(key, value)
        self._set(key, value)

    @rule(key=keys, choice=choices)
    def put_if_absent(self, key: str, choice: int) -> None:
        value = VALUES[self.kind][choice]
        assert self.model.get(key) == self.store.put_if_absent(key, value)
        if key not in self.model:
            self._set(key, value)

    @rule(entries=st.lists(st.tuples(keys, choices), max_size=5))
    def put_all(self, entries: list[tuple[str, int]]) -> None:
        self.store.put_all((key, VALUES[self.kind][choice]) for key, choice in entries)
        for key, choice in entries:
            self._set(key, VALUES[self.kind][choice])

    @rule(key=keys)
    def delete(self, key: str) -> None:
        assert self.model.pop(key, None) == self.store.delete(key)

    @rule(key=keys)
    def get(self, key: str) -> None:
        assert self.model.get(key) == self.store.get(key)

    @rule(start=bounds, end=bounds)
    def range(self, start: str | None, end: str | None) -> None:
        first = b"" if start is None else start.encode()
        expected = [
            (key, value)
            for key, value in self._pairs()
            if first <= key.encode() and (end is None or key.encode() <= end.encode())
        ]
        assert expected == drained(self.store.range(start, end))
        assert expected[::-1] == drained(self.store.reverse_range(start, end))

    @rule(prefix=st.binary(max_size=2) | keys.map(str.encode))
    def prefix_scan(self, prefix: bytes) -> None:
        expected = [(key, value) for key, value in self._pairs() if key.encode().startswith(prefix)]
        assert expected == drained(self.store.prefix_scan(prefix, serdes.bytes))

    @rule()
    def commit(self) -> None:
        self.epoch += 1
        self.backend.write(self.store.overlay.sorted_entries(), marker=b"%d" % self.epoch)
        self.store.overlay.clear()
        self.committed = dict(self.model)

    @rule()
    def abandon(self) -> None:
        self.store.overlay.clear()
        self.model = dict(self.committed)

    @invariant()
    def all(self) -> None:
        expected = self._pairs()
        assert expected == drained(self.store.all())
        assert expected[::-1] == drained(self.store.reverse_all())
        if self.backend_name == "rocksdb":  # which estimates
            assert self.store.approximate_num_entries() >= 0
        else:
            assert len(expected) == self.store.approximate_num_entries()

    def _set(self, key: str, value: Any) -> None:
        self.model.pop(key, None)
        if value is not None:
            self.model[key] = value

    def _pairs(self) -> list[tuple[str, Any]]:
        """The dictionary in order of the keys' bytes."""
        return sorted(self.model.items(), key=lambda pair: pair[0].encode())


def drained(pairs: KeyValueIterator[str, Any]) -> list[tuple[str, Any]]:
    """All that an iterator gives."""
    with pairs as opened:
        return list(opened)


@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.parametrize("kind", VALUES)
def test_a_store_answers_as_a_dictionary_does(kind: StoreKind, backend: str) -> None:
    class Machine(StoreLikeADictionary):
        pass

    Machine.kind, Machine.backend_name = kind, backend
    examples = settings(max_examples=30, stateful_step_count=20, deadline=None, print_blob=True)
    run_state_machine_as_test(Machine, settings=examples)


@pytest.fixture
def stock() -> KeyValueStore[str, int]:
    """Three committed pairs and a fourth that is not."""
    backend = MemoryBackend()
    store: KeyValueStore[str, int] = KeyValueStore(
        stores.key_value("stock"), Overlay(backend), serdes.string, serdes.int64
    )
    store.put_all([("a", 1), ("b", 2), ("c", 3)])
    backend.write(store.overlay.sorted_entries(), marker=b"1")
    store.overlay.clear()
    store.put("d", 4)
    return store


def test_an_iterator_is_a_context_manager_and_gives_nothing_after_its_end(
    stock: KeyValueStore[str, int],
) -> None:
    with stock.all() as pairs:
        assert next(pairs) == ("a", 1)
    assert list(pairs) == []
    pairs.close()


def test_an_iterator_sees_the_store_as_it_was(stock: KeyValueStore[str, int]) -> None:
    seen = []
    with stock.all() as pairs:
        for key, value in pairs:
            seen.append((key, value))
            stock.delete(key)
            stock.put(key * 2, value)
    assert seen == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    assert dict(stock.all()) == {"aa": 1, "bb": 2, "cc": 3, "dd": 4}


def test_a_range_whose_start_is_behind_its_end_is_empty(stock: KeyValueStore[str, int]) -> None:
    assert list(stock.range("c", "a")) == []
    assert list(stock.reverse_range("c", "a")) == []


def test_changing_an_object_after_it_was_put_changes_nothing_in_the_store() -> None:
    store: KeyValueStore[str, Any] = KeyValueStore(
        stores.key_value("lists"), Overlay(MemoryBackend()), serdes.string, serdes.json
    )
    words = ["to", "the"]
    store.put("k", words)
    words.append("river")
    assert store.get("k") == ["to", "the"]


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.get(None),
        lambda store: store.put(None, 1),
        lambda store: store.put_if_absent(None, 1),
        lambda store: store.put_all([("a", 1), (None, 2)]),
        lambda store: store.delete(None),
    ],
)
def test_a_key_that_is_none_is_refused_naming_the_store(stock: Any, use: Any) -> None:
    with pytest.raises(StoreError) as caught:
        use(stock)
    assert str(caught.value) == "store 'stock': the key is None, but every entry of a store needs a key"
    assert stock.approximate_num_entries() == 4


def test_bulk_calls_read_and_write_what_single_calls_do() -> None:
    store: TimestampedKeyValueStore[str] = TimestampedKeyValueStore(
        stores.timestamped_key_value("prices"), Overlay(MemoryBackend()), serdes.string, serdes.int64
    )
    store.save({b"a": (1, 5), b"b": (2, 6), b"c": None})
    assert store.get("a") == ValueAndTimestamp(1, 5)
    store.put("b", ValueAndTimestamp(3, 7))
    store.put("a", None)
    assert store.load(store.encode_keys(["a", "b", "c"])) == {b"a": None, b"b": (3, 7), b"c": None}
    assert store.load_committed([b"b", b"b"]) == {b"b": None}
