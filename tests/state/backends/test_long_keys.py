"""Long keys in tables of short ones: with keys of at most 12 bytes, so that every edge is near."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from millstream.state.backends.api import Row
from millstream.state.backends.key_encoding import (
    decode_key,
    decode_rows,
    encode_entries,
    encode_key,
    encode_keys,
)
from millstream.state.backends.long_keys import LongKeyTree, short_key_bytes

MOST = 12
SHORT = short_key_bytes(MOST)

keys = st.lists(st.sampled_from(b"\0\0\1\xff"), max_size=30).map(bytes)


class SmallTable:
    """A sorted table that refuses what LMDB refuses."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def get(self, key: bytes, /) -> bytes | None:
        assert 1 <= len(key) <= MOST
        return self.rows.get(key)

    def put(self, key: bytes, value: bytes, /) -> None:
        assert 1 <= len(key) <= MOST
        self.rows[key] = value

    def delete(self, key: bytes, /) -> None:
        self.rows.pop(key, None)

    def cursor(self) -> SmallCursor:
        return SmallCursor(sorted(self.rows.items()))


class SmallCursor:
    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.at = 0

    def set_range(self, key: bytes, /) -> bool:
        self.at = bisect_left(self.rows, (key, b""))
        return self._is_there()

    def last(self) -> bool:
        self.at = len(self.rows) - 1
        return self._is_there()

    def next(self) -> bool:
        self.at += 1
        return self._is_there()

    def prev(self) -> bool:
        self.at -= 1
        return self._is_there()

    def item(self) -> Row:
        return self.rows[self.at]

    def _is_there(self) -> bool:
        return 0 <= self.at < len(self.rows)


class SmallStore:
    """What the LMDB backend does with a tree, in a few lines."""

    def __init__(self) -> None:
        self.root, self.nodes = SmallTable(), SmallTable()
        self.tree = LongKeyTree(self.root, self.nodes, MOST)

    def put(self, key: bytes, value: bytes) -> None:
        if len(key) <= SHORT:
            self.root.put(encode_key(key), value)
        else:
            self.tree.put(key, value)

    def get(self, key: bytes) -> bytes | None:
        return self.root.get(encode_key(key)) if len(key) <= SHORT else self.tree.get(key)

    def delete(self, key: bytes) -> None:
        if len(key) <= SHORT:
            self.root.delete(encode_key(key))
        else:
            self.tree.delete(key)


@given(
    written=st.dictionaries(keys, st.binary(max_size=2)),
    deleted=st.sets(keys),
    start=keys,
    end=st.none() | keys,
)
def test_keys_of_any_length_are_found_and_walked_in_bytewise_order(
    written: dict[bytes, bytes], deleted: set[bytes], start: bytes, end: bytes | None
) -> None:
    store = SmallStore()
    for key, value in written.items():
        store.put(key, value)
    for key in [*deleted, *sorted(written)[::3]]:
        store.delete(key)
        written.pop(key, None)
    expected = sorted(written.items())
    assert [store.get(key) for key in sorted(deleted)] == [None] * len(deleted)
    assert [store.get(key) for key, _ in expected] == [value for _, value in expected]
    assert [row for row in expected if row[0] >= start] == list(store.tree.ascend(start))
    below = [row for row in expected if end is None or row[0] < end]
    assert below[::-1] == list(store.tree.descend(end))


@given(written=st.sets(keys), order=st.randoms(use_true_random=False))
def test_when_all_keys_are_deleted_nothing_is_left_but_the_counter(
    written: set[bytes], order: st.DrawFn
) -> None:
    store = SmallStore()
    for key in written:
        store.put(key, b"")
    for key in sorted(written, key=lambda _: order.random()):  # type: ignore[attr-defined]
        store.delete(key)
    assert store.root.rows == {}
    assert len(store.nodes.rows) == any(len(key) > SHORT for key in written)


@given(first=keys, second=keys)
def test_encoding_keeps_keys_apart_and_in_order(first: bytes, second: bytes) -> None:
    assert (encode_key(first) < encode_key(second)) == (first < second)
    assert (encode_key(first) == encode_key(second)) == (first == second)
    assert encode_key(first) != b""
    assert decode_key(encode_key(first)) == first


@given(found=st.sets(keys))
def test_a_sorted_batch_is_encoded_and_decoded_as_each_of_its_keys(found: set[bytes]) -> None:
    ascending = sorted(found)
    encoded = [encode_key(key) for key in ascending]
    rows = [(key, b"") for key in ascending]
    assert encoded == encode_keys(ascending)
    assert [(key, b"") for key in encoded] == encode_entries(list(rows))
    assert rows == decode_rows([(key, b"") for key in encoded])
    assert rows[::-1] == decode_rows([(key, b"") for key in encoded][::-1])
