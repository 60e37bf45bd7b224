"""An overlay over a backend is one store: whatever is read is what a plain dictionary says."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.state.backends.key_ranges import after_prefix, disjoint
from millstream.state.backends.memory import MemoryBackend
from millstream.state.stores.overlay import Overlay
from millstream.state.stores.written_columns import WrittenColumns

Model = dict[bytes, bytes]

keys = st.lists(st.sampled_from(b"\0\1a\xfe\xff"), max_size=3).map(bytes)
values = st.none() | st.sampled_from([b"", b"1", b"22"])
batches = st.dictionaries(keys, values, max_size=6)
bounds = st.none() | keys


def between(model: Model, start: bytes | None, end: bytes | None) -> list[tuple[bytes, bytes]]:
    """What a scan of the model gives."""
    return [
        (key, model[key])
        for key in sorted(model)
        if (start is None or start <= key) and (end is None or key < end)
    ]


def written(model: Model, entries: dict[bytes, bytes | None]) -> Model:
    """The model after a batch."""
    after = {**model, **entries}
    return {key: value for key, value in after.items() if value is not None}


class OverlayLikeADictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.backend = MemoryBackend()
        self.overlay = Overlay(self.backend)
        self.committed: Model = {}
        self.model: Model = {}
        self.epoch = 0

    @rule(key=keys, value=values)
    def put(self, key: bytes, value: bytes | None) -> None:
        self.overlay.put(key, value)
        self.model = written(self.model, {key: value})

    @rule(entries=batches)
    def put_many(self, entries: dict[bytes, bytes | None]) -> None:
        self.overlay.put_many(entries.items())
        self.model = written(self.model, entries)

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        assert self.model.get(key) == self.overlay.get(key)

    @rule(wanted=st.lists(keys, max_size=8))
    def get_many(self, wanted: list[bytes]) -> None:
        assert {key: self.model.get(key) for key in wanted} == self.overlay.get_many(wanted)

    @rule(entries=st.dictionaries(keys, st.sampled_from([b"", b"1", b"22"]), max_size=8))
    def put_columns(self, entries: dict[bytes, bytes]) -> None:
        rows = sorted(entries.items())
        columns = ([key for key, _ in rows], [value for _, value in rows])
        written, new = (pa.array(column, pa.binary()) for column in columns)
        self.overlay.put_columns(WrittenColumns(written, new, pa.array([0] * len(rows), pa.int64())))
        self.model.update(entries)

    @rule(wanted=st.sets(keys, max_size=8))
    def get_ascending(self, wanted: set[bytes]) -> None:
        ordered = sorted(wanted)
        assert [self.model.get(key) for key in ordered] == self.overlay.get_ascending(ordered)

    @rule(start=bounds, end=bounds)
    def scan(self, start: bytes | None, end: bytes | None) -> None:
        expected = between(self.model, start, end)
        assert expected == list(self.overlay.scan(start, end))
        assert expected[::-1] == list(self.overlay.scan_reverse(start, end))

    @rule(ranges=st.lists(st.tuples(keys, keys), max_size=6))
    def scan_ranges(self, ranges: list[tuple[bytes, bytes]]) -> None:
        some = disjoint([pair for pair in ranges if pair[0] < pair[1]])
        expected = [entry for start, end in some for entry in between(self.model, start, end)]
        assert expected == list(self.overlay.scan_ranges(some))

    @rule(start=keys, end=keys)
    def first(self, start: bytes, end: bytes) -> None:
        assert next(iter(between(self.model, start, end)), None) == self.overlay.first(start, end)

    @rule(prefix=keys)
    def scan_prefix(self, prefix: bytes) -> None:
        expected = [(key, self.model[key]) for key in sorted(self.model) if key.startswith(prefix)]
        assert expected == list(self.overlay.scan(prefix, after_prefix(prefix)))

    @rule(start=bounds, end=bounds, entries=batches, backwards=st.booleans())
    def write_while_scanning(
        self, start: bytes | None, end: bytes | None, entries: dict[bytes, bytes | None], backwards: bool
    ) -> None:
        """Delete each key that is met, and write others: the scan goes on as if nothing had happened."""
        expected = between(self.model, start, end)
        scan = self.overlay.scan_reverse if backwards else self.overlay.scan
        seen = []
        for key, value in scan(start, end):
            seen.append((key, value))
            self.put(key, None)
            self.put_many(entries)
        assert (expected[::-1] if backwards else expected) == seen

    @rule()
    def commit(self) -> None:
        self.epoch += 1
        self.backend.write(self.overlay.sorted_entries(), marker=b"%d" % self.epoch)
        self.overlay.clear()
        self.committed = dict(self.model)

    @rule()
    def abandon(self) -> None:
        self.overlay.clear()
        self.model = dict(self.committed)

    @invariant()
    def nothing_is_written_before_the_commit(self) -> None:
        assert between(self.committed, None, None) == list(self.backend.scan())

    @invariant()
    def what_was_written_leads_from_the_committed_to_the_model(self) -> None:
        entries = self.overlay.sorted_entries()
        assert sorted(dict(entries)) == [key for key, _ in entries]
        assert written(self.committed, dict(entries)) == self.model
        assert len(entries) == len(self.overlay)


TestAnOverlayOverABackendIsADictionary = OverlayLikeADictionary.TestCase
TestAnOverlayOverABackendIsADictionary.settings = settings(
    max_examples=100, stateful_step_count=25, deadline=None, print_blob=True
)


@given(st.sets(keys), keys)
def test_behind_a_prefix_comes_the_first_key_that_does_not_begin_with_it(
    found: set[bytes], prefix: bytes
) -> None:
    behind = after_prefix(prefix)
    for key in found:
        assert key.startswith(prefix) == (prefix <= key and (behind is None or key < behind))


def test_counting_does_not_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryBackend() as backend:
        backend.write([(b"%d" % number, b"v") for number in range(5)], marker=b"v1")
        monkeypatch.setattr(backend, "scan", None)
        overlay = Overlay(backend)
        assert overlay.approximate_count() == 5
        overlay.put_many([(b"0", None), (b"1", b"w"), (b"new", b"v"), (b"never", None)])
        assert overlay.approximate_count() == 5
        overlay.put(b"newer", b"v")
        assert overlay.approximate_count() == 6
