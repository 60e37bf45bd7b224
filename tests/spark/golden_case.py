"""A golden case as an application that lives by epochs: what to feed it next, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.semantics.golden import (
    Dump,
    Entry,
    Golden,
    Line,
    Pipe,
    Step,
    Topic,
    WallClock,
    entries,
    serde,
)

from millstream import Record, StreamsConfig, Topology
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CommitCoordinator
from millstream.commit.epoch_job import EpochJob, PlannedTask
from millstream.commit.manifest import Manifest
from millstream.commit.publisher import EmbeddedPublisher
from millstream.commit.store_opening import opened_stores
from millstream.engine.program import Program, make_worker
from millstream.errors import MillstreamError
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.state.stores.factory import open_store
from millstream.task.serde_book import SerdeBook
from millstream.topology.plan import Plan, SubTopology
from millstream.types import Offset, Partition

# One record becomes several behind a repartition, and a cached table there sends one update per key for all
# of them: the last update of each key is Kafka's, those before are not sent.
COLLAPSED = {
    "foreign_key_join_then_group_by",
    "foreign_key_join_then_group_by_random",
    "foreign_key_left_join_then_group_by",
    "foreign_key_left_join_then_group_by_random",
    "session_table_group_by_key",
    "table_group_by_of_counts",
    "table_group_by_three_levels",
    "word_count",
}


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps of a script that make one epoch: a passage of time, or records of one topic."""

    steps: tuple[Step, ...]


def segments(golden: Golden, plan: Plan) -> Iterator[Segment]:
    """The script, cut into epochs so that an epoch gives what its records one by one give.

    An epoch reads several topics in the order of time, a script in its own order: so an epoch has one
    topic, and one record if rows of several repartitions meet. A cached table sends one update per key
    and epoch: so with one, an epoch has one record. So it does where the topology feeds a global table,
    which has what a record sends to it from the next epoch on. What fails takes the whole epoch with it:
    so it comes alone.
    """
    written = {sink.topic for sub in plan.subtopologies for sink in sub.sinks}
    feeds_global = any(_topics_of(sub) & written for sub in plan.global_subtopologies)
    alone = feeds_global or any(
        any(spec.caching for spec in sub.stores.values())
        or (len(topics := _topics_of(sub)) > 1 and topics & plan.repartition_topics.keys())
        for sub in plan.subtopologies
    )
    pending: list[Step] = []
    for step in golden.script:
        joins = (
            pending
            and not alone
            and not step.fails
            and isinstance(step.action, Pipe)
            and isinstance(pending[-1].action, Pipe)
            and pending[-1].action.line.topic == step.action.line.topic
        )
        if pending and not joins:
            yield Segment(tuple(pending))
            pending = []
        pending.append(step)
    if pending:
        yield Segment(tuple(pending))


def _topics_of(sub: SubTopology) -> set[str]:
    return {topic for source in sub.sources for topic in source.topics}


class GoldenCase:
    """One case on its way through its script."""

    def __init__(self, golden: Golden, topology: Topology, folder: Path, application_id: str) -> None:
        self.golden = golden
        self.failed: MillstreamError | None = None
        self._plan = topology.plan()
        self._now = 0
        self._log = FileLog(folder / "log")
        storage = ApplicationStorage(folder / "log", application_id)
        self.program = Program(
            topology, StreamsConfig(), storage, self._log.address, folder / "state", "lmdb"
        )
        for topic in {topic.name for topic in (*golden.inputs, *golden.outputs)}:
            self._log.create_topic(topic)
        self._segments = list(segments(golden, self._plan))
        self._driver = CommitCoordinator(
            storage,
            self._log,
            EmbeddedPublisher(storage, self._log),
            self._plan,
            clock=lambda: self._now,
        )
        self._driver.open()
        self._is_opened = not any(isinstance(step.action, WallClock) for step in golden.script)

    def next_job(self) -> EpochJob | None:
        """The next epoch; None at the end. What the topology wrote for itself comes before new input."""
        if self.failed is not None:
            return None
        if not self._is_opened:  # processors schedule their punctuators when the clock is still at the start
            self._is_opened = True
            return self._driver.plan_epoch(tick=True)
        job = self._driver.plan_epoch()
        while job is None and self._segments:
            tick = self._feed(self._segments.pop(0))
            job = self._driver.plan_epoch(tick=tick)
        return job

    def take(self, job: EpochJob, answer: Any) -> Manifest | None:
        """Commit an epoch, or remember why it failed."""
        if isinstance(answer, MillstreamError):
            self.failed = answer
            return None
        manifest = self._driver.commit(job, answer)
        self._driver.publish(manifest)
        return manifest

    def expected_outputs(self) -> dict[tuple[str, str], list[str]]:
        """What the file says; a topic that is written and piped into holds both."""
        written = {topic.name for topic in self.golden.outputs}
        lines: list[Line] = []
        for step in self.golden.script:
            if isinstance(step.action, Pipe) and step.action.line.topic in written:
                lines.append(step.action.line)
            lines += step.outputs
        return _by_topic_and_key(lines)

    def outputs(self) -> dict[tuple[str, str], list[str]]:
        """The lines of each topic and key, in order."""
        return _by_topic_and_key([line for topic in self.golden.outputs for line in self._lines(topic)])

    def stores(self) -> list[Dump]:
        """The stores of the file as they are on disk, at the head."""
        return [Dump(dump.name, dump.kind, tuple(self._entries(dump))) for dump in self.golden.stores]

    def close(self) -> None:
        self._driver.close()

    def _feed(self, segment: Segment) -> bool:
        for step in segment.steps:
            if isinstance(step.action, WallClock):
                self._now += step.action.advance_ms
                return True
        lines = [step.action.line for step in segment.steps if isinstance(step.action, Pipe)]
        topic = next(topic for topic in self.golden.inputs if topic.name == lines[0].topic)
        rows = record_batch(
            [_bytes(topic.key, topic.key_of(line.key)) for line in lines],
            [_bytes(topic.value, topic.value_of(line.value)) for line in lines],
            [line.timestamp for line in lines],
            [line.headers for line in lines],
        )
        self._log.append(TopicPartition(topic.name, Partition(0)), rows)
        return False

    def _lines(self, topic: Topic) -> Iterator[Line]:
        for batch in self._log.read(TopicPartition(topic.name, Partition(0)), Offset(0)):
            columns = (batch.keys(), batch.values(), batch.timestamps(), batch.headers())
            for key, value, time, headers in zip(*columns, strict=True):
                record = Record(_value(topic.key, key), _value(topic.value, value), time, headers)
                yield Line.of(topic.name, record)

    def _entries(self, dump: Dump) -> Iterator[Entry]:
        worker = make_worker(self.program)
        book = SerdeBook()
        head = self._driver.head
        book.restore({(name, part): kind for name, part, kind in head.inferred_types})  # type: ignore[misc]
        sub = next(sub for sub in self._plan.all_subtopologies if dump.name in sub.stores)
        spec = sub.stores[dump.name]
        serdes = book.bound(dump.name, "key", spec.key), book.bound(dump.name, "value", spec.value)
        for number in range(self._plan.task_count(sub, self._driver.counts)):
            task = PlannedTask(sub.task_id(number), sub.number, Partition(number), sub.level)
            with opened_stores(worker, sub, task, head.tasks.get(task.task_id)) as backends:
                store: Any = open_store(spec, backends[dump.name], *serdes)
                yield from entries(dump.kind, store, self.golden)


def last_lines(lines: dict[tuple[str, str], list[str]]) -> dict[tuple[str, str], list[str]]:
    """The last one of each topic and key."""
    return {place: some[-1:] for place, some in lines.items()}


def _by_topic_and_key(lines: list[Line]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        found.setdefault((line.topic, str(line.key)), []).append(str(line))
    return found


def _bytes(name: str, value: Any) -> bytes | None:
    return None if value is None else serde(name).serialize(value)


def _value(name: str, data: bytes | None) -> Any:
    return None if data is None else serde(name).deserialize(data)
