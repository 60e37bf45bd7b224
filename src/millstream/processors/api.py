"""What a user of the Processor API implements and is given.

A `Processor` gets one record at a time and forwards any number; a `FixedKeyProcessor` can't change the
key, so nothing behind it has to be repartitioned. Both get their context in `init`.

An instance lives as long as its task does: at most until the epoch ends when Spark runs it. What has to
last longer belongs into a state store.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from millstream.record import FixedKeyRecord, Headers, Record, RecordMetadata

KIn = TypeVar("KIn")
VIn = TypeVar("VIn")
KOut = TypeVar("KOut")
VOut = TypeVar("VOut")
K = TypeVar("K")

K_contra = TypeVar("K_contra", contravariant=True)
KIn_contra = TypeVar("KIn_contra", contravariant=True)
KOut_contra = TypeVar("KOut_contra", contravariant=True)
VOut_contra = TypeVar("VOut_contra", contravariant=True)
VIn_contra = TypeVar("VIn_contra", contravariant=True)
VOut_co = TypeVar("VOut_co", covariant=True)


class PunctuationType(Enum):
    """Which clock drives a punctuator.

    >>> from millstream import PunctuationType
    >>> PunctuationType.STREAM_TIME
    <PunctuationType.STREAM_TIME: 'stream time'>
    """

    STREAM_TIME = "stream time"
    """Moves with the timestamps of records, and only with them."""
    WALL_CLOCK_TIME = "wall clock time"
    """Moves with the clock of the epoch."""


class Cancellable(Protocol):
    """A scheduled punctuator: what `ProcessorContext.schedule` returns.

    >>> from millstream import Processor, PunctuationType, StreamsBuilder, serdes
    >>> from millstream.testing import TopologyTestDriver
    >>> class Remind(Processor[str, str, str, str]):
    ...     def init(self, context):
    ...         self.reminder = context.schedule(10, PunctuationType.WALL_CLOCK_TIME, print)
    ...
    ...     def process(self, record):
    ...         self.reminder.cancel()
    >>> builder = StreamsBuilder()
    >>> _ = builder.stream("done").process(Remind)
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     driver.advance_wall_clock(10)
    ...     driver.input_topic("done", key=serdes.string, value=serdes.string).pipe("all", "yes")
    ...     driver.advance_wall_clock(10)
    10
    """

    def cancel(self) -> None:
        """Never call the punctuator again."""


class _Context(Protocol):
    """What every kind of processor may ask."""

    @property
    def application_id(self) -> str:
        """The application's name."""

    @property
    def task_id(self) -> str:
        """Sub-topology and partition, as in `1_3`."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record at work; None inside a punctuator."""

    @property
    def headers(self) -> Headers:
        """Headers of the record at work; empty inside a punctuator."""

    def state_store(self, name: str) -> Any:
        """The store of that name, if it is connected to this processor (or global)."""

    def schedule(
        self, interval_ms: int | timedelta, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Cancellable:
        """Call `callback(timestamp_ms)` at every interval of the given clock."""

    def current_stream_time_ms(self) -> int:
        """The largest timestamp that the task has taken in, -1 before the first record."""

    def current_system_time_ms(self) -> int:
        """The epoch's clock: the same again when the epoch is replayed."""

    def commit(self) -> None:
        """Ask for what comes next to be committed soon: the next epoch begins as soon as this one has ended.

        Else it begins `commit_interval_ms` after this one began.
        """


class ProcessorContext(_Context, Protocol[KOut_contra, VOut_contra]):
    """What a `Processor` is given.

    >>> from millstream import Processor, PunctuationType, StreamsBuilder, serdes, stores
    >>> from millstream.testing import TopologyTestDriver
    >>> class Trace(Processor[str, str, str, str]):
    ...     def init(self, context):
    ...         super().init(context)
    ...         self.seen = context.state_store("seen")
    ...         context.schedule(60_000, PunctuationType.STREAM_TIME, self.report)
    ...
    ...     def process(self, record):
    ...         context, place = self.context, self.context.record_metadata
    ...         print(context.application_id, context.task_id, place.topic, place.partition, place.offset)
    ...         print(context.headers, context.current_stream_time_ms(), context.current_system_time_ms())
    ...         self.seen.put(record.key, record.value)
    ...         context.forward(record)
    ...         context.commit()
    ...
    ...     def report(self, timestamp):
    ...         print("at", timestamp, "in the store:", self.seen.approximate_num_entries())
    >>> builder = StreamsBuilder().add_state_store(stores.key_value("seen"))
    >>> builder.stream("orders", value=serdes.string).process(Trace, "seen").to("traced")
    >>> with TopologyTestDriver(builder.build(), start_ms=7_000) as driver:
    ...     orders = driver.input_topic("orders", key=serdes.bytes, value=serdes.string)
    ...     orders.pipe(b"k", "river", timestamp=5, headers=(("by", b"mill"),))
    test 0_0 orders 0 0
    (('by', b'mill'),) 5 7000
    at 5 in the store: 1
    """

    def forward(self, record: Record[KOut_contra, VOut_contra], child: str | None = None) -> None:
        """Send a record to all children, or to the named one.

        >>> from millstream import Processor, Topology
        >>> class Sort(Processor[bytes, bytes, bytes, bytes]):
        ...     def process(self, record):
        ...         self.context.forward(record, "large" if len(record.value) > 3 else "small")
        >>> topology = Topology().add_source("in", "orders").add_processor("sort", Sort, "in")
        >>> _ = topology.add_sink("large", "large-orders", "sort").add_sink("small", "small-orders", "sort")
        """


class FixedKeyProcessorContext(_Context, Protocol[K_contra, VOut_contra]):
    """What a `FixedKeyProcessor` is given: all that a `ProcessorContext` has, for records with a fixed key.

    >>> from millstream import FixedKeyProcessor, StreamsBuilder, serdes
    >>> from millstream.testing import TopologyTestDriver
    >>> class Number(FixedKeyProcessor[str, str, int]):
    ...     def process(self, record):
    ...         self.context.forward(record.with_value(self.context.record_metadata.offset))
    >>> builder = StreamsBuilder()
    >>> builder.stream("lines", value=serdes.string).process_values(Number).to("numbers")
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     lines = driver.input_topic("lines", key=serdes.string, value=serdes.string)
    ...     lines.pipe_all([("k", "to the"), ("k", "river")])
    ...     driver.output_topic("numbers", key=serdes.string, value=serdes.int64).read_values()
    [0, 1]
    """

    def forward(self, record: FixedKeyRecord[K_contra, VOut_contra], child: str | None = None) -> None:
        """Send a record to all children, or to the named one."""


def _missing(processor: object, name: str) -> AttributeError:
    kind = type(processor).__name__
    if name != "context":
        return AttributeError(f"{kind!r} object has no attribute {name!r}")
    return AttributeError(
        f"{kind} has no context: its init() does not call super().init(context), which keeps it, or it was "
        "not called yet. Remedy: call super().init(context) first of all in init()"
    )


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """A node of your own, one record at a time.

    >>> from millstream import Processor, Record
    >>> class Shout(Processor[str, str, str, str]):
    ...     def process(self, record: Record[str, str]) -> None:
    ...         self.context.forward(record.with_value(record.value.upper()))
    """

    context: ProcessorContext[KOut, VOut]

    if not TYPE_CHECKING:  # checkers of types refuse what is unknown

        def __getattr__(self, name: str) -> Any:
            raise _missing(self, name)

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Called once before the first record. Overriding? Call `super().init(context)`.

        >>> from millstream import Processor
        >>> class CountAll(Processor[str, str, str, int]):
        ...     def init(self, context):
        ...         super().init(context)
        ...         self.counts = context.state_store("counts")
        """
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Handle one record.

        >>> from millstream import Processor
        >>> class TwiceIfLoud(Processor[str, str, str, str]):
        ...     def process(self, record):
        ...         for _ in range(2 if record.value.isupper() else 1):
        ...             self.context.forward(record)
        """
        raise NotImplementedError

    def close(self) -> None:
        """Called once after the last record. What is forwarded here is refused: nothing follows.

        >>> from millstream import Processor
        >>> class ToFile(Processor[str, str, str, str]):
        ...     def init(self, context):
        ...         self.file = open("/dev/null", "w")
        ...
        ...     def process(self, record):
        ...         print(record.value, file=self.file)
        ...
        ...     def close(self):
        ...         self.file.close()
        """


class FixedKeyProcessor(Generic[K, VIn, VOut]):
    """A node of your own that leaves the key alone.

    >>> from millstream import FixedKeyProcessor, FixedKeyRecord
    >>> class Length(FixedKeyProcessor[str, str, int]):
    ...     def process(self, record: FixedKeyRecord[str, str]) -> None:
    ...         self.context.forward(record.with_value(len(record.value)))
    """

    context: FixedKeyProcessorContext[K, VOut]

    if not TYPE_CHECKING:  # see `Processor`

        def __getattr__(self, name: str) -> Any:
            raise _missing(self, name)

    def init(self, context: FixedKeyProcessorContext[K, VOut]) -> None:
        """Called once before the first record. Overriding? Call `super().init(context)`.

        >>> from millstream import FixedKeyProcessor
        >>> class Last(FixedKeyProcessor[str, str, str]):
        ...     def init(self, context):
        ...         super().init(context)
        ...         self.last = context.state_store("last")
        """
        self.context = context

    def process(self, record: FixedKeyRecord[K, VIn]) -> None:
        """Handle one record.

        >>> from millstream import FixedKeyProcessor
        >>> class Upper(FixedKeyProcessor[str, str, str]):
        ...     def process(self, record):
        ...         self.context.forward(record.with_value(record.value.upper()))
        """
        raise NotImplementedError

    def close(self) -> None:
        """Called once after the last record. What is forwarded here is refused: nothing follows.

        >>> from millstream import FixedKeyProcessor
        >>> class Goodbye(FixedKeyProcessor[str, str, str]):
        ...     def close(self):
        ...         print("no more records")
        """


@runtime_checkable
class ValueTransformerWithKey(Protocol[KIn_contra, VIn_contra, VOut_co]):
    """Computes a table's new value from key and value, with access to state stores.

    Any class with these three methods will do; there is nothing to inherit.

    >>> from millstream import StreamsBuilder, ValueTransformerWithKey, serdes
    >>> from millstream.testing import TopologyTestDriver
    >>> class Label:
    ...     def init(self, context):
    ...         self.task_id = context.task_id
    ...
    ...     def transform(self, key, value):
    ...         return None if value is None else f"{key}={value} in {self.task_id}"
    ...
    ...     def close(self): ...
    >>> isinstance(Label(), ValueTransformerWithKey)
    True
    >>> builder = StreamsBuilder()
    >>> names = builder.table("names", key=serdes.string, value=serdes.string)
    >>> names.transform_values(Label).to_stream().to("labels")
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     driver.input_topic("names", key=serdes.string, value=serdes.string).pipe("1", "river")
    ...     driver.output_topic("labels", key=serdes.string, value=serdes.string).read().value
    '1=river in 0_0'
    """

    def init(self, context: Any) -> None:
        """Called once before the first value. The context can't forward."""

    def transform(self, key: KIn_contra, value: VIn_contra) -> VOut_co:
        """The new value; also called with None for a deleted row."""

    def close(self) -> None:
        """Called once after the last value."""
