"""What is special about RocksDB: batches that are ingested as files, options, shared memory, damage."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from rocksdict import BlockBasedOptions, Options

from millstream.errors import StoreError
from millstream.state.backends import rocksdb
from millstream.state.backends.rocksdb import RocksDbBackend, RocksDbSupplier
from millstream.state.backends.rocksdb_journals import damaged_journal
from millstream.state.errors import DamagedStoreError, StoreDiskFullError, StoreInUseError

ROWS = [(b"%06d" % n, b"x" * 50) for n in range(20_000)]

OPEN = """
import pathlib, sys
from millstream.state.backends.rocksdb import RocksDbSupplier
RocksDbSupplier().open(pathlib.Path(sys.argv[1]))
"""


def test_ascending_bulk_loads_go_straight_to_the_lowest_level(tmp_path: Path) -> None:
    with RocksDbSupplier().open(tmp_path / "store") as store:
        for at in range(0, len(ROWS), 5000):
            store.bulk_load(ROWS[at : at + 5000], marker=b"%d" % at)
        rows = [file for file in store._db.live_files() if file["start_key"] != b""]
        assert {6} == {file["level"] for file in rows}
        assert list(store.scan()) == ROWS


def test_files_that_a_killed_process_was_about_to_ingest_do_not_matter(tmp_path: Path) -> None:
    with RocksDbSupplier().open(tmp_path / "store") as store:
        store.write(ROWS, marker=b"v1")
    for name in rocksdb._INGEST_FILES:
        (tmp_path / "store" / name).write_bytes(b"half a file")
    with RocksDbSupplier().open(tmp_path / "store") as store:
        store.write([(key, b"new") for key, _ in ROWS], marker=b"v2")
        assert store.get_many([ROWS[0][0]]) == [b"new"]
    assert not any((tmp_path / "store" / name).exists() for name in rocksdb._INGEST_FILES)


def test_files_that_are_not_compacted_are_bounded_even_if_every_batch_is_large(tmp_path: Path) -> None:
    with RocksDbSupplier().open(tmp_path / "store") as store:
        for number in range(60):
            store.write([(key, b"%d" % number) for key, _ in ROWS[number % 7 :: 4]], marker=b"%d" % number)
            assert store._level_0_files() <= rocksdb._STOP_AT_LEVEL_0_FILES


def test_the_config_setter_gets_name_and_options_and_is_heeded(tmp_path: Path) -> None:
    seen: list[str] = []

    def no_compression(store: str, options: Options, table: BlockBasedOptions) -> None:
        seen.append(store)
        options.set_max_open_files(123)
        table.set_block_size(32 << 10)

    with RocksDbSupplier(config_setter=no_compression).open(tmp_path / "counts"):
        pass
    (options,) = (tmp_path / "counts").glob("OPTIONS-*")
    text = options.read_text()
    assert seen == ["counts"]
    assert "max_open_files=123" in text
    assert "  block_size=32768" in text


def test_options_are_heeded_when_a_store_is_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        RocksDbSupplier().open(tmp_path / "store").close()
    newest = max((tmp_path / "store").glob("OPTIONS-*"))
    assert "  block_size=8192" in newest.read_text()
    assert "bloomfilter" in newest.read_text().lower()


def test_all_stores_of_a_process_share_one_cache_and_one_write_buffer_bound() -> None:
    assert rocksdb._process_memory(64 << 20, 32 << 20) is rocksdb._process_memory(64 << 20, 32 << 20)
    cache, buffers = rocksdb._process_memory(1 << 20, 1 << 19)
    assert buffers.get_buffer_size() == 1 << 19
    assert cache.get_usage() >= 0


def test_memory_stays_within_the_cache_however_many_stores_are_written_and_read(tmp_path: Path) -> None:
    bound, buffers = 16 << 20, 8 << 20
    cache, manager = rocksdb._process_memory(bound, buffers)
    chance = random.Random(1)
    used, buffered = [], []
    with ExitStack() as opened:
        supplier = RocksDbSupplier(cache_bytes=bound, write_buffer_bytes=buffers)
        stores = [opened.enter_context(supplier.open(tmp_path / f"store-{n}")) for n in range(4)]
        for _ in range(50):
            for store in stores:
                rows = {chance.randbytes(16): chance.randbytes(1000) for _ in range(300)}
                store.write(sorted(rows.items()), marker=b"")
                used.append(cache.get_usage())
                buffered.append(manager.get_usage())
        for store in stores:
            assert sum(1 for _ in store.scan()) == 15_000
            used.append(cache.get_usage())
    assert max(used) <= 1.1 * bound  # 60 MB were written and read
    assert max(buffered) > 1 << 20


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with RocksDbSupplier().open(tmp_path / "store"):
        second = subprocess.run(
            [sys.executable, "-c", OPEN, str(tmp_path / "store")],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert "StoreInUseError: The store" in second.stderr
    assert "without holding the task's lock" in second.stderr


@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_damage_is_found_and_named(tmp_path: Path, how: str) -> None:
    with RocksDbSupplier().open(tmp_path / "store") as store:
        store.write(ROWS, marker=b"v1")
    file = max((tmp_path / "store").glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    if how == "remove":
        file.unlink()
    elif how == "cut":
        file.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 3] ^= 255
        file.write_bytes(data)
    for use in (_read_all_by_key, _scan_all, _scan_all_in_reverse):
        with pytest.raises(
            DamagedStoreError, match=r"(?s)is damaged \(Corruption: .* Remedy: remove the folder"
        ):
            use(tmp_path / "store")


def test_a_manifest_that_rocksdb_would_read_for_ever_is_damaged(tmp_path: Path) -> None:
    """One flipped bit makes an ordinary record one of a recycled file."""
    with RocksDbSupplier().open(tmp_path / "store") as store:
        store.write(ROWS[:10], marker=b"v1")
    (manifest,) = (tmp_path / "store").glob("MANIFEST-*")
    data = manifest.read_bytes()
    records, position = [], 0
    while position < len(data):
        records.append(position)
        position += 7 + int.from_bytes(data[position + 4 : position + 6], "little")
    assert len(records) > 3
    for record in records:
        flipped = bytearray(data)
        flipped[record + 6] ^= 4
        manifest.write_bytes(flipped)
        message = rf"is damaged \({manifest.name} has a record of a kind .* at byte {record}\)"
        with pytest.raises(DamagedStoreError, match=message):
            RocksDbSupplier().open(tmp_path / "store")
    manifest.write_bytes(data)
    assert ROWS[:10] == _all_rows(tmp_path / "store")


def test_journals_are_looked_through_block_by_block(tmp_path: Path) -> None:
    def record(kind: int, length: int) -> bytes:
        return bytes(4) + length.to_bytes(2, "little") + bytes([kind]) + bytes(length)

    full_block = record(1, (32 << 10) - 7 - 3) + bytes(3)  # three bytes are too few for a record
    journal = tmp_path / "000007.log"
    for data, place in (
        (b"", None),
        (full_block + record(1, 5), None),
        (full_block + record(1, 5) + record(7, 1), (32 << 10) + 12),
        (record(1, 40_000)[:100], None),
        (record(1, 5) + b"torn", None),
    ):
        journal.write_bytes(data)
        found = damaged_journal(tmp_path)
        assert (None if found is None else int(found.split()[-1])) == place


def _all_rows(path: Path) -> list[tuple[bytes, bytes]]:
    with RocksDbSupplier().open(path) as store:
        return list(store.scan())


def _read_all_by_key(path: Path) -> None:
    with RocksDbSupplier(cache_bytes=1 << 16).open(path) as store:
        store.get_many([key for key, _ in ROWS])


def _scan_all(path: Path) -> None:
    with RocksDbSupplier(cache_bytes=1 << 16).open(path) as store:
        list(store.scan())


def _scan_all_in_reverse(path: Path) -> None:
    with RocksDbSupplier(cache_bytes=1 << 16).open(path) as store:
        list(store.scan_reverse())


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, entries: object, options: object) -> None:
        raise Exception("IO error: No space left on device: While appending to file")  # noqa: TRY002

    with RocksDbSupplier().open(tmp_path / "store") as store:
        store.write([(b"a", b"1")], marker=b"v1")
        monkeypatch.setattr(rocksdb, "_write_sorted_file", full)
        with pytest.raises(StoreDiskFullError, match=r"The disk is full: the store .* Remedy: free space"):
            store.write(ROWS, marker=b"v2")
        assert (store.marker(), list(store.scan())) == (b"v1", [(b"a", b"1")])


def test_other_errors_are_named_too_and_ours_pass() -> None:
    named = pytest.raises(StoreError, match="RocksDB could not work on the store here: Busy: later")
    with named, rocksdb._errors_named(Path("here")):
        raise Exception("Busy: later")  # noqa: TRY002
    with pytest.raises(StoreInUseError, match="mine"), rocksdb._errors_named(Path("here")):
        raise StoreInUseError("mine")


def test_a_backend_says_where_it_is(tmp_path: Path) -> None:
    store = RocksDbSupplier().open(tmp_path / "store")
    assert isinstance(store, RocksDbBackend)
    store.close()
    assert repr(store) == f"<RocksDbBackend {tmp_path / 'store'}, closed>"


def test_log_files_stay_few_and_small(tmp_path: Path) -> None:
    for number in range(10):
        with RocksDbSupplier().open(tmp_path / "store") as store:
            store.write([(b"a", b"1")], marker=b"v%d" % number)
    logs = [file for file in (tmp_path / "store").iterdir() if file.name.startswith("LOG")]
    assert 1 <= len(logs) <= 3  # the one that is written, and two old ones
    assert "max_log_file_size=1048576" in max((tmp_path / "store").glob("OPTIONS-*")).read_text()


def test_memory_is_freed_of_all_stores_but_of_none_that_another_thread_writes_or_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scarce = RocksDbSupplier(write_buffer_bytes=1)  # so every write flushes all stores
    flushed: list[RocksDbBackend] = []

    def noted(store: RocksDbBackend) -> None:
        flushed.append(store)

    monkeypatch.setattr(RocksDbBackend, "flush", noted)
    with scarce.open(tmp_path / "one") as one, scarce.open(tmp_path / "other") as other:
        with other.unwritten:
            one.write([(b"a", b"1")], marker=b"")
            assert one in flushed
            assert other not in flushed
        one.write([(b"a", b"2")], marker=b"")
        assert other in flushed
