"""A task: one sub-topology at one partition, for one epoch or for many.

The life of an epoch, in the order of the methods: `process` puts the input into the task's order and
sends it through the operators, in batches that end where a stream-time punctuator is due; `punctuate`
lets the wall clock tick; `seal` flushes cached tables and hands over everything the epoch made. Stores
change only in their overlays: whoever commits applies them, and whoever does not forgets the task.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from millstream import handlers
from millstream.config import StreamsConfig
from millstream.errors import LateRecordError, TopologyError
from millstream.handlers import ErrorContext, ErrorKind
from millstream.processors.api import Cancellable, PunctuationType
from millstream.processors.batch import NO_ORIGIN, Batch, OrderKey
from millstream.processors.columns.column import Column
from millstream.processors.operator_times import UNKNOWN_TIME, OperatorTimes
from millstream.record import RecordMetadata
from millstream.serdes import Serde
from millstream.small_pickles import pickled_as_call
from millstream.state.stores.overlay import Entry
from millstream.state.stores.store import StateStore, changes_of, forget_epoch, take_changes
from millstream.state.stores.views import global_store
from millstream.task.context import unknown_store
from millstream.task.failures import Failures
from millstream.task.inputs import TaskInput
from millstream.task.metrics import Metrics
from millstream.task.outputs import Outputs, Sink, SinkContext, order_of
from millstream.task.pipeline import Pipeline
from millstream.task.punctuation import Punctuations, Schedule, ScheduleKey
from millstream.task.records import OutputBatch, RawBatch
from millstream.task.serde_book import Part, SerdeBook
from millstream.task.sources import SourceReader
from millstream.topology.nodes import SourceNode
from millstream.topology.plan import SubTopology

STREAM_TIME, WALL_CLOCK_TIME = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME
_NO_INPUT: Final = TaskInput((), UNKNOWN_TIME)
"""Of a task that has taken no records in yet."""


@pickled_as_call
@dataclass(frozen=True, slots=True)
class TaskState:
    """What a task knows besides its stores; kept with the commit, so that a restart forgets nothing."""

    stream_time: int = UNKNOWN_TIME
    partition_times: Mapping[tuple[str, int], int] = field(default_factory=dict)
    punctuations: Mapping[ScheduleKey, int] = field(default_factory=dict)
    operator_times: Mapping[str, tuple[int, int, int, int]] = field(default_factory=dict)
    """Per operator of windows, the fields of its `OperatorTimes`."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Everything that an epoch of a task made."""

    outputs: Sequence[OutputBatch]
    changelogs: Mapping[str, Sequence[Entry]]
    """Per store the sorted writes of the epoch: changelog rows and write batch in one."""
    state: TaskState
    commit_requested: bool
    wants_wall_clock: bool


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """The world as a task sees it. Engines and the test driver differ in nothing but this."""

    application_id: str
    config: StreamsConfig
    book: SerdeBook
    metrics: Metrics
    stores: Mapping[str, StateStore[Any]]
    global_stores: Mapping[str, StateStore[Any]]
    clock: Callable[[], int]
    """The epoch's wall clock in milliseconds."""
    partitions_of: Callable[[str], int]
    """How many partitions an output topic has."""
    is_internal: Callable[[str], bool]
    """Whether a topic is a repartition: its timestamps are never extracted anew."""
    caught_up: bool = True
    """No record waits that the epoch has not taken in, so who got none knows that it is quiet."""
    combines: bool = True
    """Repartitions may carry rows that stand for several. Not in the test driver, whose users look inside."""


class _ScheduledInBatch(BaseException):
    """A stream-time punctuator was scheduled in the middle of a batch, which should have ended there."""


class Task:
    """The running form of a sub-topology at a partition."""

    def __init__(
        self,
        sub: SubTopology,
        partition: int,
        environment: TaskEnvironment,
        state: TaskState | None = None,
    ) -> None:
        state = state if state is not None else TaskState()
        self._sub = sub
        self._partition = partition
        self._environment = environment
        self.application_id = environment.application_id
        self.task_id = sub.task_id(partition)
        self.commit_requested = False
        self._stream_time = state.stream_time
        self._partition_times = dict(state.partition_times)
        self._punctuations = Punctuations(state.punctuations)
        self._operator_times = _operator_times(state.operator_times)
        self._input = _NO_INPUT
        self._rows_at_work = 0
        self._failures = Failures(environment.config, self.task_id, environment.metrics)
        self._outputs = Outputs()
        self._sources: dict[str, SourceNode | None] = {}
        self._readers = {node.name: self._reader(node) for node in sub.sources}
        self._pipeline = Pipeline(sub, self, {node.name: self._sink(node) for node in sub.sinks})
        self._pipeline.open()

    def process(self, raws: Sequence[RawBatch], *, max_rows: int | None = None) -> None:
        """Take an epoch's records in, of any of the task's partitions. Called once per epoch.

        `max_rows` bounds how many rows go through the operators at once. It changes no result.
        """
        copies = [raw for raw in raws if raw.topic in self._sub.copies]
        parts = [self._read(raw) for raw in raws if raw.topic not in self._sub.copies]
        self._input = TaskInput(parts, self._stream_time)
        for source, rows in self._input.left_columns():
            self.count(source, "columns-fell-back", rows)
        if len(self._input) == 1:  # a batch of its own: nothing can be scheduled in the middle
            self._take_copies(copies)
            self._run(1)
            return
        start_again = self._way_back()
        self._take_copies(copies)
        try:
            self._run(max_rows)
        except _ScheduledInBatch:
            start_again()
            self._take_copies(copies)
            self._run(1)

    def _take_copies(self, raws: Iterable[RawBatch]) -> None:
        """Bring copies of an earlier step's stores to what they are there at the end of the epoch."""
        for raw in raws:
            store = self._environment.stores[self._sub.copies[raw.topic]]
            take_changes(store, list(zip(raw.keys, raw.values, strict=True)))

    def _run(self, max_rows: int | None) -> None:
        start, end = 0, len(self._input)
        while start < end:
            stop = self._end_of_batch(start, end if max_rows is None else min(end, start + max_rows))
            self._rows_at_work = stop - start
            self._pipeline.run(self._input.batches(start, stop, ordered=self._sub.ordered))
            self._rows_at_work = 0
            self._stream_time = self._input.stream_time_after(stop)
            self._outputs.end_pass()
            self._run_punctuators(STREAM_TIME, self._stream_time)
            start = stop

    def punctuate(self) -> bool:
        """Call the wall-clock punctuators that are due. True if there was one."""
        return self._run_punctuators(WALL_CLOCK_TIME, self._environment.clock())

    def seal(self) -> TaskResult:
        """Flush cached tables and hand over what the epoch made."""
        self._pipeline.flush()
        self._outputs.end_pass()
        letters = self._failures.take_dead_letters()
        requested, self.commit_requested = self.commit_requested, False
        changelogs = {name: changes_of(store) for name, store in self._environment.stores.items()}
        return TaskResult(
            outputs=[
                *self._outputs.take(),
                *([letters] if letters is not None else []),
                *self._copied(changelogs),
            ],
            changelogs=changelogs,
            state=TaskState(
                self._stream_time,
                dict(self._partition_times),
                self._punctuations.remember(),
                self._remembered_times(),
            ),
            commit_requested=requested,
            wants_wall_clock=self.wants_wall_clock,
        )

    def close(self) -> None:
        """Close the operators, for good.

        Task, pipeline and operators know each other, and the records of the epoch. They let go of each other
        here: else all of it would stay until Python looks for garbage, which would then take long.
        """
        self._pipeline.close()
        self._pipeline.forget()
        vars(self).clear()

    @property
    def wants_wall_clock(self) -> bool:
        """Whether a punctuator or an operator waits for the wall clock: else an idle task needs no epochs."""
        return self._punctuations.has(WALL_CLOCK_TIME) or self._pipeline.waits_for_clock

    # What contexts and the pipeline ask: see `TaskServices` and `Host`.

    def store_for(self, node: str, name: str) -> Any:
        """See `TaskServices.store_for`."""
        connected = self._sub.connections[node]
        if name in connected:
            return self._environment.stores[self._sub.store_name(name)]
        if name in self._environment.global_stores:
            return global_store(self._environment.global_stores[name])
        raise unknown_store(node, name, connected)

    def operator_store(self, name: str) -> Any:
        """See `Host.operator_store`."""
        own, name = self._environment.stores, self._sub.store_name(name)
        return own[name] if name in own else self._environment.global_stores[name]

    def serde(self, name: str, part: Part, given: Any) -> Serde[Any]:
        """See `Host.serde`."""
        return self._environment.book.bound(name, part, given)

    def operator_times(self, node: str) -> OperatorTimes:
        """See `Host.operator_times`."""
        return self._operator_times.setdefault(node, OperatorTimes())

    def schedule(
        self, node: str, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Cancellable:
        """See `TaskServices.schedule`."""
        if self._sub.is_global:
            raise TopologyError(
                f"processor {node!r} of a global store schedules a punctuator, but it runs for records of "
                "its topic only. Remedy: schedule it in a processor of a stream, which can read the store."
            )
        if kind is STREAM_TIME and self._rows_at_work > 1:
            raise _ScheduledInBatch
        return self._punctuations.schedule(
            node, interval_ms, kind, callback, self._environment.clock(), is_initial=self._pipeline.is_opening
        )

    def metadata(self, origin: int) -> RecordMetadata:
        """See `TaskServices.metadata`."""
        return self._input.metadata(origin)

    def stream_time(self, origin: int) -> int:
        """See `TaskServices.stream_time`."""
        if origin == NO_ORIGIN:
            return self._stream_time
        # A cached table's update goes on when the epoch ends: it is later than when its record came in.
        return max(self._stream_time, int(self._input.stream_times[origin]))

    def wall_clock(self) -> int:
        """See `TaskServices.wall_clock`."""
        return self._environment.clock()

    @property
    def caught_up(self) -> bool:
        """See `Host.caught_up`."""
        return self._environment.caught_up

    def count(self, node: str, name: str, number: int) -> None:
        """See `Host.count`."""
        self._environment.metrics.add(self.task_id, node, name, number)

    def late(self, node: str, batch: Batch, rows: Sequence[int]) -> None:
        """See `Host.late`."""
        self.count(node, "records-late", len(rows))
        if self._environment.config.late_record_handler is handlers.skip:
            return  # it is counted: that is all
        for row in dict.fromkeys(rows):
            error = LateRecordError(
                f"a record of time {batch.timestamps[row]} came when its windows had closed: stream time was "
                "beyond their end and grace"
            )
            self._handle(ErrorKind.LATE_RECORD, node, batch, row, error)

    def failed(self, node: str, batch: Batch, row: int, error: Exception) -> None:
        """See `Host.failed`."""
        self._handle(ErrorKind.PROCESSING, node, batch, row, error)

    # Inside.

    def _way_back(self) -> Callable[[], None]:
        """A function that forgets what the epoch does from here on. A task is a pure function: it may."""
        stream_time, punctuations = self._stream_time, self._punctuations.remember()
        times = self._remembered_times()
        counters, letters = self._environment.metrics.copy(), self._failures.mark()

        def start_again() -> None:
            self._pipeline.close()
            for store in self._environment.stores.values():
                forget_epoch(store)
            self._environment.metrics.reset_to(counters)
            self._failures.reset_to(letters)
            self._outputs.forget()
            self._punctuations = Punctuations(punctuations)
            self._operator_times = _operator_times(times)
            self._stream_time, self._rows_at_work, self.commit_requested = stream_time, 0, False
            self._pipeline.open()

        return start_again

    def _copied(self, changelogs: Mapping[str, Sequence[Entry]]) -> Iterator[OutputBatch]:
        """What the epoch has changed in stores of which later steps have copies."""
        for store, topics in self._sub.copied.items():
            changes = changelogs[store]
            if not changes:
                continue
            keys, values = (Column(list(column)) for column in zip(*changes, strict=True))
            here = [self._partition] * len(changes)
            for topic in topics:
                yield OutputBatch(topic, keys, values, Column([0] * len(changes)), None, here)

    def _remembered_times(self) -> dict[str, tuple[int, int, int, int]]:
        return {
            node: (times.observed, times.emitted, times.active, times.open_until)
            for node, times in sorted(self._operator_times.items())
            if times != OperatorTimes()
        }

    def _read(self, raw: RawBatch) -> Any:
        if raw.topic not in self._sources:  # once per topic, however many partitions it has
            self._sources[raw.topic] = self._sub.source_of(raw.topic)
        source = self._sources[raw.topic]
        assert source is not None  # the engine reads only topics of the sub-topology
        place = (raw.topic, raw.partition)
        before = self._partition_times.get(place, UNKNOWN_TIME)
        part = self._readers[source.name].read(raw, before)
        self._partition_times[place] = max(before, part.timestamps.largest(UNKNOWN_TIME))
        return part

    def _end_of_batch(self, start: int, end: int) -> int:
        due = self._punctuations.next_due(STREAM_TIME)
        if due is None:
            return end
        return min(end, 1 + bisect_left(self._input.stream_times, due, start, end))

    def _run_punctuators(self, kind: PunctuationType, now: int) -> bool:
        def call(schedule: Schedule, timestamp: int) -> None:
            try:
                self._pipeline.punctuate(schedule.node, schedule.callback, timestamp)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                self._handle(ErrorKind.PROCESSING, schedule.node, None, 0, error)
            self._outputs.end_pass()

        return self._punctuations.run(kind, now, call)

    def _reader(self, node: Any) -> SourceReader:
        def failed(raw: RawBatch, row: int, error: Exception, order: OrderKey) -> None:
            context = self._error_context(ErrorKind.DESERIALIZATION, node.name, (raw, row), None)
            self._failures.handle(context, error, order)

        extractor = node.timestamp_extractor or self._environment.config.timestamp_extractor
        internal = any(self._environment.is_internal(topic) for topic in node.topics)
        return SourceReader(
            node,
            self._environment.book,
            None if internal else extractor,
            failed,
            partial(self.count, node.name),
            clock=self._environment.clock,
            combines=self._environment.combines,
            wants_columns=node.name in self._sub.column_sources,
        )

    def _sink(self, node: Any) -> Sink:
        def failed(batch: Batch, row: int, error: Exception) -> None:
            self._handle(ErrorKind.PRODUCTION, node.name, batch, row, error)

        return Sink(
            node,
            self._environment.book,
            self._outputs,
            failed,
            partial(self.count, node.name),
            self._sink_context,
            self._environment.partitions_of,
            combines=self._environment.combines,
            is_internal=self._environment.is_internal,
            task_partition=self._partition,
        )

    def _sink_context(self, batch: Batch, row: int) -> SinkContext:
        origin = batch.origins[row]
        place = None if origin == NO_ORIGIN else self.metadata(origin)
        return SinkContext(
            None if place is None else place.topic,
            None if place is None else place.partition,
            None if place is None else place.offset,
            batch.timestamps[row],
            batch.headers_of(row),
        )

    def _handle(self, kind: ErrorKind, node: str, batch: Batch | None, row: int, error: Exception) -> None:
        source = None
        if batch is not None and batch.origins[row] != NO_ORIGIN:
            source = self._input.raw_record(batch.origins[row])
        context = self._error_context(kind, node, source, None if batch is None else batch.keys[row])
        self._failures.handle(context, error, () if batch is None else order_of(batch, row))

    def _error_context(
        self, kind: ErrorKind, node: str, source: tuple[RawBatch, int] | None, key: Any
    ) -> ErrorContext:
        site = self._sub.nodes[node].site
        if source is None:
            return ErrorContext(kind, node, self.task_id, None, None, None, key, None, (), None, None, site)
        raw, row = source
        return ErrorContext(
            kind,
            node,
            self.task_id,
            raw.topic,
            raw.partition,
            raw.offsets[row],
            key,
            raw.timestamps[row],
            raw.headers_of(row),
            raw.keys[row],
            raw.values[row],
            site,
        )


def _operator_times(kept: Mapping[str, tuple[int, int, int, int]]) -> dict[str, OperatorTimes]:
    return {node: OperatorTimes(*times) for node, times in kept.items()}
