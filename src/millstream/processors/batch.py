"""The unit that operators work on: some records, in columns.

A batch promises that its columns have one length and that its rows stand in the order in which a task
that takes one record at a time would have produced them. It does not know where its rows come from:
`origins` points into the input of the task, and only whoever asks for topic, partition or offset of a
row follows it.

Columns are shared between batches wherever an operator leaves them alone, so never change one in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.processors.columns.column import Column
from millstream.record import Headers

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

NO_ORIGIN = -1
"""The origin of a row that no input record caused: a punctuator forwarded it."""

OrderKey = tuple[int, ...]


@dataclass(frozen=True, slots=True, init=False)
class Batch:
    """Rows of one edge of the topology.

    keys, values, timestamps
        The record columns.
    headers
        A tuple of headers per row, or None if no row has any.
    origins
        For each row the row of the task's input that caused it, or `NO_ORIGIN`.
    olds
        Tables only: the value each row replaces. None where old values are not sent.
    order
        Depth-first order keys, which a node with several parents compares to interleave its inputs.
        None in sub-topologies where nothing ever has to be interleaved.
    ports
        On the way into an operator with several ports: the number of the one that each row came by.
    latest
        Versioned tables only: False for a row that is older than the latest one of its key. None if all are
        the latest, as they are in all other tables.
    """

    keys: Column
    values: Column
    timestamps: Column
    headers: Sequence[Headers] | None
    origins: Column
    olds: Column | None = None
    order: Sequence[OrderKey] | None = None
    ports: Sequence[int] | None = None
    latest: Sequence[bool] | None = None
    _length: int = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        keys: Sequence[Any],
        values: Sequence[Any],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
        origins: Sequence[int],
        olds: Sequence[Any] | None = None,
        order: Sequence[OrderKey] | None = None,
        ports: Sequence[int] | None = None,
        latest: Sequence[bool] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "keys", keys if type(keys) is Column else Column(keys))
        put(self, "values", values if type(values) is Column else Column(values))
        put(self, "timestamps", timestamps if type(timestamps) is Column else Column(timestamps))
        put(self, "headers", headers)
        put(self, "origins", origins if type(origins) is Column else Column(origins))
        put(self, "olds", olds if olds is None or type(olds) is Column else Column(olds))
        put(self, "order", order)
        put(self, "ports", ports)
        put(self, "latest", latest)
        put(self, "_length", len(keys))

    def __len__(self) -> int:
        return self._length

    def headers_of(self, row: int) -> Headers:
        """The headers of one row."""
        return self.headers[row] if self.headers is not None else ()

    def with_values(self, values: Sequence[Any]) -> Batch:
        """The same rows with other values, and without old ones."""
        return self.with_columns(self.keys, values)

    def with_columns(self, keys: Sequence[Any], values: Sequence[Any]) -> Batch:
        """The same rows with other keys and values, and without old values."""
        return Batch(
            keys,
            values,
            self.timestamps,
            self.headers,
            self.origins,
            order=self.order,
            ports=self.ports,
            latest=self.latest,
        )

    def in_rows(self) -> Batch:
        """The same rows as Python objects: for whoever goes through them one by one."""
        columns = (self.keys, self.values, self.timestamps)
        if not any(column.in_arrow for column in columns):
            return self
        keys, values, timestamps = (Column(column.rows()) for column in columns)
        return replace(self, keys=keys, values=values, timestamps=timestamps)

    def take(self, rows: Sequence[int]) -> Batch:
        """The given rows, in the given order."""
        taken = Column.of(rows)
        return self._with_rows(taken, lambda column: column.take(taken))

    def kept(self, chosen: pl.Series, rows: Column) -> Batch:
        """The rows for which `chosen` is true; `rows` are their numbers."""
        return self._with_rows(rows, lambda column: column.kept(chosen, rows))

    def _with_rows(self, rows: Column, of: Callable[[Column], Column]) -> Batch:
        return Batch(
            keys=of(self.keys),
            values=of(self.values),
            timestamps=of(self.timestamps),
            headers=_picked(self.headers, rows),
            origins=of(self.origins),
            olds=None if self.olds is None else of(self.olds),
            order=_picked(self.order, rows),
            ports=_picked(self.ports, rows),
            latest=_picked(self.latest, rows),
        )

    def expand(self, parents: Sequence[int], keys: Sequence[Any] | None, values: Sequence[Any]) -> Batch:
        """New rows, each caused by the row of this batch that `parents` names (in ascending order).

        Without keys of their own they have that of this row.
        """
        rows = Column.of(parents)
        return Batch(
            keys=self.keys.take(rows) if keys is None else keys,
            values=values,
            timestamps=self.timestamps.take(rows),
            headers=_picked(self.headers, rows),
            origins=self.origins.take(rows),
            order=None if self.order is None else list(_numbered(self.order, rows)),
        )

    def for_child(self, position: int) -> Batch:
        """The same rows on the edge to the child at `position`, when there are several children."""
        if self.order is None:
            return self
        edge = (position,)
        return replace(self, order=[key + edge for key in self.order])

    def for_port(self, port: int | None) -> Batch:
        """The same rows on the edge to a port, None for an operator that has only one."""
        if port is None and self.ports is None:
            return self
        return replace(self, ports=None if port is None else [port] * len(self))


def concatenate(batches: Sequence[Batch]) -> Batch:
    """One batch after the other."""
    if len(batches) == 1:
        return batches[0]
    return Batch(
        keys=Column.concat([batch.keys for batch in batches]),
        values=Column.concat([batch.values for batch in batches]),
        timestamps=Column.concat([batch.timestamps for batch in batches]),
        headers=_chained_headers(batches),
        origins=Column.concat([batch.origins for batch in batches]),
        olds=_chained_olds(batches),
        order=_chained([batch.order for batch in batches]),
        ports=_chained([batch.ports for batch in batches]),
        latest=_chained_latest(batches),
    )


def interleave(batches: Sequence[Batch]) -> Batch:
    """Several batches as one, in depth-first order."""
    if len(batches) == 1:
        return batches[0]
    batches = [batch for batch in batches if len(batch)] or list(batches[:1])
    whole = concatenate(batches)
    if len(batches) == 1 or whole.order is None:
        return whole
    # Runs that are in order each: they are merged, not sorted. Of equal ones the first batch's come first.
    return whole.take(sorted(range(len(whole)), key=whole.order.__getitem__))


def _picked(entries: Sequence[T] | None, rows: Column) -> list[T] | None:
    return None if entries is None else [entries[row] for row in rows.rows()]


def _chained(entries: Sequence[Sequence[T] | None]) -> list[T] | None:
    return None if entries[0] is None else [entry for some in entries for entry in some or ()]


def _chained_headers(batches: Sequence[Batch]) -> Sequence[Headers] | None:
    if all(batch.headers is None for batch in batches):
        return None
    return [headers for batch in batches for headers in (batch.headers or [()] * len(batch))]


def _chained_olds(batches: Sequence[Batch]) -> Column | None:
    if all(batch.olds is None for batch in batches):
        return None
    return Column.concat([batch.olds or Column([None] * len(batch)) for batch in batches])


def _chained_latest(batches: Sequence[Batch]) -> Sequence[bool] | None:
    if all(batch.latest is None for batch in batches):
        return None
    return [latest for batch in batches for latest in (batch.latest or [True] * len(batch))]


def _numbered(order: Sequence[OrderKey], parents: Sequence[int]) -> Iterable[OrderKey]:
    """Order keys of the children of each parent row: the parent's key and the child's number."""
    previous, number = -1, 0
    for parent in parents:
        number = number + 1 if parent == previous else 0
        previous = parent
        yield (*order[parent], number)
