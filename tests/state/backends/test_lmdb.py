"""What is special about LMDB: a map that must grow, a file that may be cut, keys that are too long for it."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import lmdb
import pytest

from millstream import failpoints
from millstream.durable import DiskFullError
from millstream.failpoints import InjectedCrash
from millstream.state.backends.lmdb import LmdbBackend, LmdbSupplier
from millstream.state.errors import DamagedStoreError, StoreDiskFullError

SMALL_MAP = LmdbSupplier(map_bytes=64 << 10)
ROWS = [(b"%06d" % n, b"x" * 200) for n in range(20_000)]

GROW = """
import pathlib, sys
from millstream.state.backends.lmdb import LmdbSupplier
with LmdbSupplier(map_bytes=65536).open(pathlib.Path(sys.argv[1])) as store:
    store.write([(b"%06d" % n, b"y" * 200) for n in range(20_000)], marker=b"grown")
"""


def test_scans_are_exact_for_every_pair_of_rows_and_bounds_around_a_long_key(tmp_path: Path) -> None:
    short = (b"river" * 102)[:509]  # the longest key that LMDB takes as it is
    tails = [
        b"",
        b"\0",
        b"\1",
        b"\1\1",
        b"\1\2",
        b"r",
        b"r" * 502,
        b"r" * 503,
        b"\xff" * 1004,
        b"\xff" * 1005,
    ]
    keys = sorted([short[:-1], *(short + tail for tail in tails), short[:-1] + b"~"])
    bounds = [None, *keys]
    with LmdbSupplier().open(tmp_path / "store") as store:
        for rows in combinations(keys, 2):
            store.write([(key, b"v" if key in rows else None) for key in keys], marker=b"")
            for start, end in product(bounds, bounds):
                expected = [
                    (key, b"v")
                    for key in rows
                    if (start is None or start <= key) and (end is None or key < end)
                ]
                assert expected == list(store.scan(start, end))
                assert expected[::-1] == list(store.scan_reverse(start, end))


def test_between_two_steps_of_a_write_the_marker_says_so(tmp_path: Path) -> None:
    with LmdbSupplier(step_rows=(10, 10)).open(tmp_path / "store") as store:
        store.write([(b"old", b"")], marker=b"v1")
        with failpoints.armed("state.step_written", skip=1), pytest.raises(InjectedCrash):
            store.write(ROWS[:35], marker=b"v2", drop=(b"o", b"p"), between=b"between")
        assert store.marker() == b"between"
        assert list(store.scan()) == ROWS[:20]
        store.write(ROWS[:35], marker=b"v2", drop=(b"o", b"p"), between=b"between")
        assert store.marker() == b"v2"
        assert list(store.scan()) == ROWS[:35]


def test_a_write_that_may_not_be_done_in_steps_is_atomic(tmp_path: Path) -> None:
    with LmdbSupplier(step_rows=(10, 10)).open(tmp_path / "store") as store:
        with failpoints.armed("state.step_written") as step:
            store.write(ROWS[:35], marker=b"v1")
        assert not step.fired


def test_in_steps_the_file_stays_small_however_many_keys_a_write_changes(tmp_path: Path) -> None:
    def size_after_writes(name: str, between: bytes | None) -> int:
        chance = random.Random(1)
        with LmdbSupplier().open(tmp_path / name) as store:
            store.bulk_load(ROWS, marker=b"", between=b"")
            loaded = store.size().bytes
            for _ in range(10):
                changed = sorted(chance.sample(range(len(ROWS)), len(ROWS) // 10))
                store.write([(ROWS[n][0], chance.randbytes(200)) for n in changed], b"", between=between)
            return 100 * store.size().bytes // loaded

    assert size_after_writes("in steps", b"between") < 125
    assert size_after_writes("at once", None) > 200


def test_the_map_grows_when_a_write_does_not_fit(tmp_path: Path) -> None:
    with SMALL_MAP.open(tmp_path / "store") as store:
        store.write(ROWS, marker=b"v1")
        assert store.marker() == b"v1"
        assert list(store.scan()) == ROWS


def test_a_write_that_needed_a_larger_map_is_applied_once(tmp_path: Path) -> None:
    with SMALL_MAP.open(tmp_path / "store") as store:
        long = [(b"k" * 2000 + b"%04d" % n, b"v") for n in range(500)]
        store.write(long, marker=b"v1")
        store.write([(key, None) for key, _ in long], marker=b"v2")
        assert list(store.scan()) == []


def test_a_map_that_another_process_made_larger_is_adopted(tmp_path: Path) -> None:
    with SMALL_MAP.open(tmp_path / "store") as store:
        store.write([], marker=b"v1")
        _run(GROW, tmp_path / "store")
        assert store.marker() == b"grown"
        assert store.get_many([b"000000", b"019999"]) == [b"y" * 200] * 2
        store.write([(b"000000", b"mine")], marker=b"v2")
        assert store.get_many([b"000000"]) == [b"mine"]


def test_a_map_that_cannot_grow_is_an_error_that_names_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SMALL_MAP.open(tmp_path / "store") as store:
        store.write([(b"a", b"1")], marker=b"v1")
        monkeypatch.setattr(store, "_env", _NoMoreRoom(store))
        with pytest.raises(Exception, match=r"needs a map of 131072 bytes .*spark.executor.pyspark.memory"):
            store.write(ROWS, marker=b"v2")
        monkeypatch.undo()
        assert store.marker() == b"v1"


class _NoMoreRoom:
    """An environment whose map cannot grow."""

    def __init__(self, store: LmdbBackend) -> None:
        self._env = store._env

    def __getattr__(self, name: str) -> object:
        return getattr(self._env, name)

    def set_mapsize(self, size: int) -> None:
        raise MemoryError(f"no {size} bytes")


def test_a_full_disk_is_named_and_nothing_of_the_write_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(txn: object, name: object) -> None:
        raise lmdb.Error(f"mdb_txn_commit: {os.strerror(errno.ENOSPC)}")

    with SMALL_MAP.open(tmp_path / "store") as store:
        store.write([(b"a", b"1")], marker=b"v1")
        monkeypatch.setattr(store, "_part", full)
        with pytest.raises(
            StoreDiskFullError, match=r"The disk is full: the store .* Remedy: free space"
        ) as named:
            store.write([(b"a", b"2")], marker=b"v2")
        assert isinstance(named.value, DiskFullError)
        assert (store.marker(), store.get_many([b"a"])) == (b"v1", [b"1"])


@pytest.mark.parametrize("kept", [1, 2, 3, 10, 100])
def test_a_file_that_was_cut_is_damage_and_not_the_end_of_the_process(tmp_path: Path, kept: int) -> None:
    with LmdbSupplier().open(tmp_path / "store") as store:
        store.write(ROWS, marker=b"v1")
    os.truncate(tmp_path / "store" / "data.mdb", kept * 4096)
    with pytest.raises(DamagedStoreError, match=r"is damaged .* Remedy: remove the folder"):
        LmdbSupplier().open(tmp_path / "store")


def test_a_file_whose_last_pages_were_freed_by_the_write_that_needed_them_is_whole(tmp_path: Path) -> None:
    zeros, river = b"\0" * 510, (b"river" * 103)[:511] + b"\0\0"
    many = [(b"many-%06d" % n, b"%d" % n * (n % 7)) for n in range(188)]
    with LmdbSupplier().open(tmp_path / "store") as store:
        store.write(many[88:], marker=b"v1")
        store.write([(zeros, b""), (river, b"")], marker=b"v2")
        store.write(many[:100], marker=b"v3")
        store.write([], marker=b"v4", drop=(b"", b"\xff"))
    with LmdbSupplier().open(tmp_path / "store") as store:
        assert (store.marker(), list(store.scan())) == (b"v4", [])


def test_a_file_of_something_else_is_damage(tmp_path: Path) -> None:
    LmdbSupplier().open(tmp_path / "store").close()
    (tmp_path / "store" / "data.mdb").write_bytes(b"not a tree" * 10_000)
    with pytest.raises(DamagedStoreError):
        LmdbSupplier().open(tmp_path / "store")


def test_space_is_used_again(tmp_path: Path) -> None:
    sizes = []
    with LmdbSupplier().open(tmp_path / "store") as store:
        for number in range(60):
            store.write([(key, b"%d" % number * 20) for key, _ in ROWS[:2000]], marker=b"%d" % number)
            assert next(store.scan()) is not None  # a scan that is never finished pins no page
            sizes.append(store.size().bytes)
    assert max(sizes[30:]) <= max(sizes[:30])


def _run(program: str, *arguments: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program, *map(str, arguments)], env=environment, check=True)


def test_a_write_that_drops_segments_and_does_not_fit_is_done_again_with_a_larger_map(tmp_path: Path) -> None:
    def rows(segment: bytes) -> list[tuple[bytes, bytes | None]]:
        return [(segment + key, value) for key, value in ROWS[:1000]]

    with SMALL_MAP.open(tmp_path / "store", segment_bytes=2) as store:
        store.write(rows(b"00") + rows(b"01"), marker=b"v1")
        store.write(rows(b"02") + rows(b"03") + rows(b"04"), marker=b"v2", drop=(b"00", b"02"))
        assert rows(b"02") + rows(b"03") + rows(b"04") == list(store.scan())
        assert store.marker() == b"v2"


def test_the_pages_of_dropped_segments_are_used_again(tmp_path: Path) -> None:
    with SMALL_MAP.open(tmp_path / "store", segment_bytes=8) as store:
        for number in range(30):
            drop = (b"", b"%08d" % (number - 1)) if number else None
            store.write([(b"%08d" % number + key, value) for key, value in ROWS[:2000]], b"", drop=drop)
        assert store.size().approximate_entries == 4000
        assert store.size().bytes < 8 << 20  # all that was ever written is about 15 MB
