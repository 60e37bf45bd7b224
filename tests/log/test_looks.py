"""How often a partition's files are opened, and what may have happened between two looks at them."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.log.conftest import Kit, WithoutSync

from millstream.log import FileLog
from millstream.log.api import SealedRange, Stamp
from millstream.log.blocks import encode_blocks
from millstream.log.embedded import together
from millstream.log.embedded.high_watermark import read_watermark
from millstream.log.errors import InvalidPublicationError, OffsetOutOfRangeError
from millstream.types import Epoch, Offset

WATERMARK = "end"
SEGMENT = "00000000000000000000.segment"


class Counted(WithoutSync):
    """Notes which files are opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, path: Path, flags: int) -> int:
        self.opened.append(path.name)
        return super().open(path, flags)

    def taken(self) -> list[str]:
        opened, self.opened = self.opened, []
        return opened


@pytest.fixture
def files() -> Counted:
    return Counted()


@pytest.fixture
def log(kit: Kit, files: Counted) -> FileLog:
    """A log that knows of the first record already."""
    kit.limits = replace(kit.limits, segment_entries=100)
    kit.open().create_topic("orders")
    kit.open().append(kit.orders, kit.batch("first"))
    log = FileLog(kit.root, files=files, limits=kit.limits, now_ms=kit.clock)
    assert kit.values(log) == [b"first"]
    log.append(kit.orders, kit.batch("second"))
    files.taken()
    return log


def test_a_record_that_has_come_is_read_with_two_files_opened_once(
    kit: Kit, log: FileLog, files: Counted
) -> None:
    kit.open().append(kit.orders, kit.batch("third"))
    batches = log.read(kit.orders, Offset(2), Offset(3))
    assert [batch.values() for batch in batches] == [[b"third"]]
    assert files.taken() == [WATERMARK, SEGMENT]


def test_a_range_is_planned_with_two_files_opened_once(kit: Kit, log: FileLog, files: Counted) -> None:
    kit.open().append(kit.orders, kit.batch("third"))
    end = log.latest(kit.orders)
    assert log.end_within(kit.orders, Offset(2), end, 1 << 20) == 3
    assert log.append_time(kit.orders, Offset(2)) == kit.clock.now
    assert files.taken() == [WATERMARK, SEGMENT]


def test_watermark_and_segment_are_opened_once_to_append_and_to_publish(
    kit: Kit, log: FileLog, files: Counted
) -> None:
    log.append(kit.orders, kit.batch("third"))
    assert files.taken() == [WATERMARK, SEGMENT]
    sealed = kit.seal("fourth", epoch=1)
    log.publish_sealed(kit.orders, sealed)
    assert files.taken() == [Path(sealed.file).name, WATERMARK, SEGMENT]
    assert kit.values(kit.open()) == [b"first", b"second", b"third", b"fourth"]


def open_below(folder: Path) -> list[Path]:
    """The files of a folder that this process has open, whatever else it opens and closes meanwhile."""
    found: list[Path] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder of descriptors itself
            found.append(descriptor.readlink())
    return [path for path in found if path.is_relative_to(folder.resolve())]


def test_nothing_stays_open(kit: Kit, log: FileLog) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    assert open_below(kit.root) == []
    log.append(kit.orders, kit.batch("third"))
    log.publish_sealed(kit.orders, kit.seal("fourth", epoch=1))
    log.publish_sealed(kit.orders, kit.seal("fourth", epoch=1))
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_before(kit.orders, Offset(9))
    assert len(kit.values(log)) == 4
    assert open_below(kit.root) == []


def test_retention_that_was_seen_is_not_forgotten_for_an_older_look(kit: Kit, log: FileLog) -> None:
    assert log.end_within(kit.orders, Offset(0), Offset(2), 1 << 20) == 2
    kit.open().delete_before(kit.orders, Offset(1))
    assert log.earliest(kit.orders) == 1
    with pytest.raises(OffsetOutOfRangeError, match="begins at 1"):
        log.end_within(kit.orders, Offset(0), Offset(2), 1 << 20)
    assert log.end_within(kit.orders, Offset(1), Offset(2), 1 << 20) == 2


def test_what_was_seen_can_be_planned_after_others_have_rolled_and_deleted_it(kit: Kit, log: FileLog) -> None:
    kit.open().append(kit.orders, kit.batch("third"))
    end = log.latest(kit.orders)
    kit.limits = replace(kit.limits, segment_entries=2)
    other = kit.open()
    for value in ("fourth", "fifth", "sixth"):
        other.append(kit.orders, kit.batch(value))
    assert log.end_within(kit.orders, Offset(2), end, 1 << 20) == 3
    other.delete_before(kit.orders, Offset(5))
    seen = log.latest(kit.orders)
    assert log.end_within(kit.orders, Offset(5), seen, 1 << 20) == 6
    assert kit.values(log) == [b"sixth"]


def test_a_segment_that_is_gone_since_the_look_is_asked_for_where_the_partition_begins_now(
    kit: Kit, log: FileLog
) -> None:
    kit.open().append(kit.orders, kit.batch("third"))
    end = log.latest(kit.orders)
    kit.open().delete_before(kit.orders, Offset(3))  # in a new segment: the one that was seen is deleted
    with pytest.raises(OffsetOutOfRangeError, match="begins at 3"):
        log.end_within(kit.orders, Offset(2), end, 1 << 20)


def test_an_older_look_of_another_thread_does_not_take_the_index_back(kit: Kit, log: FileLog) -> None:
    partition = log._partition(kit.orders)
    before = read_watermark(partition.info.folder, partition.files)
    kit.open().append(kit.orders, kit.batch("third"))
    assert log.end_within(kit.orders, Offset(2), Offset(3), 1 << 20) == 3
    partition._seen = before  # as if a thread had read it long ago and were late to say so
    for start in (0, 2):
        assert log.end_within(kit.orders, Offset(start), Offset(3), 1 << 20) == 3
    assert kit.values(log) == [b"first", b"second", b"third"]


def test_batches_of_new_records_and_of_known_ones_are_the_same(kit: Kit, log: FileLog) -> None:
    other = kit.open()
    other.append(kit.orders, kit.batch("third"))
    other.publish_sealed(kit.orders, kit.seal("fourth", epoch=1))
    other.append(kit.orders, kit.batch("fifth"))
    new = kit.values(log, start=1)  # the last entries, just read, and one that is sealed among them
    assert new == kit.values(log, start=1) == [b"second", b"third", b"fourth", b"fifth"]


def test_two_steps_of_partitions_leave_half_of_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    together.partitions_at_once.cache_clear()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert together.partitions_at_once() * 3 * 2 <= 512
    together.partitions_at_once.cache_clear()


# Sealed files that tasks share


@pytest.fixture
def shared(kit: Kit) -> list[SealedRange]:
    """Ranges of six tasks in two files, in the order of the tasks."""
    ranges = []
    content = {"sealed/a": bytearray(b"before"), "sealed/b": bytearray(b"other")}
    for number in range(6):
        name = ("sealed/a", "sealed/b")[number % 2]
        chunks, (header,) = encode_blocks(kit.batch(f"row-{number}"), 0)
        block = b"".join(chunks)
        times = header.min_timestamp, header.max_timestamp
        stamp = Stamp("app", f"0_{number}", Epoch(1))
        ranges.append(SealedRange(name, len(content[name]), len(block), 1, *times, stamp))
        content[name] += block
    for name, data in content.items():
        (kit.root / name).parent.mkdir(exist_ok=True)
        (kit.root / name).write_bytes(data)
    return ranges


def flipped(path: Path, position: int) -> Iterator[None]:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    yield
    data[position] ^= 1
    path.write_bytes(data)


def test_a_file_that_tasks_share_is_opened_once_to_check_it(
    kit: Kit, log: FileLog, files: Counted, shared: list[SealedRange]
) -> None:
    log.publish_all((kit.orders, sealed) for sealed in shared)
    assert files.taken() == ["a", "b", WATERMARK, SEGMENT]
    assert kit.values(kit.open(), start=2) == [b"row-%d" % number for number in range(6)]


@pytest.mark.parametrize("number", range(6))
def test_damage_is_found_wherever_it_is_in_a_file_that_tasks_share(
    kit: Kit, log: FileLog, shared: list[SealedRange], number: int
) -> None:
    damaged = shared[number]
    for _ in flipped(kit.root / damaged.file, damaged.start + 20):
        with pytest.raises(InvalidPublicationError, match=f"Task 0_{number} of app.*checksum"):
            log.publish_all((kit.orders, sealed) for sealed in shared)
    assert log.latest(kit.orders) == 2


def test_what_was_deleted_here_is_not_planned_by_an_older_look(kit: Kit, log: FileLog) -> None:
    assert log.latest(kit.orders) == 2
    log.delete_before(kit.orders, Offset(1))
    with pytest.raises(OffsetOutOfRangeError, match="begins at 1"):
        log.end_within(kit.orders, Offset(0), Offset(2), 1 << 20)


@pytest.mark.parametrize("blocks", [1, 3])
def test_records_that_have_come_and_are_larger_than_a_window_are_read_whole(
    kit: Kit, log: FileLog, blocks: int
) -> None:
    """The window with which the index was brought up to date has the beginning of them alone."""
    chance = random.Random(blocks)
    values = [chance.randbytes((3 << 20) // blocks).hex() for _ in range(blocks)]
    for value in values:
        kit.open().append(kit.orders, kit.batch(value))
    batches = list(log.read(kit.orders, Offset(2), Offset(2 + blocks)))
    assert [value for batch in batches for value in batch.values()] == [value.encode() for value in values]
