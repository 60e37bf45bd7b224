"""RocksDB's compaction, though a store is open for a moment per epoch: few files, and disk is given back."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from millstream.state.backends import rocksdb
from millstream.state.backends.rocksdb import RocksDbSupplier

EPOCHS = 300
KEYS = [b"%06d" % number for number in range(40_000)]
CHANGED = 1000
LEFT = 50


def test_files_and_disk_stay_bounded_when_a_store_is_opened_for_a_moment_per_epoch(quick_path: Path) -> None:
    choice, path = random.Random(7), quick_path / "store"
    filled(path, choice)
    live = sorted_bytes(path)
    most_files = most_bytes = 0
    for epoch in range(EPOCHS):
        with RocksDbSupplier().open(path) as store:
            keys = sorted(choice.sample(KEYS, CHANGED))
            store.write([(key, choice.randbytes(100)) for key in keys], marker=b"%d" % epoch)
            most_files = max(most_files, store._level_0_files())
        most_bytes = max(most_bytes, sorted_bytes(path))
    assert most_files <= rocksdb._STOP_AT_LEVEL_0_FILES
    assert most_bytes < 2 * live


def test_a_store_of_mostly_deleted_rows_is_small_after_its_compaction(tmp_path: Path) -> None:
    path = tmp_path / "store"
    filled(path, random.Random(7))
    with RocksDbSupplier().open(path) as store:
        assert not store.is_mostly_free()
        rows = list(store.scan(None, KEYS[LEFT]))
        store.write(dict.fromkeys(KEYS[LEFT:]).items(), marker=b"deleted")
        assert store.is_mostly_free()
        store.compact()
        assert (store.marker(), list(store.scan())) == (b"deleted", rows)
        assert not store.is_mostly_free()
    assert sorted_bytes(path) < 64 << 10


def test_deletions_of_rows_that_never_were_are_dropped_by_one_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb, "_LARGE_BYTES", 1)
    with RocksDbSupplier().open(tmp_path / "store") as store:
        store.bulk_load(dict.fromkeys(KEYS).items(), marker=b"deleted")
        assert store.is_mostly_free()
        store.compact()
        assert not store.is_mostly_free()
        assert store.marker() == b"deleted"


def test_without_room_nothing_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    filled(path, random.Random(7))
    with RocksDbSupplier().open(path) as store:
        store.write(dict.fromkeys(KEYS[LEFT:]).items(), marker=b"deleted")
        used = Usage(1, 1, sorted_bytes(path) // 2)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: used)
        store.compact()
        assert store.is_mostly_free()
        store.write([(b"one", b"more")], marker=b"later")
        assert len(list(store.scan())) == LEFT + 1


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def filled(path: Path, choice: random.Random) -> None:
    with RocksDbSupplier().open(path) as store:
        store.bulk_load([(key, choice.randbytes(150)) for key in KEYS], marker=b"filled")


def sorted_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("*.sst"))
