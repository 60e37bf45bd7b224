"""Compaction against a plain dictionary: whoever reads on far enough has the last value of every key."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.log.sealing import sealed_range
from tests.simulation.faulty_files import FaultyFiles

from millstream import failpoints
from millstream.log import FileLog, LogRecordBatch, TimestampType, TopicConfig, TopicPartition, record_batch
from millstream.log.api import Beyond, SealedRange, Stamp
from millstream.log.blocks import encode_sparse_block
from millstream.log.embedded import index
from millstream.log.embedded.index import current_segments
from millstream.log.embedded.partition import Limits
from millstream.log.embedded.segment import SegmentName
from millstream.types import Epoch, Offset, Partition

WHERE = TopicPartition("t", Partition(0))
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.booleans()), min_size=1, max_size=6)
DELAY = 10

Row = tuple[str, bytes | None]


@dataclass
class Copy:
    """What a follower has made of the topic so far."""

    position: int = 0
    state: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: list[Row]) -> Copy:
        copy = cls()
        copy.apply(rows)
        return copy

    def apply(self, rows: list[Row]) -> None:
        for key, value in rows:
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value


def keyed(batch: LogRecordBatch) -> list[Row]:
    return [
        (str(key or b"", "ascii"), value) for key, value in zip(batch.keys(), batch.values(), strict=True)
    ]


def rows_of(log: FileLog, start: int, end: int) -> list[Row]:
    found: list[Row] = []
    offsets: list[int] = []
    position = start
    for batch in log.read(WHERE, Offset(start), Offset(end)):
        assert batch.base_offset == position
        position = batch.next_offset
        offsets += batch.offsets()
        found += [
            (str(key, "ascii"), value) for key, value in zip(batch.keys(), batch.values(), strict=True) if key
        ]
    assert position == end
    assert all(before < after for before, after in pairwise([start - 1, *offsets, end]))
    return found


class CompactionMachine(RuleBasedStateMachine):
    """A compacted topic, all that was ever written to it, and a follower."""

    @initialize(segment_entries=st.integers(1, 4), max_bytes=st.sampled_from([600, 64 << 20]))
    def create(self, segment_entries: int, max_bytes: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1_000
        self.log = FileLog(
            self.folder.name,
            limits=Limits(segment_entries=segment_entries, segment_bytes=max_bytes),
            now_ms=lambda: self.now,
        )
        self.log.create_topic("t", TopicConfig(is_compacted=True, delete_retention_ms=DELAY))
        self.written: list[Row] = []
        self.copy = Copy()

    @rule(rows=ROWS, later=st.integers(0, 2 * DELAY), is_sealed=st.booleans())
    def append(self, rows: list[tuple[str, bool]], later: int, is_sealed: bool) -> None:
        self.now += later
        new = [
            (key, None if is_delete else str(len(self.written) + number).encode())
            for number, (key, is_delete) in enumerate(rows)
        ]
        keys, values = [key.encode() for key, _ in new], [value for _, value in new]
        records = record_batch(keys, values, [self.now] * len(new))
        if is_sealed:
            self.epoch += 1
            sealed = sealed_range(self.log.root, records, epoch=self.epoch)
            assert self.log.publish_sealed(WHERE, sealed).published
        else:
            self.log.append(WHERE, records)
        self.written += new

    epoch = 0

    @rule(
        data=st.data(),
        later=st.integers(0, 3 * DELAY),
        min_dirty_ratio=st.sampled_from([0.0, 0.5]),
        beyond=st.sampled_from(["merge", "leave"]),
    )
    def compact(self, data: st.DataObject, later: int, min_dirty_ratio: float, beyond: Beyond) -> None:
        self.now += later * 3_600_000
        up_to = data.draw(st.integers(0, len(self.written)))
        self.log.rewrite(
            WHERE, min_entries=1, up_to=Offset(up_to), min_dirty_ratio=min_dirty_ratio, beyond=beyond
        )
        assert self.log.compacted(WHERE).to <= max(up_to, self.before)
        self.before = max(up_to, self.before)

    before = 0

    @rule(data=st.data())
    def follow(self, data: st.DataObject) -> None:
        compacted = self.log.compacted(WHERE)
        if self.copy.position < compacted.deletes_gone_to:
            self.copy = Copy()
        first = max(self.copy.position, min(compacted.to, len(self.written)))
        end = data.draw(st.integers(first, len(self.written)))
        self.copy.apply(rows_of(self.log, self.copy.position, end))
        self.copy.position = end
        assert self.copy.state == self.expected(end).state

    @rule()
    def collect(self) -> None:
        """Whatever no entry points into is gone."""
        needed = set(self.log.references())
        for path in self.log.root.glob("sealed/*/*"):
            if str(path.relative_to(self.log.root)) not in needed:
                path.unlink()

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(self.written)))
        end = data.draw(st.integers(start, len(self.written)))
        rows = iter(self.written[start:end])
        assert all(row in rows for row in rows_of(self.log, start, end)), (
            "in the order in which they were written"
        )

    @rule()
    def reopen(self) -> None:
        self.log = FileLog(self.folder.name, limits=self.log._limits, now_ms=lambda: self.now)

    @invariant()
    def a_new_copy_has_the_last_values(self) -> None:
        if hasattr(self, "log"):
            copy = Copy()
            copy.apply(rows_of(self.log, 0, len(self.written)))
            assert copy.state == self.expected(len(self.written)).state

    def expected(self, end: int) -> Copy:
        copy = Copy()
        copy.apply(self.written[:end])
        return copy

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestCompactionAgainstADictionary = CompactionMachine.TestCase
TestCompactionAgainstADictionary.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, print_blob=True
)


def filled(root: Path, files: FaultyFiles | None = None) -> FileLog:
    """Twelve entries in six segments; three keys, one of which is deleted in the end."""
    more = {} if files is None else {"files": files}
    log = FileLog(root, limits=Limits(segment_entries=2), now_ms=lambda: 50 * 3_600_000, **more)
    log.create_topic("t", TopicConfig(is_compacted=True, delete_retention_ms=0))
    for number in range(11):
        log.append(WHERE, record_batch([b"abc"[number % 3 :][:1]], [b"%d" % number], [number]))
    log.append(WHERE, record_batch([b"c"], [None], [11]))
    return log


def test_what_is_left_is_the_last_value_of_each_key_and_no_old_tombstone(tmp_path: Path) -> None:
    log = filled(tmp_path / "log")
    assert log.rewrite(WHERE, min_entries=1)
    (batch,) = log.read(WHERE, Offset(0))
    assert list(zip(batch.offsets(), batch.keys(), batch.values(), strict=True)) == [
        (9, b"a", b"9"),
        (10, b"b", b"10"),
        (11, b"c", None),
    ], "a tombstone of this very moment is not old"
    later = FileLog(tmp_path / "log", now_ms=lambda: 99 * 3_600_000)
    assert later.rewrite(WHERE, min_entries=1, min_dirty_ratio=0) is False, "nothing is new"
    later.append(WHERE, record_batch([b"a"], [b"12"], [12]))
    assert later.rewrite(WHERE, min_entries=1, min_dirty_ratio=0)
    (batch,) = later.read(WHERE, Offset(0))
    assert list(zip(batch.offsets(), batch.keys(), strict=True)) == [(10, b"b"), (12, b"a")]
    assert (later.compacted(WHERE).to, later.compacted(WHERE).deletes_gone_to) == (13, 12)
    assert len(list((tmp_path / "log/topics/t/0").glob("*.segment"))) == 2


def test_what_is_behind_the_bound_stays_where_it_is_in_the_same_segment(tmp_path: Path) -> None:
    """In one go: nothing has to be closed first, and wait until the bound is behind it."""
    log = FileLog(tmp_path / "log", now_ms=lambda: 50 * 3_600_000)
    log.create_topic("t", TopicConfig(is_compacted=True, delete_retention_ms=0))
    for number in range(6):
        rows = record_batch([b"k", b"%d" % number], [b"%d" % number, None], [number] * 2)
        log.publish_sealed(WHERE, sealed_range(log.root, rows, epoch=number + 1))
    assert log.rewrite(WHERE, min_entries=1, up_to=Offset(9), beyond="leave")
    assert set(log.references()) == {f"sealed/app/0_0-{epoch}-0" for epoch in (5, 6)}, (
        "a bound within the fifth leaves the whole of it"
    )
    assert rows_of(log, 0, 12) == [
        ("0", None),
        ("1", None),
        ("2", None),
        ("k", b"3"),
        ("3", None),
        ("k", b"4"),
        ("4", None),
        ("k", b"5"),
        ("5", None),
    ]
    assert log.compacted(WHERE).to == 8
    assert len(list((tmp_path / "log/topics/t/0").glob("*.segment"))) == 2
    later = FileLog(tmp_path / "log", now_ms=lambda: 99 * 3_600_000)
    assert later.rewrite(WHERE, min_entries=1, up_to=Offset(10), min_dirty_ratio=0, beyond="leave")
    assert (later.compacted(WHERE).to, later.compacted(WHERE).deletes_gone_to) == (10, 10), (
        "nothing was left out behind the bound"
    )
    assert rows_of(later, 0, 12) == [("k", b"4"), ("k", b"5"), ("5", None)]


def test_what_a_crashed_compaction_did_not_reach_is_still_to_be_compacted(tmp_path: Path) -> None:
    """A segment that is done says how far the compaction went; if joined with others, it spoke for them."""
    log = FileLog(tmp_path / "log", limits=Limits(segment_entries=1, segment_bytes=400), now_ms=lambda: 0)
    log.create_topic("t", TopicConfig(is_compacted=True, delete_retention_ms=0))
    for key, value in [("a", b"1" * 300), ("b", b"1" * 300), ("b", b"2" * 300), ("b", None)]:
        log.append(WHERE, record_batch([key.encode()], [value], [1]))
    with (
        failpoints.armed("log.replaced_removed", "raise", skip=1),
        pytest.raises(failpoints.InjectedCrash),
    ):
        log.rewrite(WHERE, min_entries=1)
    assert [row[0] for row in rows_of(log, 0, 4)] == ["a", "b", "b"], "the first two are done"
    later = FileLog(tmp_path / "log", now_ms=lambda: 99 * 3_600_000)
    later.rewrite(WHERE, min_entries=1, min_dirty_ratio=0.99)
    assert len(rows_of(later, 0, 4)) == 3, "folded only"
    later.append(WHERE, record_batch([b"c"], [b"4"], [1]))
    assert later.rewrite(WHERE, min_entries=1, min_dirty_ratio=0)
    assert [row[0] for row in rows_of(later, 0, 5)] == ["a", "c"], "with the tombstone goes what it deletes"


def test_a_compaction_up_to_less_after_a_crashed_one_says_nothing_of_what_is_behind(
    tmp_path: Path,
) -> None:
    """The first segment was done for all; then it is joined with one of which only a part is."""
    now = 0
    limits = Limits(segment_bytes=9_000, segment_entries=4)
    log = FileLog(tmp_path / "log", limits=limits, now_ms=lambda: now)
    log.create_topic("t", TopicConfig(is_compacted=True, delete_retention_ms=10))
    large = random.Random(1).randbytes(2_500)
    rows: list[Row] = [("w", b"1"), ("x", large), ("x", large), ("x", large)]
    rows += [("k", b"alive"), ("x", large), ("k", None), ("z", large), ("x", b"2")]
    for key, value in rows:
        log.append(WHERE, record_batch([key.encode()], [value], [1]))
    with failpoints.armed("log.rewritten_named", "raise"), pytest.raises(failpoints.InjectedCrash):
        log.rewrite(WHERE, min_entries=1, min_dirty_ratio=0)
    log = FileLog(tmp_path / "log", limits=limits, now_ms=lambda: now)
    for up_to in (6, 9, 10):
        now += 1_000
        log.rewrite(WHERE, min_entries=1, min_dirty_ratio=0, up_to=Offset(up_to))
        assert "k" not in Copy.of(rows_of(log, 0, log.latest(WHERE))).state
        log.append(WHERE, record_batch([b"q"], [b"%d" % up_to], [1]))


def test_places_in_a_block_are_bounded_by_four_bytes(tmp_path: Path) -> None:
    """A few keys, after more than four thousand million records: hardly any row, and a very long way."""
    log = FileLog(tmp_path / "log", now_ms=lambda: 0)
    log.create_topic("t", TopicConfig(is_compacted=True))
    span = 1_500_000_000
    for epoch in range(1, 5):
        one = record_batch([b"k%d" % epoch], [b"v"], [1])
        chunks, header = encode_sparse_block(one, pa.array([span - 1]), span, 0)
        (log.root / f"sealed-{epoch}").write_bytes(b"".join(chunks))
        stamp = Stamp("app", "0_0", Epoch(epoch))
        log.publish_sealed(WHERE, SealedRange(f"sealed-{epoch}", 0, header.length, span, 1, 1, stamp))
        log.rewrite(WHERE, min_entries=1, min_dirty_ratio=0)
    assert rows_of(log, 0, 4 * span) == [(f"k{epoch}", b"v") for epoch in range(1, 5)]


def test_what_was_folded_since_the_last_compaction_still_counts_as_new(tmp_path: Path) -> None:
    """Each time too little is new; folded with the rest it must not be forgotten, or a topic would grow."""
    log = FileLog(tmp_path / "log", now_ms=lambda: 0)
    log.create_topic("t", TopicConfig(is_compacted=True))
    for number in range(100):
        log.append(WHERE, record_batch([b"%d" % number], [bytes(1_000)], [number]))
    log.rewrite(WHERE, min_entries=1)
    found: list[int] = []
    for number in range(200):
        log.append(WHERE, record_batch([b"%d" % (number % 10)], [bytes(1_000)], [number]))
        log.rewrite(WHERE, min_entries=1, min_dirty_ratio=0.1)
        found.append(len(rows_of(log, 0, log.latest(WHERE))))
    assert 105 < max(found) < 120


def test_a_reader_that_is_under_way_reads_on(tmp_path: Path) -> None:
    log = filled(tmp_path / "log")
    expected = rows_of(log, 0, 12)
    other = FileLog(tmp_path / "log")
    reading = other.read(WHERE, Offset(0))
    assert log.rewrite(WHERE, min_entries=1)
    found = Copy()
    for batch in reading:
        found.apply(keyed(batch))
    whole = Copy()
    whole.apply(expected)
    assert found.state == whole.state


POINTS = [
    "log.rewritten_named",
    "log.replaced_removed",
    "durable.linked",
    "durable.folder_synced",
    "log.locked",
]


@pytest.mark.parametrize("action", ["raise", "torn-raise"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_while_segments_are_rewritten_changes_nothing(
    tmp_path: Path, point: str, action: failpoints.Action
) -> None:
    fired = 0
    for skip in range(4):
        files = FaultyFiles(tmp_path / str(skip))
        (tmp_path / str(skip)).mkdir(0o700)
        log = filled(tmp_path / str(skip) / "log", files)
        with failpoints.armed(point, action, skip=skip) as armed:
            try:
                log.rewrite(WHERE, min_entries=1)
            except failpoints.InjectedCrash:
                files.power_cut()
        fired += armed.fired
        again = FileLog(tmp_path / str(skip) / "log", limits=Limits(segment_entries=2), files=files)
        copy = Copy()
        copy.apply(rows_of(again, 0, 12))
        assert copy.state == {"a": b"9", "b": b"10"}
        again.rewrite(WHERE, min_entries=1)
        assert rows_of(again, 0, 12)[:2] == [("a", b"9"), ("b", b"10")]
        assert len(list((tmp_path / str(skip) / "log/topics/t/0").glob("*.segment"))) == 2
    assert fired


def test_folding_keeps_the_time_at_which_records_were_appended(tmp_path: Path) -> None:
    now = [1_000_000]
    log = FileLog(tmp_path / "log", now_ms=lambda: now[0])
    config = TopicConfig(timestamp_type=TimestampType.LOG_APPEND_TIME, retention_ms=1_000)
    log.create_topic("t", config)
    for _ in range(5):
        log.append(WHERE, record_batch([b"k"], [b"v"], [3]))
        now[0] += 10
        log.rewrite(WHERE, min_entries=1)
    assert [time for batch in log.read(WHERE, Offset(0)) for time in batch.timestamps()] == [
        1_000_000 + 10 * number for number in range(5)
    ]
    assert log.offset_for_time(WHERE, 1_000_015) == 2
    assert log.max_timestamp(WHERE, Offset(0), Offset(5)) == 1_000_040
    assert log.retain(WHERE) == 0
    now[0] += 1_020
    assert log.retain(WHERE) == 5


def test_by_size_a_segment_goes_only_if_what_is_left_is_that_size(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log", limits=Limits(segment_entries=1), now_ms=lambda: 0)
    log.create_topic("t", TopicConfig(retention_bytes=12_000))
    for number in range(20):
        log.append(WHERE, record_batch([b"%d" % number], [bytes(3_000)], [number]))
        first = log.retain(WHERE)
        kept = sum(len(value or b"") for batch in log.read(WHERE, first) for value in batch.values())
        assert kept >= min(12_000, 3_000 * (number + 1))
    assert first == 16, "four of 3,000 and their headers"
    assert log.retain(WHERE, spare=Offset(3)) == 16, "what is gone is gone"


def test_nothing_goes_that_is_to_be_spared(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log", limits=Limits(segment_entries=1), now_ms=lambda: 0)
    log.create_topic("t", TopicConfig(retention_bytes=10_000))
    for number in range(20):
        log.append(WHERE, record_batch([b"%d" % number], [bytes(3_000)], [number]))
    assert log.retain(WHERE, spare=Offset(5)) == 5


def test_segments_are_not_joined_beyond_a_part_of_what_is_retained(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log", limits=Limits(segment_entries=1), now_ms=lambda: 0)
    log.create_topic("t", TopicConfig(retention_bytes=100_000))
    for number in range(60):
        log.append(WHERE, record_batch([b"%d" % number], [bytes(3_000)], [number]))
    log.rewrite(WHERE, min_entries=1)
    largest = max(path.stat().st_size for path in (tmp_path / "log/topics/t/0").glob("*.segment"))
    assert 6_000 < largest < 100_000 / 8 + 1_000


def test_many_segments_behind_a_bound_that_does_not_move_are_joined(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log", limits=Limits(segment_entries=1), now_ms=lambda: 0)
    log.create_topic("t", TopicConfig(is_compacted=True))
    for number in range(200):
        log.append(WHERE, record_batch([b"k"], [b"%d" % number], [number]))
        log.rewrite(WHERE, min_entries=1, up_to=Offset(10), min_dirty_ratio=0)
    assert len(list((tmp_path / "log/topics/t/0").glob("*.segment"))) < 50
    values = [value for batch in log.read(WHERE, Offset(0)) for value in batch.values()]
    assert values[-190:] == [b"%d" % number for number in range(10, 200)]


def test_an_entry_of_which_everything_has_expired_is_compacted_again(tmp_path: Path) -> None:
    """The rows of an hour have entries of their own, so one that is hours old may hold nothing any more."""
    now = 0
    log = FileLog(tmp_path, limits=Limits(segment_entries=1), now_ms=lambda: now)
    log.create_topic("t", TopicConfig(is_compacted=True))

    def expired(note: bytes) -> tuple[bytes, bytes]:
        return b"\0", note

    for hour in range(1, 5):
        now = hour * 3_600_000
        key = b"%d" % hour
        log.append(WHERE, record_batch([b"", key], [key, b"window"], [now, now]))
        log.rewrite(WHERE, min_entries=1, min_dirty_ratio=0, expired=expired)
    log.append(WHERE, record_batch([b""], [b"5"], [now]))
    log.rewrite(WHERE, min_entries=1, min_dirty_ratio=0, expired=expired)
    assert rows_of(log, 0, log.latest(WHERE)) == []
    (note,) = [batch.values()[-1] for batch in log.read(WHERE, Offset(8), Offset(9))]
    assert note == b"5"


@pytest.mark.parametrize("asks_for_size", [True, False])
def test_whoever_asks_for_sizes_and_files_looks_again_if_a_segment_was_just_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, asks_for_size: bool
) -> None:
    filled(tmp_path / "log")
    writer, reader = FileLog(tmp_path / "log"), FileLog(tmp_path / "log")
    before = reader.raw_size(WHERE)
    replaced: list[bool] = []

    def listed(folder: Path) -> list[SegmentName]:
        names = current_segments(folder)
        if not replaced:
            replaced.append(True)
            writer.rewrite(WHERE, min_entries=1)
        return names

    reader = FileLog(tmp_path / "log")
    monkeypatch.setattr(index, "current_segments", listed)
    if asks_for_size:
        assert 0 < reader.raw_size(WHERE) < before
    else:
        assert set(reader.references()) == set()
    assert replaced


def test_a_read_goes_on_if_segments_are_replaced_again_while_it_looks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once before its first batch, and once more when it has found the names of the new segments."""
    limits = Limits(segment_entries=3)
    writer, reader = (FileLog(tmp_path / "log", limits=limits) for _ in range(2))
    writer.create_topic("t", TopicConfig())
    values = [b"%d" % number for number in range(18)]
    for value in values[:12]:
        writer.append(WHERE, record_batch([value], [value], [0]))
    batches = reader.read(WHERE, Offset(0), Offset(12))
    assert writer.rewrite(WHERE, min_entries=1)
    replaced: list[bool] = []

    def listed(folder: Path) -> list[SegmentName]:
        names = current_segments(folder)
        if not replaced:
            replaced.append(True)
            for value in values[12:]:
                writer.append(WHERE, record_batch([value], [value], [0]))
            assert writer.rewrite(WHERE, min_entries=1)
        return names

    monkeypatch.setattr(index, "current_segments", listed)
    assert [value for batch in batches for value in batch.values()] == values[:12]
    assert replaced
