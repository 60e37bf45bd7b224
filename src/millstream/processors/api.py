"""What a user of the Processor API implements and is given.

A `Processor` gets one record at a time and forwards any number; a `FixedKeyProcessor` can't change the
key, so nothing behind it has to be repartitioned. Both get their context in `init`.

An instance lives as long as its task does: at most until the epoch ends when Spark runs it. What has to
last longer belongs into a state store.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

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
    """Which clock drives a punctuator."""

    STREAM_TIME = "stream time"
    """Moves with the timestamps of records, and only with them."""
    WALL_CLOCK_TIME = "wall clock time"
    """Moves with the clock of the epoch."""


class Cancellable(Protocol):
    """A scheduled punctuator."""

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
        self, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Cancellable:
        """Call `callback(timestamp_ms)` at every interval of the given clock."""

    def current_stream_time_ms(self) -> int:
        """The largest timestamp that the task has taken in, -1 before the first record."""

    def current_system_time_ms(self) -> int:
        """The epoch's clock: the same again when the epoch is replayed."""

    def commit(self) -> None:
        """Ask for the epoch to end soon."""


class ProcessorContext(_Context, Protocol[KOut_contra, VOut_contra]):
    """What a `Processor` is given."""

    def forward(self, record: Record[KOut_contra, VOut_contra], child: str | None = None) -> None:
        """Send a record to all children, or to the named one."""


class FixedKeyProcessorContext(_Context, Protocol[K_contra, VOut_contra]):
    """What a `FixedKeyProcessor` is given."""

    def forward(self, record: FixedKeyRecord[K_contra, VOut_contra], child: str | None = None) -> None:
        """Send a record to all children, or to the named one."""


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """A node of your own, one record at a time.

    >>> from millstream import Processor, Record
    >>> class Shout(Processor[str, str, str, str]):
    ...     def process(self, record: Record[str, str]) -> None:
    ...         self.context.forward(record.with_value(record.value.upper()))
    """

    context: ProcessorContext[KOut, VOut]

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Called once before the first record. Overriding? Call `super().init(context)`."""
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Handle one record."""
        raise NotImplementedError

    def close(self) -> None:
        """Called once after the last record."""


class FixedKeyProcessor(Generic[K, VIn, VOut]):
    """A node of your own that leaves the key alone.

    >>> from millstream import FixedKeyProcessor, FixedKeyRecord
    >>> class Length(FixedKeyProcessor[str, str, int]):
    ...     def process(self, record: FixedKeyRecord[str, str]) -> None:
    ...         self.context.forward(record.with_value(len(record.value)))
    """

    context: FixedKeyProcessorContext[K, VOut]

    def init(self, context: FixedKeyProcessorContext[K, VOut]) -> None:
        """Called once before the first record. Overriding? Call `super().init(context)`."""
        self.context = context

    def process(self, record: FixedKeyRecord[K, VIn]) -> None:
        """Handle one record."""
        raise NotImplementedError

    def close(self) -> None:
        """Called once after the last record."""


@runtime_checkable
class ValueTransformerWithKey(Protocol[KIn_contra, VIn_contra, VOut_co]):
    """Computes a table's new value from key and value, with access to state stores."""

    def init(self, context: Any) -> None:
        """Called once before the first value. The context can't forward."""

    def transform(self, key: KIn_contra, value: VIn_contra) -> VOut_co:
        """The new value; also called with None for a deleted row."""

    def close(self) -> None:
        """Called once after the last value."""
