"""What all operators have in common, and how they call the user's functions.

An operator is one node's meaning: it takes a batch and answers with the batch that goes on. It owns no
thread, no clock and no file; what it needs of the world it asks its `OperatorContext`.

`collect` is how a user's function is run over a batch: at C speed while all goes well, and still exact
about which row failed when one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

from millstream.processors.batch import Batch
from millstream.processors.operator_times import OperatorTimes
from millstream.processors.record_cache import RecordCache
from millstream.processors.table_history import TableHistory
from millstream.serdes import Serde

T = TypeVar("T")

Emission = Batch | Mapping[str, Batch] | None
"""What goes on: to all children, to each child something else, or nothing."""

Form = Literal["columns", "partials"]
"""A way to handle many rows at once: as columns, or one row per key in place of them."""


class OperatorContext(Protocol):
    """What an operator may ask of the task that runs it."""

    @property
    def node(self) -> str:
        """The name of the node."""

    @property
    def task_id(self) -> str:
        """Sub-topology and partition of the task, as in `1_3`."""

    @property
    def children(self) -> Sequence[str]:
        """The names of the nodes behind it, in the order in which they were attached."""

    @property
    def times(self) -> OperatorTimes:
        """What the operator has seen of time; it may set them, and they are kept with the commit."""

    @property
    def caught_up(self) -> bool:
        """Whether no record waits that the epoch has not taken in."""

    def wall_clock(self) -> int:
        """The epoch's wall clock in milliseconds: the same again when the epoch is replayed."""

    def store(self, name: str) -> Any:
        """A state store of the task, with bulk access."""

    def record_cache(self, store: str) -> RecordCache:
        """What the cached tables of a store hold back."""

    def table_history(self, store: str) -> TableHistory | None:
        """What each row of this pass has written to a store, if somebody reads it as of a row."""

    def serde(self, name: str, part: Literal["key", "value"], given: Any) -> Serde[Any]:
        """The serde that all tasks use for something of this name; None means automatic."""

    def failed(self, batch: Batch, row: int, error: Exception) -> None:
        """A user's function failed on a row: raise, or return to go on without the row."""

    def dropped(self, count: int) -> None:
        """Some rows were left out, as the operator's definition says (a null key, say)."""

    def late(self, batch: Batch, rows: Sequence[int]) -> None:
        """Some rows came too late for their windows; one that is too late for several is named as often."""

    def fell_back(self, form: Form, count: int) -> None:
        """So many rows could not be handled in a faster form that the operator has, but in the next one."""

    def processor_context(self) -> Any:
        """The context of a user's `Processor`."""

    def fixed_key_context(self) -> Any:
        """The context of a user's `FixedKeyProcessor`."""

    def transformer_context(self) -> Any:
        """The context of a user's transformer, which can't forward."""


class Operator:
    """One node's meaning over batches."""

    context: OperatorContext

    def open(self, context: OperatorContext) -> None:
        """Called once before the first batch. Implementers: call `super().open(context)`."""
        self.context = context

    def process(self, batch: Batch) -> Emission:
        """Handle one batch. Must give what its rows, one at a time, would give."""
        raise NotImplementedError

    def flush(self) -> Batch | None:
        """The commit: what was held back in the epoch goes on, and what leaves because time has passed."""
        return None

    @property
    def waits_for_clock(self) -> bool:
        """Whether something will leave by the wall clock alone, so that epochs are needed without records."""
        return False

    def close(self) -> None:
        """Called once after the last batch."""


def collect(
    context: OperatorContext,
    batch: Batch,
    calls: Callable[[int], Iterable[T]],
    explain: Callable[[Exception], Exception] | None = None,
) -> tuple[list[T], Batch]:
    """Results of the user's function for each row, and the rows that they belong to.

    `calls(start)` gives the results from row `start` on, lazily (a `map` object). `list.extend` keeps
    what it had taken when the iterator raises, so the number of results tells which row failed, and
    success costs nothing. `explain` may turn the exception into one that says more.
    """
    results: list[T] = []
    failed: list[int] = []
    while True:
        start = len(results) + len(failed)
        try:
            results.extend(calls(start))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            failure = error
        else:
            if len(results) + len(failed) == len(batch):
                break
            # `map` takes a StopIteration of the user's function for the end of the rows.
            failure = explain_stop()
        row = len(results) + len(failed)
        context.failed(batch, row, explain(failure) if explain else failure)
        failed.append(row)
    if not failed:
        return results, batch
    skipped = set(failed)
    return results, batch.take([row for row in range(len(batch)) if row not in skipped])


def explain_stop() -> RuntimeError:
    """The error for a function that raised StopIteration."""
    return RuntimeError("the function raised StopIteration: next() needs a default, or a try")


def each_row(context: OperatorContext, batch: Batch, handle: Callable[[int], None]) -> None:
    """Call a function for each row in order; a row on which it fails is left out, or fails the epoch."""
    row, end = 0, len(batch)
    while row < end:
        try:
            for row in range(row, end):  # noqa: B020 - after a failure it goes on where it stopped
                handle(row)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            context.failed(batch, row, error)
            row += 1
        else:
            return


def rest(column: Sequence[T], start: int) -> Sequence[T]:
    """The column from `start` on; the column itself, not a copy, at the beginning."""
    return column[start:] if start else column


def as_pair(result: Any) -> tuple[Any, Any]:
    """A mapper's answer, checked: anything but a pair is a mistake in the user's function."""
    try:
        key, value = result
        if isinstance(result, str | bytes):  # two letters are no pair
            raise TypeError  # noqa: TRY301 - explained below
    except (TypeError, ValueError):
        message = f"the mapper must return a (key, value) pair, but it returned {result!r}"
        raise TypeError(message) from None
    return key, value
