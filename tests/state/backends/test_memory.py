"""What is special about memory: what a process knows it finds again, and nobody else does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.state.backends.memory import MemoryBackend, MemorySupplier
from millstream.state.errors import DamagedStoreError
from millstream.state.stores.segments import SEGMENT_BYTES, segment_prefix

MARKER = """
import pathlib, sys
from millstream.state.backends.memory import MemorySupplier
with MemorySupplier().open(pathlib.Path(sys.argv[1])) as store:
    print(store.marker(), len(list(store.scan())))
"""


def test_another_process_finds_an_empty_store(tmp_path: Path) -> None:
    with MemorySupplier().open(tmp_path / "store") as store:
        store.write([(b"a", b"1")], marker=b"v1")
    found = subprocess.run(
        [sys.executable, "-c", MARKER, str(tmp_path / "store")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "None 0\n"


def test_a_store_that_was_removed_is_forgotten(tmp_path: Path) -> None:
    with MemorySupplier().open(tmp_path / "store") as store:
        store.write([(b"a", b"1")], marker=b"v1")
    shutil.rmtree(tmp_path / "store")
    with MemorySupplier().open(tmp_path / "store") as store:
        assert (store.marker(), list(store.scan())) == (None, [])


def test_it_needs_no_disk() -> None:
    with MemoryBackend() as store:
        store.write([(b"a", b"1")], marker=b"v1")
        assert list(store.scan()) == [(b"a", b"1")]
    assert repr(store) == "<MemoryBackend in memory, closed>"


def test_a_snapshot_cut_anywhere_or_with_any_byte_changed_is_damage(tmp_path: Path) -> None:
    with MemoryBackend() as store:
        store.write([(b"key-%d" % n, b"value") for n in range(5)], marker=b"v1")
        store.snapshot(tmp_path / "snapshot")
    file = tmp_path / "snapshot" / "rows"
    whole = file.read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        for damaged in (whole[:at], bytes(changed)):
            file.write_bytes(damaged)
            with pytest.raises(DamagedStoreError, match=r"cannot be read .* Remedy: use an older snapshot"):
                MemorySupplier().restore(tmp_path / "snapshot", tmp_path / "restored")
    file.write_bytes(whole)
    with MemorySupplier().restore(tmp_path / "snapshot", tmp_path / "restored") as restored:
        assert restored.marker() == b"v1"


def test_a_snapshot_larger_than_one_frame_comes_back(tmp_path: Path) -> None:
    rows = [(b"%03d" % n, bytes([n]) * 100_000) for n in range(30)]
    with MemoryBackend() as store:
        store.write(rows, marker=b"v1")
        store.snapshot(tmp_path / "snapshot")
    with MemorySupplier().restore(tmp_path / "snapshot", tmp_path / "restored") as restored:
        assert list(restored.scan()) == rows


def test_rows_of_a_dropped_segment_are_freed_by_the_writes_that_follow() -> None:
    keys = [segment_prefix(7) + b"%06d" % number for number in range(25_000)]
    with MemoryBackend(segment_bytes=SEGMENT_BYTES) as store:
        store.write([(key, b"v") for key in keys], marker=b"v1")
        held = sum(map(sys.getrefcount, keys))
        store.write([(segment_prefix(8), b"v")], marker=b"v2", drop=(b"\0", segment_prefix(8)))
        assert [key for key, _ in store.scan()] == [segment_prefix(8)]
        assert store.size().approximate_entries == 1
        for _ in range(3):
            store.write([], marker=b"v3")
        assert sum(map(sys.getrefcount, keys)) == held - 2 * len(keys)  # the rows, and their order


def test_dropped_segments_do_not_pile_up() -> None:
    with MemoryBackend(segment_bytes=SEGMENT_BYTES) as store:
        for number in range(0, 400, 4):
            rows = [(segment_prefix(number + one), b"v") for one in range(4)]
            store.write(rows, marker=b"%d" % number, drop=(b"\0", segment_prefix(number)))
        assert len(store._content.dropped) <= 4


def test_a_store_by_segments_comes_back_by_segments(tmp_path: Path) -> None:
    rows = [(segment_prefix(number), b"v") for number in range(5)]
    with MemorySupplier().open(tmp_path / "store", segment_bytes=SEGMENT_BYTES) as store:
        store.write(rows, marker=b"v1")
        store.snapshot(tmp_path / "snapshot")
    with MemorySupplier().restore(
        tmp_path / "snapshot", tmp_path / "new", segment_bytes=SEGMENT_BYTES
    ) as restored:
        assert list(restored.scan()) == rows
        restored.write([], marker=b"v2", drop=(b"\0", segment_prefix(3)))
        assert list(restored.scan()) == rows[3:]
        assert list(restored.scan_reverse()) == rows[:2:-1]
