"""The contexts that user code is given. One per node; the task moves it from row to row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from millstream.clock import milliseconds
from millstream.errors import ProcessingError, UnknownStoreError
from millstream.processors.api import Cancellable, PunctuationType
from millstream.processors.batch import NO_ORIGIN, Batch, OrderKey
from millstream.processors.operator import Emission
from millstream.record import FixedKeyRecord, Headers, Record, RecordMetadata


class TaskServices(Protocol):
    """What a context asks of its task."""

    application_id: str
    task_id: str
    commit_requested: bool

    def store_for(self, node: str, name: str) -> Any:
        """A store, if the node may use it."""

    def schedule(
        self, node: str, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Cancellable:
        """Schedule a punctuator."""

    def metadata(self, origin: int) -> RecordMetadata:
        """Where an input row comes from."""

    def stream_time(self, origin: int) -> int:
        """The task's stream time as of an input row."""

    def wall_clock(self) -> int:
        """The epoch's clock."""


class TransformerContext:
    """Everything but `forward`."""

    def __init__(self, services: TaskServices, node: str) -> None:
        self._services = services
        self._node = node
        self._batch: Batch | None = None
        self._row = 0

    def begin_row(self, batch: Batch, row: int) -> None:
        """The task is about to show this row to the user's code."""
        self._batch, self._row = batch, row

    def end_row(self) -> None:
        """The user's code is done with the row."""
        self._batch = None

    @property
    def application_id(self) -> str:
        """The application's name."""
        return self._services.application_id

    @property
    def task_id(self) -> str:
        """Sub-topology and partition, as in `1_3`."""
        return self._services.task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record at work; None inside a punctuator."""
        origin = self._origin()
        return None if origin == NO_ORIGIN else self._services.metadata(origin)

    @property
    def headers(self) -> Headers:
        """Headers of the record at work; empty inside a punctuator."""
        return () if self._batch is None else self._batch.headers_of(self._row)

    def state_store(self, name: str) -> Any:
        """The store of that name, if it is connected to this processor (or global)."""
        return self._services.store_for(self._node, name)

    def schedule(
        self, interval_ms: int | timedelta, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Cancellable:
        """Call `callback(timestamp_ms)` at every interval of the given clock."""
        return self._services.schedule(self._node, milliseconds(interval_ms, "interval_ms"), kind, callback)

    def current_stream_time_ms(self) -> int:
        """The largest timestamp that the task has taken in, -1 before the first record."""
        return self._services.stream_time(self._origin())

    def current_system_time_ms(self) -> int:
        """The epoch's clock: the same again when the epoch is replayed."""
        return self._services.wall_clock()

    def commit(self) -> None:
        """Ask for the epoch to end soon."""
        self._services.commit_requested = True

    def forward(self, record: Any, child: str | None = None) -> None:
        """Refuse: a transformer answers with its return value."""
        del record, child
        message = f"transform_values() at {self._node!r} can't forward records: return the new value instead"
        raise ProcessingError(message)

    def _origin(self) -> int:
        return NO_ORIGIN if self._batch is None else self._batch.origins[self._row]


class ForwardingContext(TransformerContext):
    """The context of a `Processor`: collects what it forwards, or hands it on at once."""

    record_type: type[Any] = Record

    def __init__(self, services: TaskServices, node: str, children: Sequence[str], *, ordered: bool) -> None:
        super().__init__(services, node)
        self._children = tuple(children)
        self._ordered = ordered
        self._forwarded: list[tuple[Any, str | None, int, OrderKey]] = []
        self._in_row = 0
        self._punctuating = False
        self.dispatch: Callable[[Batch, str | None], None] | None = None
        """Where nodes share a store: there each forwarded row goes at once, depth first."""

    def begin_row(self, batch: Batch, row: int) -> None:
        """See `TransformerContext.begin_row`."""
        super().begin_row(batch, row)
        self._in_row = 0

    def begin_punctuation(self) -> None:
        """The task is about to call a punctuator."""
        self._batch = None
        self._in_row = 0
        self._punctuating = True

    def end_punctuation(self) -> None:
        """The punctuator is done."""
        self._punctuating = False

    def forward(self, record: Any, child: str | None = None) -> None:
        """Send a record to all children, or to the named one."""
        if self._batch is None and not self._punctuating:
            message = f"node {self._node!r} forwards outside of process() and of a punctuator"
            raise ProcessingError(message)
        if child is not None and child not in self._children:
            known = ", ".join(self._children) or "none"
            message = (
                f"node {self._node!r} forwards to {child!r}, which is no child of it. Children are: {known}"
            )
            raise ProcessingError(message)
        if not isinstance(record, self.record_type):
            message = (
                f"node {self._node!r} forwards {record!r}; forward a {self.record_type.__name__}, "
                "made with record.with_value() and its like"
            )
            raise ProcessingError(message)
        self._send(record, child)

    def emitted(self) -> Emission:
        """What was forwarded since the last call."""
        forwarded, self._forwarded = self._forwarded, []
        if not forwarded:
            return None
        if all(child is None for _, child, _, _ in forwarded):
            return self._as_batch(forwarded)
        return {
            name: self._as_batch([row for row in forwarded if row[1] in (None, name)])
            for name in self._children
        }

    def _send(self, record: Any, child: str | None) -> None:
        origin = self._origin()
        order: OrderKey = ()
        if self._ordered:
            parent = () if self._batch is None else self._batch.order[self._row]  # type: ignore[index]
            order = (*parent, self._in_row)
            self._in_row += 1
        row = (record, child, origin, order)
        if self.dispatch is None:
            self._forwarded.append(row)
            return
        # Depth first: the children run now, and may come back to this very context.
        saved = (self._batch, self._row, self._in_row)
        self.dispatch(self._as_batch([row]), child)
        self._batch, self._row, self._in_row = saved

    def _as_batch(self, rows: Sequence[tuple[Any, str | None, int, OrderKey]]) -> Batch:
        headers = [record.headers for record, _, _, _ in rows]
        return Batch(
            keys=[record.key for record, _, _, _ in rows],
            values=[record.value for record, _, _, _ in rows],
            timestamps=[record.timestamp for record, _, _, _ in rows],
            headers=headers if any(headers) else None,
            origins=[origin for _, _, origin, _ in rows],
            order=[order for _, _, _, order in rows] if self._ordered else None,
        )


class FixedKeyContext(ForwardingContext):
    """The context of a `FixedKeyProcessor`: only records with the same key may go on."""

    record_type = FixedKeyRecord

    def forward(self, record: Any, child: str | None = None) -> None:
        """See `ForwardingContext.forward`."""
        is_fixed = isinstance(record, FixedKeyRecord)
        if is_fixed and self._batch is not None and record.key is not self._batch.keys[self._row]:
            message = (
                f"node {self._node!r} forwards a record with another key. Remedy: make it from the record "
                "that came in, with with_value() and its like, or use process() instead of process_values()"
            )
            raise ProcessingError(message)
        super().forward(record, child)


def unknown_store(node: str, name: str, connected: Sequence[str]) -> UnknownStoreError:
    """The error for a processor that asks for a store it is not connected to."""
    known = ", ".join(connected) or "none"
    return UnknownStoreError(
        f"processor {node!r} asks for the state store {name!r}, which is not connected to it "
        f"(connected: {known}).\n"
        "  Remedy: name the store where the processor is added: process(supplier, store_name), "
        "add_state_store(store, processor) or connect_processor_and_state_stores."
    )
