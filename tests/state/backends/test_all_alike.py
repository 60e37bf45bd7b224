"""Every backend against the memory one, and the memory one against a plain dictionary."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.state.backends import NAMES, Backend, Entry, KeyRange, supplier
from millstream.state.backends.key_ranges import disjoint
from millstream.state.backends.lmdb import LmdbSupplier

# Near each edge of the encodings: 509 and 511 bytes are LMDB's, 502 the chunk of a long key.
STEMS = [
    *(b"\0" * n for n in (0, 1, 2, 508, 509, 510, 511, 600, 1011, 1012)),
    *(b"\xff" * n for n in (1, 508, 509, 510)),
    *((b"river" * 2003)[:n] for n in (1, 500, 507, 508, 509, 510, 511, 512, 1010, 1011, 1012, 1513, 10_000)),
]
VALUES = [None, b"", b"1", b"\0", b"x" * 100, b"y" * 5000]


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """A key, small in print."""

    stem: int
    tail: bytes

    @property
    def bytes(self) -> bytes:
        return STEMS[self.stem] + self.tail


TAILS = [bytes(tail) for length in range(4) for tail in product(b"\0\1r\xff", repeat=length)]
keys = st.builds(Key, st.integers(0, len(STEMS) - 1), st.sampled_from(TAILS))
batches = st.dictionaries(keys, st.integers(0, len(VALUES) - 1), max_size=12)
bounds = st.none() | keys


# What is written here need not last: in memory the many syncs of new stores and snapshots cost nothing.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
FOLDER = SHARED_MEMORY if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 1 << 30 else None


class BackendsAlike(RuleBasedStateMachine):
    segment_bytes = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="alike-", dir=FOLDER))
        self.numbers = count()
        self.suppliers = {name: supplier(name) for name in NAMES} | {"lmdb": LmdbSupplier(step_rows=(2, 3))}
        self.paths = {name: self.folder / f"{name}-0" for name in NAMES}
        self.stores = {name: self._open(name) for name in NAMES}
        self.rows: dict[bytes, bytes] = {}
        self.marker: bytes | None = None

    def teardown(self) -> None:
        for store in self.stores.values():
            store.close()
        shutil.rmtree(self.folder)

    @rule(entries=batches, bulk=st.booleans())
    def write(self, entries: dict[Key, int], bulk: bool) -> None:
        batch = {key.bytes: VALUES[value] for key, value in entries.items()}
        self._apply(sorted(batch.items()), bulk=bulk)

    @rule(first=st.integers(0, 3000), number=st.sampled_from([100, 4500]), deleting=st.booleans())
    def write_many(self, first: int, number: int, deleting: bool) -> None:
        def value(n: int) -> bytes | None:
            return None if deleting and n % 3 else b"%d" % n * (n % 7)

        self._apply([(b"many-%06d" % n, value(n)) for n in range(first, first + number)], bulk=False)

    @rule(entries=batches, start=keys, end=keys, bulk=st.booleans())
    def drop_and_write(self, entries: dict[Key, int], start: Key, end: Key, bulk: bool) -> None:
        batch = {key.bytes: VALUES[value] for key, value in entries.items()}
        self._apply(sorted(batch.items()), bulk=bulk, drop=(start.bytes, end.bytes))

    @rule(end=keys)
    def drop_up_to(self, end: Key) -> None:
        self._apply([], bulk=False, drop=(b"", end.bytes))

    @rule(wanted=st.sets(keys, max_size=12))
    def get(self, wanted: set[Key]) -> None:
        ascending = sorted({*(key.bytes for key in wanted), *sorted(self.rows)[::97]})
        expected = [self.rows.get(key) for key in ascending]
        for name, store in self.stores.items():
            assert expected == store.get_many(ascending), name

    @rule(start=bounds, end=bounds)
    def scan(self, start: Key | None, end: Key | None) -> None:
        self._check_scans(start.bytes if start else None, end.bytes if end else None)

    @rule(picks=st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)))
    def scan_between_rows(self, picks: tuple[int, int]) -> None:
        for ordered in (sorted(self.rows), sorted(key for key in self.rows if len(key) > 500)):
            if ordered:
                self._check_scans(*(ordered[pick % len(ordered)] for pick in picks))

    @rule(picks=st.lists(st.integers(0, 10_000), max_size=12), width=st.sampled_from([1, 3, 200]))
    def scan_ranges(self, picks: list[int], width: int) -> None:
        ordered = sorted(self.rows)
        if not ordered:
            return
        places = [pick % len(ordered) for pick in picks]
        some = disjoint(
            (ordered[at], ordered[at + width] if at + width < len(ordered) else ordered[-1] + b"\0")
            for at in places
        )
        expected = [
            (key, self.rows[key]) for key in ordered if any(start <= key < end for start, end in some)
        ]
        for name, store in self.stores.items():
            assert expected == list(store.scan_ranges(some)), name

    @rule()
    def sync(self) -> None:
        for store in self.stores.values():
            store.sync()

    @rule()
    def reopen(self) -> None:
        for name, store in self.stores.items():
            store.close()
            self.stores[name] = self._open(name)

    @rule()
    def go_on_from_a_snapshot(self) -> None:
        number = next(self.numbers)
        for name, store in self.stores.items():
            snapshot, path = (
                self.folder / f"{name}-snapshot-{number}",
                self.folder / f"{name}-restored-{number}",
            )
            store.snapshot(snapshot)
            store.write([(b"after the snapshot", b"")], marker=b"lost")
            store.close()
            self.stores[name] = self.suppliers[name].restore(snapshot, path, segment_bytes=self.segment_bytes)
            self.paths[name] = path
        self._check_scans(None, None)

    @invariant()
    def markers_agree(self) -> None:
        for name, store in self.stores.items():
            assert self.marker == store.marker(), name

    def _open(self, name: str) -> Backend:
        return self.suppliers[name].open(self.paths[name], segment_bytes=self.segment_bytes)

    def _apply(self, entries: list[Entry], *, bulk: bool, drop: KeyRange | None = None) -> None:
        number = next(self.numbers)
        self.marker = b"%d" % number if entries else b""
        between = b"between" if number % 2 else None
        for store in self.stores.values():
            (store.bulk_load if bulk else store.write)(entries, self.marker, drop, between)
        if drop is not None:
            self.rows = {key: value for key, value in self.rows.items() if not drop[0] <= key < drop[1]}
        for key, value in entries:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value

    def _check_scans(self, start: bytes | None, end: bytes | None) -> None:
        expected = [
            (key, self.rows[key])
            for key in sorted(self.rows)
            if (start is None or start <= key) and (end is None or key < end)
        ]
        for name, store in self.stores.items():
            assert expected == list(store.scan(start, end)), name
            assert expected[::-1] == list(store.scan_reverse(start, end)), name


class SegmentedBackendsAlike(BackendsAlike):
    """The same, with the first bytes of keys as their segment: some keys are too short to have one."""

    segment_bytes = 2


SETTINGS = settings(max_examples=30, stateful_step_count=20, deadline=None, print_blob=True)
TestBackendsAlike = BackendsAlike.TestCase
TestBackendsAlike.settings = SETTINGS
TestSegmentedBackendsAlike = SegmentedBackendsAlike.TestCase
TestSegmentedBackendsAlike.settings = SETTINGS
