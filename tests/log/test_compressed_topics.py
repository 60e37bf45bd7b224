"""What is compressed, and which bytes count: those in the file, or those that were compressed."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path

import msgspec
import pytest
from tests.log.conftest import WithoutSync

from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.log.blocks import BlockHeader, decode_header
from millstream.log.embedded import log_cleaner, partition
from millstream.log.embedded.partition import Limits
from millstream.types import Offset, Partition

WHERE = TopicPartition("t", Partition(0))
ZEROS = bytes(10_000)


def log_in(root: Path, config: TopicConfig | None = None) -> FileLog:
    log = FileLog(root, files=WithoutSync(), limits=Limits(segment_entries=1), now_ms=lambda: 0)
    log.create_topic("t", config or TopicConfig(is_compacted=True))
    return log


def append(log: FileLog, *values: bytes, first: int = 0) -> None:
    """A batch of records with a key each."""
    numbers = range(first, first + len(values))
    log.append(WHERE, record_batch([b"%08d" % number for number in numbers], list(values), numbers))


def segments(log: FileLog) -> list[Path]:
    return sorted((log.root / "topics/t/0").glob("*.segment"))


def stored_bytes(log: FileLog) -> int:
    return sum(path.stat().st_size for path in segments(log))


def blocks(log: FileLog) -> list[BlockHeader]:
    found = [(path.read_bytes(), path) for path in segments(log)]
    return [
        decode_header(data[match.start() :], str(path))
        for data, path in found
        for match in re.finditer(b"MSBK", data)
    ]


def values_of(log: FileLog) -> list[bytes | None]:
    return [value for batch in log.read(WHERE, Offset(0)) for value in batch.values()]


def test_blocks_are_compressed_when_they_are_rewritten_and_not_before(tmp_path: Path) -> None:
    log = log_in(tmp_path / "log")
    for number in range(3):
        append(log, ZEROS, first=number)
    before = log.raw_size(WHERE)
    assert [block.raw_body_length for block in blocks(log)] == [0, 0, 0]
    assert before == sum(block.length for block in blocks(log))
    assert log.rewrite(WHERE, min_entries=1)
    (block,) = blocks(log)
    assert block.raw_body_length > 3 * len(ZEROS)
    assert values_of(FileLog(log.root)) == [ZEROS] * 3
    append(log, ZEROS, first=3)
    assert blocks(log)[-1].raw_body_length == 0


def test_a_topic_that_is_not_compacted_is_folded_as_it_is(tmp_path: Path) -> None:
    log = log_in(tmp_path / "log", TopicConfig())
    for number in range(3):
        append(log, ZEROS, first=number)
    assert log.rewrite(WHERE, min_entries=1)
    (block,) = blocks(log)
    assert block.raw_body_length == 0
    assert stored_bytes(log) > 3 * len(ZEROS)


def test_counters_take_less_than_their_keys_and_values(tmp_path: Path) -> None:
    rng = random.Random(5)
    log = log_in(tmp_path / "log")
    rows = [
        (b"user-%08d" % rng.randrange(10**8), struct.pack(">q", rng.randrange(1_000))) for _ in range(20_000)
    ]
    for start in range(0, 20_000, 5_000):
        keys, counts = zip(*rows[start : start + 5_000], strict=True)
        log.append(WHERE, record_batch(list(keys), list(counts), range(start, start + 5_000)))
    live = sum(len(key) + len(value) for key, value in dict(rows).items())
    assert log.raw_size(WHERE) > 1.6 * live
    assert log.rewrite(WHERE, min_entries=1)
    assert log.raw_size(WHERE) > 1.6 * live
    assert stored_bytes(log) < 0.9 * live


def test_what_is_rewritten_again_is_the_same(tmp_path: Path) -> None:
    rng = random.Random(6)
    log = log_in(tmp_path / "log")
    expected: dict[bytes, bytes] = {}
    for number in range(30):
        row = rng.choice([b"a", b"b", b"c"]), rng.choice([bytes(900), rng.randbytes(900)])
        log.append(WHERE, record_batch([row[0]], [row[1]], [number]))
        expected |= {row[0]: row[1]}
        log.rewrite(WHERE, min_entries=1, min_dirty_ratio=0)
    batches = list(FileLog(log.root).read(WHERE, Offset(0)))
    found = [row for batch in batches for row in zip(batch.keys(), batch.values(), strict=True)]
    assert dict(found) == expected
    assert len(found) == 3


def test_compaction_comes_by_the_bytes_before_they_were_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_cleaner, "TINY_BYTES", 100)
    log = log_in(tmp_path / "log")
    append(log, *[ZEROS] * 20)
    assert log.rewrite(WHERE, min_entries=1)
    assert stored_bytes(log) < len(ZEROS)
    append(log, ZEROS, first=3)
    log.rewrite(WHERE, min_entries=1, min_dirty_ratio=0.1)
    assert log.compacted(WHERE).to == 20, "a twentieth is new"
    append(log, ZEROS, ZEROS, first=5)
    log.rewrite(WHERE, min_entries=1, min_dirty_ratio=0.1)
    assert log.compacted(WHERE).to == 23, "a seventh is"


def test_segments_are_joined_by_the_bytes_before_they_were_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_cleaner, "TINY_BYTES", 100)
    log = log_in(tmp_path / "log")
    append(log, *[ZEROS] * 20)
    log.rewrite(WHERE, min_entries=1)
    large = segments(log)[0]
    for number in range(3):
        append(log, bytes(500), first=number)
    assert log.rewrite(WHERE, min_entries=1, min_dirty_ratio=1)
    assert large in segments(log), "it is much larger than the others together"
    assert len(segments(log)) == 3, "which are joined, and the active one"


def test_retention_goes_by_the_bytes_in_the_files(tmp_path: Path) -> None:
    rng = random.Random(7)
    log = log_in(tmp_path / "log", TopicConfig(is_compacted=True, retention_bytes=50_000))
    for number in range(20):
        append(log, rng.randbytes(2_000) + bytes(8_000), first=number)
    assert log.rewrite(WHERE, min_entries=1)
    assert len(segments(log)) > 5
    assert stored_bytes(log) < 50_000
    assert log.raw_size(WHERE) > 200_000
    assert log.retain(WHERE) == 0


def test_an_epoch_reads_by_the_bytes_that_it_takes_in_memory(tmp_path: Path) -> None:
    log = log_in(tmp_path / "log")
    append(log, *[bytes(1_000)] * 100)
    assert log.rewrite(WHERE, min_entries=1)
    assert stored_bytes(log) < 10 * 1_000
    assert log.end_within(WHERE, Offset(0), Offset(100), 10 * 1_016) == 10
    assert log.end_within(WHERE, Offset(0), Offset(100), 1 << 20) == 100


@pytest.mark.parametrize(("records", "size", "most"), [(12, 1 << 20, 2 << 20), (60, 200_000, 5 << 20)])
def test_batches_that_are_read_stay_small_in_memory(
    tmp_path: Path, records: int, size: int, most: int
) -> None:
    now = 0
    log = FileLog(tmp_path / "log", files=WithoutSync(), now_ms=lambda: now)
    log.create_topic("t", TopicConfig(is_compacted=True, delete_retention_ms=1 << 40))
    for number in range(records):
        append(log, bytes(size), first=number)
        now += 3_600_000  # so that they don't share a block
    assert log.rewrite(WHERE, min_entries=1)
    assert stored_bytes(log) < size
    batches = list(log.read(WHERE, Offset(0)))
    assert sum(len(batch) for batch in batches) == records
    assert max(batch.records.nbytes for batch in batches) < most


class EntryOfBefore(msgspec.Struct, frozen=True, array_like=True):
    """An entry as it was before blocks were compressed."""

    base_offset: int
    count: int
    file: str | None
    start: int
    length: int
    min_timestamp: int
    max_timestamp: int
    append_time: int
    stamp: tuple[str, str, int] | None

    @property
    def raw_bytes(self) -> int:
        return self.length

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count


def test_entries_that_were_written_before_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_in(tmp_path / "log")
    with monkeypatch.context() as patched:
        patched.setattr(partition, "Entry", EntryOfBefore)
        append(log, ZEROS)
        append(log, ZEROS, first=1)
    assert segments(log)[0].read_bytes().count(b",null]") == 1, "an entry that ends with its stamp"
    again = FileLog(log.root, limits=Limits(segment_entries=1), now_ms=lambda: 0)
    assert values_of(again) == [ZEROS] * 2
    assert again.raw_size(WHERE) == sum(block.length for block in blocks(again)) > 2 * len(ZEROS)
    append(again, ZEROS, first=2)
    assert again.rewrite(WHERE, min_entries=1)
    assert values_of(again) == [ZEROS] * 3
