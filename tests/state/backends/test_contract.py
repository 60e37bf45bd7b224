"""What every backend promises, example by example, and what it says when it is misused."""

from __future__ import annotations

import json
import os
import pickle
import stat
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import ConfigError, StoreError
from millstream.state.backends import NAMES, Backend, BackendSupplier, Row, StoreSize, supplier
from millstream.state.backends.api import Adopting, ReadOnly
from millstream.state.errors import (
    DamagedStoreError,
    ScanInvalidatedError,
    StoreClosedError,
    StoreFormatError,
    StoreInUseError,
    UnsortedKeysError,
)


def test_a_new_store_is_empty_and_has_no_marker(store: Backend) -> None:
    assert store.marker() is None
    assert store.get_many([b"", b"a"]) == [None, None]
    assert list(store.scan()) == []
    assert list(store.scan_reverse()) == []
    assert store.size().approximate_entries == 0


def test_an_empty_marker_is_a_marker(store: Backend) -> None:
    store.write([], marker=b"")
    assert store.marker() == b""


def test_a_write_without_entries_advances_the_marker_only(store: Backend) -> None:
    store.write([(b"a", b"1")], marker=b"v1")
    store.write([], marker=b"v2")
    store.bulk_load([], marker=b"v3")
    assert store.marker() == b"v3"
    assert list(store.scan()) == [(b"a", b"1")]


def test_a_write_that_may_be_done_in_steps_ends_like_any_other(store: Backend) -> None:
    rows = [(b"%06d" % n, b"v") for n in range(5_000)]
    for write in (store.write, store.bulk_load):
        store.write([(b"000", b"old")], marker=b"v1")
        write(rows, marker=b"v2", drop=(b"000", b"0000"), between=b"between")
        assert store.marker() == b"v2"
        assert list(store.scan()) == rows


def test_entries_may_come_from_any_iterable_and_keys_from_any_sequence(store: Backend) -> None:
    store.write(((key, b"v") for key in (b"a", b"b")), marker=b"v1")
    store.bulk_load(((key, b"v") for key in (b"c", b"d")), marker=b"v2")
    assert store.get_many((b"a", b"c")) == [b"v", b"v"]


def test_size_follows_the_number_of_rows(store: Backend) -> None:
    store.write([(b"%04d" % n, b"x" * 100) for n in range(1000)], marker=b"v1")
    size = store.size()
    assert isinstance(size, StoreSize)
    assert size.approximate_entries == 1000
    assert size.bytes >= 1000


@pytest.mark.parametrize("name", ["lmdb", "rocksdb"])
@pytest.mark.parametrize("batch", [1000, 10_000])  # written through the log, and ingested, by RocksDB
def test_a_store_that_is_opened_again_knows_about_how_many_rows_it_has(
    tmp_path: Path, name: str, batch: int
) -> None:
    keys = [b"%06d" % n for n in range(10_000)]
    for value in (b"old", b"new"):
        for at in range(0, len(keys), batch):
            with supplier(name).open(tmp_path / "store") as store:
                store.write([(key, value) for key in keys[at : at + batch]], marker=value)
        with supplier(name).open(tmp_path / "store") as store:
            assert len(keys) <= store.size().approximate_entries <= 2 * len(keys) + 20


@pytest.mark.parametrize("name", ["lmdb", "rocksdb"])
def test_rows_that_are_deleted_are_not_counted(tmp_path: Path, name: str) -> None:
    keys = [b"%06d" % n for n in range(10_000)]
    with supplier(name).open(tmp_path / "store") as store:
        store.write([(key, b"v") for key in keys], marker=b"v1")
    with supplier(name).open(tmp_path / "store") as store:
        store.write([(key, None) for key in keys[10:]], marker=b"v2")
        assert 10 <= store.size().approximate_entries <= 12


@pytest.mark.parametrize("keys", [[b"b", b"a"], [b"a", b"a"], [b"\0", b""]])
def test_keys_out_of_order_are_refused_and_named(store: Backend, keys: list[bytes]) -> None:
    with pytest.raises(
        UnsortedKeysError, match=r"Key 1 of 2 \(.*\) does not come after .* Remedy: sort them"
    ):
        store.get_many(keys)
    for write in (store.write, store.bulk_load):
        with pytest.raises(UnsortedKeysError):
            write([(key, b"") for key in keys], marker=b"v1")
    assert store.marker() is None
    assert list(store.scan()) == []


@pytest.mark.parametrize("name", ["scan", "scan_reverse"])
def test_a_write_ends_open_scans(store: Backend, name: str) -> None:
    store.write([(b"%03d" % n, b"v") for n in range(100)], marker=b"v1")
    scan, unstarted = getattr(store, name)(), getattr(store, name)()
    next(scan)
    store.write([], marker=b"v2")
    for old in (scan, unstarted):
        with pytest.raises(ScanInvalidatedError, match="was written while a scan of it was open"):
            next(old)


@pytest.mark.parametrize("name", ["scan", "scan_reverse"])
def test_an_abandoned_scan_keeps_nothing_open(backend: BackendSupplier, tmp_path: Path, name: str) -> None:
    with backend.open(tmp_path / "store") as store:
        store.write([(b"%05d" % n, b"v") for n in range(10_000)], marker=b"v1")
        scan = getattr(store, name)()
        next(scan)
    with pytest.raises(StoreClosedError):
        next(scan)
    with backend.open(tmp_path / "store") as store:  # RocksDB would refuse while an iterator is alive
        store.write([], marker=b"v2")


def test_scans_side_by_side_do_not_disturb_each_other(store: Backend) -> None:
    rows = [(b"%04d" % n, b"v") for n in range(500)]
    store.write(rows, marker=b"v1")
    pairs = list(zip(store.scan(), store.scan_reverse(), strict=True))
    assert pairs == list(zip(rows, rows[::-1], strict=True))


def test_a_closed_store_refuses_everything_but_close(store: Backend, tmp_path: Path) -> None:
    store.close()
    store.close()
    for use in (
        lambda: store.get_many([]),
        lambda: store.write([], marker=b""),
        lambda: store.bulk_load([], marker=b""),
        store.marker,
        store.scan,
        store.scan_reverse,
        store.size,
        store.sync,
        lambda: store.snapshot(tmp_path / "snapshot"),
    ):
        with pytest.raises(StoreClosedError, match=r"is closed\. Likely cause: .* Remedy: open it again"):
            use()


def test_a_store_is_open_once_in_a_process(store: Backend, backend: BackendSupplier, tmp_path: Path) -> None:
    with pytest.raises(StoreInUseError, match=rf"is open already, in this process \({os.getpid()}\)"):
        backend.open(tmp_path / "store")
    store.write([(b"a", b"")], marker=b"v1")
    assert store.marker() == b"v1"


@pytest.mark.parametrize("name", ["lmdb", "rocksdb"])
def test_processes_read_a_store_side_by_side(name: str, tmp_path: Path) -> None:
    backend = supplier(name)
    assert isinstance(backend, ReadOnly)
    with backend.open(tmp_path / "store") as store:
        store.write([(b"a", b"1"), (b"b", b"2")], marker=b"v1")
    with backend.open_read_only(tmp_path / "store") as store:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
            seen = other.submit(_read, backend, tmp_path / "store").result()
        assert seen == (list(store.scan()), store.get_many([b"a", b"c"]), store.marker())
    assert seen == ([(b"a", b"1"), (b"b", b"2")], [b"1", None], b"v1")


def _read(backend: Any, path: Path) -> tuple[list[Row], list[bytes | None], bytes | None]:
    with backend.open_read_only(path) as store:
        return list(store.scan()), store.get_many([b"a", b"c"]), store.marker()


def test_a_store_that_was_dropped_without_close_can_be_opened(
    backend: BackendSupplier, tmp_path: Path
) -> None:
    store = backend.open(tmp_path / "store")
    store.write([(b"a", b"1")], marker=b"v1")
    del store
    with backend.open(tmp_path / "store") as again:
        assert again.marker() == b"v1"


def test_folders_are_private_and_so_are_files(backend: BackendSupplier, tmp_path: Path) -> None:
    path = tmp_path / "1_3" / backend.name / "counts"
    with backend.open(path) as store:
        store.write([(b"%05d" % n, b"v") for n in range(5000)], marker=b"v1")
        store.snapshot(tmp_path / "snapshot")
    for folder in (path.parent.parent, path.parent, path, tmp_path / "snapshot"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for file in folder.iterdir():
            assert file.is_dir() or stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_store_of_another_backend_is_refused_naming_both(backend: BackendSupplier, tmp_path: Path) -> None:
    for other in (supplier(name) for name in NAMES if name != backend.name):
        other.open(tmp_path / other.name).close()
        with pytest.raises(StoreFormatError) as refused:
            backend.open(tmp_path / other.name)
        text = str(refused.value)
        assert f"a store of backend '{other.name}', format 1" in text
        assert f"a store of backend '{backend.name}', format 1 was asked for" in text
        assert "Remedy: use that backend and release, or remove the folder" in text


def test_a_store_of_another_format_version_is_refused_naming_both(
    backend: BackendSupplier, tmp_path: Path
) -> None:
    backend.open(tmp_path / "store").close()
    file = tmp_path / "store" / "FORMAT"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 7}))
    with pytest.raises(
        StoreFormatError, match=rf"'{backend.name}', format 7, but .*'{backend.name}', format 1"
    ):
        backend.open(tmp_path / "store")


def test_a_folder_with_other_things_in_it_is_refused(backend: BackendSupplier, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(
        StoreFormatError, match=r"holds no store: it has files \(thesis.tex\) but no file FORMAT"
    ):
        backend.open(tmp_path)


def test_a_torn_format_file_is_damage(backend: BackendSupplier, tmp_path: Path) -> None:
    backend.open(tmp_path / "store").close()
    file = tmp_path / "store" / "FORMAT"
    whole = file.read_bytes()
    for length in range(len(whole) - 2):  # without its newline it is still whole
        file.write_bytes(whole[:length])
        with pytest.raises(DamagedStoreError, match="does not say what the folder holds"):
            backend.open(tmp_path / "store")


def test_a_snapshot_is_not_opened_and_a_store_is_not_restored(
    backend: BackendSupplier, tmp_path: Path
) -> None:
    with backend.open(tmp_path / "store") as store:
        store.snapshot(tmp_path / "snapshot")
    with pytest.raises(StoreFormatError, match=r"holds a snapshot of .* a store of"):
        backend.open(tmp_path / "snapshot")
    with pytest.raises(StoreFormatError, match=r"holds a store of .* a snapshot of"):
        backend.restore(tmp_path / "store", tmp_path / "new")
    with pytest.raises(StoreFormatError, match="holds no snapshot: it has no file FORMAT"):
        backend.restore(tmp_path / "nowhere", tmp_path / "new")


def test_nothing_is_put_where_something_is(store: Backend, backend: BackendSupplier, tmp_path: Path) -> None:
    store.snapshot(tmp_path / "snapshot")
    with pytest.raises(StoreFormatError, match="is not empty"):
        store.snapshot(tmp_path / "snapshot")
    with backend.open(tmp_path / "other") as other:
        other.write([(b"a", b"1")], marker=b"v1")
    with pytest.raises(StoreFormatError, match="is not empty"):
        backend.restore(tmp_path / "snapshot", tmp_path / "other")
    with backend.open(tmp_path / "other") as other:
        assert other.marker() == b"v1"


def test_what_an_interrupted_snapshot_left_behind_does_not_matter(
    store: Backend, backend: BackendSupplier, tmp_path: Path
) -> None:
    left = tmp_path / "snapshot.partial"
    left.mkdir()
    (left / "half").write_bytes(b"a file")
    store.write([(b"a", b"1")], marker=b"v1")
    store.snapshot(tmp_path / "snapshot")
    assert not left.exists()
    with backend.restore(tmp_path / "snapshot", tmp_path / "restored") as restored:
        assert (restored.marker(), list(restored.scan())) == (b"v1", [(b"a", b"1")])


WRITE = """
import pathlib, sys
from millstream.state.backends import supplier
with supplier(sys.argv[1]).open(pathlib.Path(sys.argv[2])) as store:
    for number in range(3):
        store.write([(b"%05d" % n, b"new") for n in range(5000)], marker=b"v%d" % (number + 2))
"""


@pytest.mark.parametrize("name", ["lmdb", "rocksdb"])
def test_a_snapshot_is_of_the_time_when_it_was_begun_whatever_others_write_meanwhile(
    name: str, tmp_path: Path
) -> None:
    backend = supplier(name)
    with ExitStack() as pins:
        with backend.open(tmp_path / "store") as store:
            store.write([(b"%05d" % n, b"old") for n in range(5000)], marker=b"v1")
            finish = pins.enter_context(store.begin_snapshot(tmp_path / "snapshot"))
        command = [sys.executable, "-c", WRITE, name, str(tmp_path / "store")]
        subprocess.run(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, check=True)
        finish()
    with backend.open(tmp_path / "store") as store:
        assert store.marker() == b"v4"
    with backend.restore(tmp_path / "snapshot", tmp_path / "restored") as restored:
        assert restored.marker() == b"v1"
        assert {value for _, value in restored.scan()} == {b"old"}


def test_a_snapshot_that_was_begun_and_given_up_leaves_nothing(
    backend: BackendSupplier, tmp_path: Path
) -> None:
    with backend.open(tmp_path / "store") as store:
        store.write([(b"a", b"1")], marker=b"v1")
        with store.begin_snapshot(tmp_path / "snapshot"):
            store.write([(b"a", b"2")], marker=b"v2")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    with backend.open(tmp_path / "store") as store:
        assert store.marker() == b"v2"


@pytest.mark.parametrize("name", ["lmdb"])
def test_a_snapshot_that_is_adopted_is_not_copied(name: str, tmp_path: Path) -> None:
    backend = supplier(name)
    assert isinstance(backend, Adopting)
    with backend.open(tmp_path / "store") as store:
        store.write([(b"a", b"1")], marker=b"v1")
        store.snapshot(tmp_path / "snapshot")
    files = {file.stat().st_ino for file in (tmp_path / "snapshot").iterdir()}
    with backend.adopt(tmp_path / "snapshot", tmp_path / "new") as store:
        assert (store.marker(), list(store.scan())) == (b"v1", [(b"a", b"1")])
    assert files & {file.stat().st_ino for file in (tmp_path / "new").iterdir()}


def test_two_stores_restored_from_one_snapshot_are_independent(
    backend: BackendSupplier, tmp_path: Path
) -> None:
    with backend.open(tmp_path / "store") as store:
        store.write([(b"%05d" % n, b"old") for n in range(5000)], marker=b"v1")
        store.snapshot(tmp_path / "snapshot")
    for name in ("first", "second"):
        with backend.restore(tmp_path / "snapshot", tmp_path / name) as restored:
            assert restored.marker() == b"v1"
            assert restored.get_many([b"00000", b"04999"]) == [b"old", b"old"]
            restored.write([(b"%05d" % n, b"new") for n in range(5000)], marker=b"v2")
    with backend.open(tmp_path / "store") as store:
        assert store.get_many([b"00000"]) == [b"old"]


def test_suppliers_travel(backend: BackendSupplier, tmp_path: Path) -> None:
    travelled = pickle.loads(pickle.dumps(backend))  # noqa: S301  # made one line above
    with travelled.open(tmp_path / "store") as store:
        assert store.marker() is None


def test_a_supplier_of_the_users_own_is_taken_as_it_is(backend: BackendSupplier) -> None:
    assert supplier(backend) is backend


@pytest.mark.parametrize("wrong", ["leveldb", "", 7])
def test_what_is_not_a_backend_is_refused_naming_those_that_are(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"Remedy: use one of lmdb, memory, rocksdb"):
        supplier(wrong)  # type: ignore[arg-type]


def test_every_error_of_a_store_is_a_store_error() -> None:
    for error in (
        DamagedStoreError,
        ScanInvalidatedError,
        StoreClosedError,
        StoreFormatError,
        StoreInUseError,
    ):
        assert issubclass(error, StoreError)
