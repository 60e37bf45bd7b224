"""State in RocksDB (through ``rocksdict``): an LSM tree on local disk, for state larger than memory.

What is kept where: rows and marker are in one column family, the marker under the empty key, which no row has
(:mod:`.key_encoding`). One family, because then a file of sorted rows that brings its marker along is taken
in by RocksDB atomically; with the marker in a family of its own a crash could come between the two.

How a batch is written:

- few entries go through the write-ahead log, without sync: after ``kill -9`` the operating system still has
  it;
- many are written to a sorted file, which is then ingested: no log, no memtable, no second copy, about half
  the time. That file is synced by RocksDB.

The log is never synced by :meth:`write`: the changelog is what is durable, and :meth:`sync` is there for
whoever wants more. Memory is bounded per process: one block cache, which is also charged for the write
buffers. RocksDB's own manager of these lets writers run ahead of the flushes, or, told to stop them, waits
for ever for memory that a store holds which nobody writes to. So a write that finds too much flushes all
stores.

RocksDB verifies its blocks' checksums, so damage is found when it is read.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakSet

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    Checkpoint,
    CompactOptions,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteBufferManager,
)

from millstream.errors import ConfigError, StoreError
from millstream.state.backends.base import Backend, Entry, KeyRange, Row, StoreSize, closed_on_error
from millstream.state.backends.config_setter import ConfigSetter
from millstream.state.backends.folder import StoreFolder, restored_folder, store_folder
from millstream.state.backends.key_encoding import decode_rows, encode_entries, encode_key, encode_keys
from millstream.state.backends.rocksdb_journals import damaged_journal
from millstream.state.errors import StoreInUseError, damaged_store, disk_full, unexplained

_NAME: Final = "rocksdb"
_FORMAT: Final = 1
_MARKER_KEY: Final = b""

_KEYS_PER_GET: Final = 1000
"""RocksDB's multi-get is fastest in lists of about this length: by a third, against one list of 50,000."""
_INGEST_ENTRIES: Final = 4000
_INGEST_BYTES: Final = 4 << 20
"""From so many entries, or bytes, a batch is ingested as a file."""
_INGEST_FILES: Final = ("ingest-marker.sst", "ingest-rows.sst")
_MANY_LEVEL_0_FILES: Final = 12
"""With so many files not yet compacted a batch goes through the log: its writers RocksDB slows down, and
stops until compaction has caught up. Ingestion would go on for ever."""
_STOP_AT_LEVEL_0_FILES: Final = 20
_LARGE_BYTES: Final = 4 << 20
_MOSTLY_DELETED_FROM: Final = 3
"""A store of so many bytes in which one of so many entries deletes another is mostly free: two thirds of it
are deleted rows and what deletes them."""
_DELETIONS: Final = re.compile(r"# entries=(\d+); # deletions=(\d+);")
_FORBIDDEN: Final = {
    "compaction_style=kCompactionStyleFIFO": "that compaction deletes rows",
    "prefix_extractor=(?!nullptr)": "scans would not see all rows",
    "recycle_log_file_num=(?!0$)": "a recycled file can't be told from a damaged one",
    "wal_dir=.": "a store is one folder, which can be removed and copied",
}
"""What RocksDB's options file must not say."""


class RocksDbBackend(Backend):
    """A store in a RocksDB database of its own."""

    def __init__(
        self,
        folder: StoreFolder,
        path: Path,
        options: Options,
        buffers: WriteBufferManager,
        *,
        read_only: bool = False,
    ) -> None:
        for name in () if read_only else _INGEST_FILES:
            (path / name).unlink(missing_ok=True)  # left by a process that was killed
        problem = damaged_journal(path)
        if problem is not None:
            raise damaged_store(path, problem)
        with _errors_named(path):
            # Families are named explicitly: else rocksdict opens an existing database with the options that
            # it finds in its folder, without our cache, filters and bounds.
            access = AccessType.read_only() if read_only else AccessType.read_write()
            self._db = Rdict(str(path), options, column_families={"default": options}, access_type=access)
        self._path = path
        self._options = options
        self._buffers = buffers
        super().__init__(folder)
        if not read_only:
            _open_stores.add(self)

    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        encoded = encode_keys(keys)
        with _errors_named(self._path):
            if len(encoded) <= _KEYS_PER_GET:
                return self._get_list(encoded)
            parts = (encoded[at : at + _KEYS_PER_GET] for at in range(0, len(encoded), _KEYS_PER_GET))
            return list(chain.from_iterable(map(self._get_list, parts)))

    def _write(self, entries: list[Entry], marker: bytes, drop: KeyRange | None) -> None:
        is_large = len(entries) >= _INGEST_ENTRIES or (
            len(entries) > 0 and sum(len(value) for _, value in entries if value is not None) >= _INGEST_BYTES
        )
        (self._bulk_load if is_large else self._write_logged)(entries, marker, drop)

    def _bulk_load(self, entries: list[Entry], marker: bytes, drop: KeyRange | None) -> None:
        if drop is None and entries and self._level_0_files() < _MANY_LEVEL_0_FILES:
            self._ingest(entries, marker)
        else:
            self._write_logged(entries, marker, drop)

    def _marker(self) -> bytes | None:
        with _errors_named(self._path):
            return self._db.get(_MARKER_KEY)

    def _page(self, start: bytes, end: bytes | None, limit: int, *, reverse: bool) -> list[Row]:
        with _errors_named(self._path):
            page = self._page_backwards if reverse else self._page_forwards
            return decode_rows(page(encode_key(start), None if end is None else encode_key(end), limit))

    def _page_forwards(self, first: bytes, behind: bytes | None, limit: int) -> list[Row]:
        bounds = ReadOptions()
        if behind is not None:
            bounds.set_iterate_upper_bound(behind)
        found: Iterator[Any] = self._db.items(from_key=first, read_opt=bounds)
        rows: list[Row] = list(islice(found, limit))
        if len(rows) < limit:
            self._check_end(rows[-1][0] if rows else first, bounds)
        return rows

    def _page_backwards(self, first: bytes, behind: bytes | None, limit: int) -> list[Row]:
        found: Iterator[Any] = self._db.items(backwards=True, from_key=behind)
        rows: list[Row] = list(islice(found, limit + 1))
        if len(rows) <= limit:
            self._check_begin(rows[-1][0] if rows else behind)
        if rows and rows[0][0] == behind:  # iteration begins at the key itself, which is excluded
            del rows[0]
        del rows[limit:]
        # The lower bound is checked here: in rocksdict 0.3.29 set_iterate_lower_bound sets the upper one.
        while rows and rows[-1][0] < first:
            rows.pop()
        return rows

    def _size(self) -> StoreSize:
        with _errors_named(self._path):
            entries, deletions = self._sorted_entries()
            # Not "estimate-num-keys": that knows only the files that were written since the store was opened.
            for table in ("active-mem-table", "imm-mem-tables"):
                entries += self._db.property_int_value(f"rocksdb.num-entries-{table}") or 0
                deletions += self._db.property_int_value(f"rocksdb.num-deletes-{table}") or 0
            unflushed = self._db.property_int_value("rocksdb.cur-size-all-mem-tables") or 0
        rows = entries - 2 * deletions - 1  # without what deletes, what was deleted, and the marker
        return StoreSize(max(0, rows), self._sorted_bytes() + unflushed)

    def is_mostly_free(self) -> bool:
        """Tell whether a large store has mostly rows that are deleted.

        RocksDB compacts them when more is written, or beside a program that keeps it open. Here it is open
        for a moment at a time, perhaps with little to write.
        """
        self._check_open()
        with _errors_named(self._path):
            if self._sorted_bytes() < _LARGE_BYTES:
                return False
            entries, deletions = self._sorted_entries()
        return entries > 0 and deletions * _MOSTLY_DELETED_FROM >= entries

    def compact(self) -> bool:
        """Write all files anew, without deleted rows; nothing where there may be no room for that.

        RocksDB would refuse every write after a compaction that found the disk full.
        """
        self._check_open()
        if shutil.disk_usage(self._path).free < self._sorted_bytes():
            return True
        everything = CompactOptions()
        everything.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
        with _errors_named(self._path):
            self._db.compact_range(None, None, everything)
        return True

    def _copy_to(self, folder: Path) -> None:
        with _errors_named(self._path):
            Checkpoint(self._db).create_checkpoint(str(folder))

    def _sync(self) -> None:
        with _errors_named(self._path):
            self._db.flush_wal(sync=True)

    def _close(self) -> None:
        _open_stores.discard(self)
        with _errors_named(self._path):
            self._db.close()

    def _get_list(self, keys: list[bytes]) -> list[bytes | None]:
        values: Any = self._db.get(keys)  # type: ignore[arg-type]  # its type says list[str | int | ...]
        return values  # type: ignore[no-any-return]  # a list of keys gives a list

    def _write_logged(self, entries: list[Entry], marker: bytes, drop: KeyRange | None) -> None:
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        if drop is not None:  # one tombstone for the whole range; an ingested file could not bring it along
            batch.delete_range(encode_key(drop[0]), encode_key(drop[1]))
        for key, value in encode_entries(entries):
            if value is None:
                delete(key)
            else:
                put(key, value)
        put(_MARKER_KEY, marker)
        with _errors_named(self._path):
            self._db.write(batch)
        if self._buffers.get_usage() > self._buffers.get_buffer_size():
            self.flush()
            for store in list(_open_stores):
                store.flush_if_unused()

    def _ingest(self, entries: list[Entry], marker: bytes) -> None:
        """Write two sorted files and let RocksDB take both in at once.

        Two, so that rows behind all others go straight to the lowest level: with the marker in it, the file's
        range would overlap everything.
        """
        files = [str(self._path / name) for name in _INGEST_FILES]
        with _errors_named(self._path):
            _write_sorted_file(files[0], [(_MARKER_KEY, marker)], self._options)
            _write_sorted_file(files[1], encode_entries(entries), self._options)
            move = IngestExternalFileOptions()
            move.set_move_files(True)
            self._db.ingest_external_file(files, move)

    def flush(self) -> None:
        """Write what is in memory to files, so that the memory is free."""
        with suppress(Exception):  # closed meanwhile, or damaged: whoever uses that store will hear of it
            self._db.flush(wait=True)

    def flush_if_unused(self) -> None:
        """The same, by another thread. A store that is being written sees to itself.

        To wait for it might be to wait for one another.
        """
        if self.unwritten.try_hold():
            try:
                self.flush()
            finally:
                self.unwritten.release()

    def _check_end(self, key: bytes, bounds: ReadOptions) -> None:
        # rocksdict's iterators end at a damaged block as if it were the end of the store.
        cursor = self._db.iter(bounds)
        cursor.seek(key)
        if cursor.valid() and cursor.key() == key:
            cursor.next()
        cursor.status()

    def _check_begin(self, key: bytes | None) -> None:
        cursor = self._db.iter()
        if key is None:
            cursor.seek_to_last()
        else:
            cursor.seek_for_prev(key)
            if cursor.valid() and cursor.key() == key:
                cursor.prev()
        cursor.status()

    def _sorted_bytes(self) -> int:
        with _errors_named(self._path):
            return self._db.property_int_value("rocksdb.total-sst-files-size") or 0

    def _sorted_entries(self) -> tuple[int, int]:
        """How many entries the sorted files have, and how many of these delete another one."""
        found = _DELETIONS.search(self._db.property_value("rocksdb.aggregated-table-properties") or "")
        return (0, 0) if found is None else (int(found[1]), int(found[2]))

    def _level_0_files(self) -> int:
        return self._db.property_int_value("rocksdb.num-files-at-level0") or 0


@dataclass(frozen=True, slots=True)
class RocksDbSupplier:
    """Opens RocksDB stores. The two sizes are for all stores of a process together."""

    name: ClassVar[str] = _NAME
    persistent: ClassVar[bool] = True

    cache_bytes: int = 64 << 20
    """Blocks read from disk, and the write buffers."""
    write_buffer_bytes: int = 32 << 20
    """Of these, what may be written and not yet flushed."""
    config_setter: ConfigSetter | None = None
    """Gets each store's name and options before they are used (Kafka's RocksDBConfigSetter)."""

    def open(self, path: Path, *, segment_bytes: int = 0) -> RocksDbBackend:
        """Open the store; about 5 ms."""
        del segment_bytes  # dropping a range is one tombstone anyway
        folder = store_folder(path, _NAME, _FORMAT)
        buffers = _process_memory(self.cache_bytes, self.write_buffer_bytes)[1]
        with closed_on_error(RocksDbBackend(folder, path, self._options(path.name), buffers)) as store:
            if self.config_setter is not None:
                _check_options(path)
        return store

    def open_read_only(self, path: Path, *, segment_bytes: int = 0) -> RocksDbBackend:
        """Open the store without its lock: other processes may do the same."""
        del segment_bytes
        folder = store_folder(path, _NAME, _FORMAT)
        buffers = _process_memory(self.cache_bytes, self.write_buffer_bytes)[1]
        return RocksDbBackend(folder, path, self._options(path.name), buffers, read_only=True)

    def restore(self, snapshot: Path, path: Path, *, segment_bytes: int = 0) -> RocksDbBackend:
        """Make a store from a snapshot; its sorted files never change, so they are shared where possible."""
        restored_folder(snapshot, path, _NAME, _FORMAT, shareable=lambda file: file.suffix == ".sst")
        return self.open(path, segment_bytes=segment_bytes)

    def _options(self, store: str) -> Options:
        cache, buffers = _process_memory(self.cache_bytes, self.write_buffer_bytes)
        table = BlockBasedOptions()
        table.set_block_cache(cache)
        table.set_cache_index_and_filter_blocks(True)  # else they would be memory outside of the bound
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        # In parts: the filter of a large file as a whole would be read again by every get that misses it.
        table.set_index_type(BlockBasedIndexType.two_level_index_search())
        table.set_partition_filters(True)
        table.set_metadata_block_size(16 << 10)
        table.set_pin_top_level_index_and_filter(True)
        table.set_bloom_filter(10, False)
        table.set_block_size(8 << 10)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_manager(buffers)
        options.set_write_buffer_size(16 << 20)
        options.set_max_background_jobs(2)
        options.set_level_zero_slowdown_writes_trigger(_MANY_LEVEL_0_FILES + 4)
        options.set_level_zero_stop_writes_trigger(_STOP_AT_LEVEL_0_FILES)
        # A store is opened and closed every epoch: each open begins a new LOG, and preallocates its files.
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        options.set_manifest_preallocation_size(64 << 10)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        options.set_skip_stats_update_on_db_open(True)
        if self.config_setter is not None:
            _set(self.config_setter, store, options, table)
        options.set_block_based_table_factory(table)
        return options


_open_stores: WeakSet[RocksDbBackend] = WeakSet()
"""The stores that this process has open."""


@lru_cache(maxsize=8)
def _process_memory(cache_bytes: int, write_buffer_bytes: int) -> tuple[Cache, WriteBufferManager]:
    """Return the one cache and buffer manager of this process (per setting: usually there is one)."""
    cache = Cache(cache_bytes)
    return cache, WriteBufferManager.new_write_buffer_manager_with_cache(write_buffer_bytes, False, cache)


def _set(setter: ConfigSetter, store: str, options: Options, table: BlockBasedOptions) -> None:
    """Let a setter of the user's change options, but for those that a store can't be opened without."""
    try:
        setter(store, options, table)
    except Exception as error:
        raise ConfigError(
            f"rocksdb_config_setter {setter!r} failed on store {store!r}: {type(error).__name__}: {error}. "
            "It gets the store's name, its rocksdict.Options and its rocksdict.BlockBasedOptions."
        ) from error
    options.create_if_missing(True)
    options.set_error_if_exists(False)


def _check_options(path: Path) -> None:
    """Refuse options with which a store would lose rows. RocksDB writes down what it was opened with."""
    written = max(path.glob("OPTIONS-*"), key=lambda file: int(file.name.partition("-")[2]), default=None)
    text = "" if written is None else written.read_text(encoding="utf-8")
    for option, why in _FORBIDDEN.items():
        line = next((line.strip() for line in text.splitlines() if re.match(option, line.strip())), None)
        if line is not None:
            raise ConfigError(
                f"rocksdb_config_setter set {line} for the store {path}: {why}. Remedy: leave that option as "
                "it is."
            )


def _write_sorted_file(path: str, entries: list[Entry], options: Options) -> None:
    writer = SstFileWriter(options)
    writer.open(path)
    for key, value in entries:
        if value is None:
            del writer[key]
        else:
            writer[key] = value
    writer.finish()


@contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    """Turn rocksdict's errors, which are bare ``Exception``, into ours."""
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise _named(path, str(error)) from error


def _named(path: Path, text: str) -> StoreError:
    if "No space left" in text or "Disk quota" in text:
        return disk_full(path, text)
    if "lock hold by current process" in text or "While lock file" in text:
        return StoreInUseError(
            f"The store {path} is open already ({text}). Likely cause: another process works on the same "
            "state directory without holding the task's lock. Remedy: end that process."
        )
    if text.startswith(("Corruption", "IO error: No such file")):
        return damaged_store(path, text)
    return unexplained("RocksDB", path, text)
