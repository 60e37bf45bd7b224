"""The log against a plain list: whatever is done, in whatever order, it reads like the list."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from millstream.durable import create_exclusive
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.log.api import SealedRange, Stamp
from millstream.log.blocks import encode_blocks
from millstream.log.embedded.partition import Limits
from millstream.types import Epoch, Offset, Partition

WHERE = TopicPartition("t", Partition(0))
VALUES = st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=4)
TIMES = st.integers(0, 20)


class LogMachine(RuleBasedStateMachine):
    """Two open logs on one folder, and a list."""

    sealed = Bundle("sealed")

    @initialize(segment_entries=st.integers(1, 4))
    def create(self, segment_entries: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.limits = Limits(segment_entries=segment_entries)
        self.logs = [FileLog(self.folder.name, limits=self.limits) for _ in range(2)]
        self.logs[0].create_topic("t")
        self.model: list[tuple[bytes | None, int]] = []
        self.start = 0
        self.last_epoch: dict[str, int] = {}
        self.files = 0
        self.published: set[str] = set()

    @rule(which=st.integers(0, 1), values=VALUES, time=TIMES)
    def append(self, which: int, values: list[bytes | None], time: int) -> None:
        times = [time + i for i in range(len(values))]
        result = self.logs[which].append(WHERE, record_batch([None] * len(values), values, times))
        assert result.base_offset == len(self.model)
        self.model += zip(values, times, strict=True)

    @rule(target=sealed, values=VALUES, time=TIMES, task=st.sampled_from("ab"), epoch=st.integers(1, 6))
    def seal(
        self, values: list[bytes | None], time: int, task: str, epoch: int
    ) -> tuple[SealedRange, list[bytes | None]]:
        chunks, (header,) = encode_blocks(record_batch([None] * len(values), values, [time] * len(values)), 0)
        self.files += 1
        name = f"sealed-{self.files}"
        length = create_exclusive(Path(self.folder.name) / name, [b"head", *chunks]) - 4
        return SealedRange(name, 4, length, header.rows, time, time, Stamp("app", task, Epoch(epoch))), values

    @rule(which=st.integers(0, 1), item=sealed)
    def publish(self, which: int, item: tuple[SealedRange, list[bytes | None]]) -> None:
        sealed, values = item
        if not (Path(self.folder.name) / sealed.file).exists():
            return
        is_new = sealed.stamp.epoch > self.last_epoch.get(sealed.stamp.task, 0)
        assert self.logs[which].publish_sealed(WHERE, sealed).published == is_new
        if is_new:
            self.last_epoch[sealed.stamp.task] = sealed.stamp.epoch
            self.published.add(sealed.file)
            self.model += [(value, sealed.min_timestamp) for value in values]

    @rule(which=st.integers(0, 1), data=st.data())
    def delete(self, which: int, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, len(self.model)))
        self.logs[which].delete_before(WHERE, Offset(self.start))

    @rule(which=st.integers(0, 1), min_entries=st.integers(1, 3))
    def fold(self, which: int, min_entries: int) -> None:
        log = self.logs[which]
        log.rewrite(WHERE, min_entries=min_entries)
        assert not log.rewrite(WHERE, min_entries=1_000), "all was done"
        for name in self.published - set(log.references()):
            (Path(self.folder.name) / name).unlink()  # the collector's work
            self.published.remove(name)

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.logs[which] = FileLog(self.folder.name, limits=self.limits)

    @rule(which=st.integers(0, 1), data=st.data())
    def read(self, which: int, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.start, len(self.model)))
        end = data.draw(st.integers(start, len(self.model)))
        batches = list(self.logs[which].read(WHERE, Offset(start), Offset(end)))
        found = [pair for batch in batches for pair in zip(batch.values(), batch.timestamps(), strict=True)]
        assert found == self.model[start:end]

    @rule(which=st.integers(0, 1), time=TIMES, data=st.data())
    def search(self, which: int, time: int, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.start, len(self.model)))
        expected = next((i for i in range(start, len(self.model)) if self.model[i][1] >= time), None)
        assert self.logs[which].offset_for_time(WHERE, time, Offset(start)) == expected

    @invariant()
    def bounds_agree(self) -> None:
        for log in getattr(self, "logs", ()):
            assert (log.earliest(WHERE), log.latest(WHERE)) == (self.start, len(self.model))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestLogAgainstAList = LogMachine.TestCase
TestLogAgainstAList.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, print_blob=True
)
