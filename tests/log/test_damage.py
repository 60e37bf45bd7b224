"""Damaged files: every cut and every flipped bit is an error, or harmless. Never another answer.

Run again with the seed that was printed: ``MILLSTREAM_SEED=... pytest tests/log/test_damage.py``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.errors import MillstreamError
from millstream.log import FileLog
from millstream.log.errors import DamagedLogError
from millstream.types import Offset

if TYPE_CHECKING:
    from tests.log.conftest import Kit

VALUES = [b"a1", b"a2", b"p1", b"a3", b"a4", b"p2", b"a5", b"a6"]


@pytest.fixture
def filled(kit: Kit, log: FileLog) -> Kit:
    """Two segments, four entries in the first; appended and published records in both."""
    log.append(kit.orders, kit.batch("a1", "a2"))
    log.publish_sealed(kit.orders, kit.seal("p1", epoch=1))
    log.append(kit.orders, kit.batch("a3"))
    log.append(kit.orders, kit.batch("a4"))
    log.publish_sealed(kit.orders, kit.seal("p2", epoch=2))
    log.append(kit.orders, kit.batch("a5", "a6"))
    assert kit.values(kit.open()) == VALUES
    return kit


def files_of(kit: Kit) -> list[Path]:
    return sorted(path for path in kit.root.rglob("*") if path.is_file() and path.name != "lock")


def overwrite(path: Path, content: bytes | bytearray) -> None:
    """Give a file other content, in place: thousands of new files would be slow."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(content)
        file.truncate()


@contextmanager
def unchanged(kit: Kit) -> Iterator[None]:
    """Put every file back as it was."""
    before = {path: path.read_bytes() for path in files_of(kit)}
    yield
    for path, content in before.items():
        if not path.exists() or path.read_bytes() != content:
            overwrite(path, content)


def outcome(kit: Kit) -> str:
    """Read everything and ask for times and positions; then append. Return what became of it."""
    try:
        log = kit.open()
        found = kit.values(log)
        assert found == VALUES
        assert log.offset_for_time(kit.orders, 6) == 1
        assert (log.earliest(kit.orders), log.latest(kit.orders)) == (0, len(VALUES))
        assert log.publications(kit.orders)["app", "0_0"].epoch == 2
        assert log.append(kit.orders, kit.batch("new")).base_offset == len(VALUES)
        assert kit.values(kit.open()) == [*VALUES, b"new"]
    except MillstreamError:
        return "error"
    return "harmless"


def test_every_cut_of_every_file_is_an_error_or_harmless(filled: Kit) -> None:
    seen: dict[str, set[str]] = {}
    for path in files_of(filled):
        content = path.read_bytes()
        for length in range(len(content)):
            with unchanged(filled):
                os.truncate(path, length)
                seen.setdefault(path.name, set()).add(outcome(filled))
    assert seen.pop("end") == {"harmless"}
    for name, outcomes in seen.items():
        expected = {"error", "harmless"} if name.startswith("0_0") else {"error"}
        assert outcomes == expected, name


def test_a_thousand_flipped_bits_are_errors_or_harmless(filled: Kit) -> None:
    seed = os.environ.get("MILLSTREAM_SEED") or str(random.SystemRandom().randrange(2**32))
    print(f"replay with MILLSTREAM_SEED={seed}")
    rng = random.Random(seed)
    paths = files_of(filled)
    sizes = [path.stat().st_size for path in paths]
    seen: set[str] = set()
    for _ in range(1_000):
        (path,) = rng.choices(paths, sizes)
        with unchanged(filled):
            content = bytearray(path.read_bytes())
            bit = rng.randrange(8 * len(content))
            content[bit // 8] ^= 1 << bit % 8
            overwrite(path, content)
            seen.add(outcome(filled))
    assert seen == {"error", "harmless"}


def test_every_deleted_file_is_an_error_except_the_watermark(filled: Kit) -> None:
    for path in files_of(filled):
        with unchanged(filled):
            path.unlink()
            assert outcome(filled) == ("harmless" if path.name == "end" else "error"), path


def test_a_torn_tail_is_cut_at_every_byte_and_the_rest_goes_on(kit: Kit, log: FileLog) -> None:
    folder = kit.root / "topics" / "orders" / "0"
    segment, end = folder / "00000000000000000000.segment", folder / "end"
    log.append(kit.orders, kit.batch("a"))
    acknowledged, watermark = segment.read_bytes(), end.read_bytes()
    log.append(kit.orders, kit.batch("b", "c"))
    whole = segment.read_bytes()
    for length in range(len(acknowledged), len(whole) + 1):
        overwrite(segment, whole[:length])
        overwrite(end, watermark)  # the writer died, or the power cut took the newer one
        is_whole = length == len(whole)
        for _ in range(2):
            assert kit.values(kit.open()) == ([b"a", b"b", b"c"] if is_whole else [b"a"])
        assert segment.read_bytes() == (whole if is_whole else acknowledged)
        assert kit.open().append(kit.orders, kit.batch("d")).base_offset == (3 if is_whole else 1)


def test_a_tail_that_is_there_in_length_only_is_cut(kit: Kit, log: FileLog) -> None:
    folder = kit.root / "topics" / "orders" / "0"
    segment, end = folder / "00000000000000000000.segment", folder / "end"
    log.append(kit.orders, kit.batch("a"))
    acknowledged, watermark = segment.read_bytes(), end.read_bytes()
    log.append(kit.orders, kit.batch("b", "c"))
    whole = segment.read_bytes()
    cut_off = 0
    for position in range(len(acknowledged), len(whole)):
        overwrite(segment, whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        overwrite(end, watermark)
        found = kit.values(kit.open())
        assert found in ([b"a"], [b"a", b"b", b"c"])
        cut_off += found == [b"a"]
    padding = len(whole) - len(whole.rstrip(b"\0"))
    assert cut_off >= len(whole) - len(acknowledged) - padding


def test_damage_above_an_old_watermark_is_no_torn_tail_if_a_later_append_follows(
    kit: Kit, log: FileLog
) -> None:
    folder = kit.root / "topics" / "orders" / "0"
    segment, end = folder / "00000000000000000000.segment", folder / "end"
    log.append(kit.orders, kit.batch("a"))
    acknowledged, watermark = segment.read_bytes(), end.read_bytes()
    log.append(kit.orders, kit.batch("damaged"))
    damaged = segment.read_bytes()
    log.append(kit.orders, kit.batch("later"))
    whole = segment.read_bytes()
    noticed = 0
    for position in range(len(acknowledged), len(damaged.rstrip(b"\0"))):
        content = whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
        overwrite(segment, content)
        overwrite(end, watermark)  # the power cut took the newer one
        try:
            found = kit.values(kit.open())
        except MillstreamError:
            noticed += 1
            assert segment.read_bytes() == content
        else:
            assert found == [b"a", b"damaged", b"later"]  # a byte that nobody reads
    assert noticed > 0.9 * (len(damaged) - len(acknowledged))


@pytest.mark.parametrize("later", [False, True])
def test_only_the_last_publication_can_be_torn(kit: Kit, log: FileLog, later: bool) -> None:
    """The entries of one publication may reach the disk in any order; those of two may not."""
    folder = kit.root / "topics" / "orders" / "0"
    segment, end = folder / "00000000000000000000.segment", folder / "end"
    start, watermark = len(segment.read_bytes()), end.read_bytes()
    both = [kit.seal("a", epoch=1, task="0_0"), kit.seal("b", epoch=1, task="0_1")]
    log.publish_all((kit.orders, sealed) for sealed in both)
    if later:
        kit.clock.now += 1
        log.publish_sealed(kit.orders, kit.seal("c", epoch=2))
    whole = segment.read_bytes()
    overwrite(segment, whole[:start] + bytes(20) + whole[start + 20 :])
    overwrite(end, watermark)
    if later:
        with pytest.raises(MillstreamError, match="damaged"):
            kit.values(kit.open())
    else:
        assert kit.values(kit.open()) == []


def test_a_tail_of_zeros_is_cut(kit: Kit, log: FileLog) -> None:
    folder = kit.root / "topics" / "orders" / "0"
    log.append(kit.orders, kit.batch("a"))
    with (folder / "00000000000000000000.segment").open("ab") as segment:
        segment.write(bytes(5_000))
    assert kit.values(kit.open()) == [b"a"]
    assert log.append(kit.orders, kit.batch("b")).base_offset == 1


def test_damage_in_the_middle_names_the_file_and_the_place(filled: Kit) -> None:
    folder = filled.root / "topics" / "orders" / "0"
    segment = folder / "00000000000000000000.segment"
    content = segment.read_bytes()
    at = content.index(b"MSEN")
    for position, match in (
        (
            at + 20,
            rf"the entry at byte {at} of .*{segment.name} is damaged: its checksum does not match.*Remedy",
        ),
        (
            content.index(b"MSBK") + 200,
            rf"The block at byte \d+ of .*{segment.name} is damaged: .* records.*Remedy",
        ),
    ):
        with unchanged(filled):
            broken = bytearray(content)
            broken[position] ^= 1
            segment.write_bytes(broken)
            with pytest.raises(MillstreamError, match=match):
                filled.values(filled.open())


def test_a_damaged_watermark_and_a_torn_tail_together_are_refused_with_the_ways_out(
    kit: Kit, log: FileLog
) -> None:
    folder = kit.root / "topics" / "orders" / "0"
    segment = folder / "00000000000000000000.segment"
    log.append(kit.orders, kit.batch("a"))
    length = segment.stat().st_size
    log.append(kit.orders, kit.batch("b"))
    os.truncate(segment, segment.stat().st_size - 1)
    (folder / "end").write_bytes(b"")
    with pytest.raises(
        DamagedLogError,
        match=rf"watermark .* is damaged, and .* not whole after byte {length} .*truncate -s {length}",
    ):
        kit.values(kit.open())
    os.truncate(segment, length)
    assert kit.values(kit.open()) == [b"a"]


def test_files_of_another_partition_or_time_are_refused(kit: Kit, log: FileLog) -> None:
    log.create_topic("other")
    for topic in ("orders", "other"):
        log.append(type(kit.orders)(topic, kit.orders.partition), kit.batch("a", "b"))
    mine, foreign = (
        kit.root / "topics" / topic / "0" / "00000000000000000000.segment" for topic in ("orders", "other")
    )
    old = mine.read_bytes()
    mine.write_bytes(foreign.read_bytes())
    with pytest.raises(DamagedLogError, match="a file was copied from elsewhere"):
        kit.values(kit.open())
    mine.write_bytes(old)
    log.append(kit.orders, kit.batch("c"))
    mine.write_bytes(old)
    with pytest.raises(DamagedLogError, match=r"has \d+ bytes, but \d+ were acknowledged"):
        kit.values(kit.open())


def test_a_topic_folder_that_was_renamed_is_refused(kit: Kit, log: FileLog) -> None:
    (kit.root / "topics" / "orders").rename(kit.root / "topics" / "renamed")
    with pytest.raises(MillstreamError, match="'renamed' holds a topic called 'orders'"):
        kit.open().latest(type(kit.orders)("renamed", kit.orders.partition))


def test_a_reader_is_not_misled_by_a_writer_that_died_just_now(kit: Kit, log: FileLog) -> None:
    reader = kit.open()
    log.append(kit.orders, kit.batch("a"))
    assert reader.latest(kit.orders) == 1
    with (kit.root / "topics" / "orders" / "0" / "00000000000000000000.segment").open("ab") as segment:
        segment.write(b"MSEN torn")
    assert reader.latest(kit.orders) == 1
    assert kit.values(reader, start=0) == [b"a"]
    log.append(kit.orders, kit.batch("b"))
    assert kit.values(reader, start=1) == [b"b"]
    assert [value for batch in reader.read(kit.orders, Offset(0)) for value in batch.values()] == [b"a", b"b"]
