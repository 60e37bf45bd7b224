"""The unit that operators work on: some records, as columns of Python objects or as `Column`s.

A batch promises that its columns have one length and that its rows stand in the order in which a task
that takes one record at a time would have produced them. It does not know where its rows come from:
`origins` points into the input of the task, and only whoever asks for topic, partition or offset of a
row follows it.

Columns are shared between batches wherever an operator leaves them alone, so never change one in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import merge as merge_sorted
from itertools import chain
from typing import Any

from millstream.processors.columns.column import Column, chain_columns, take_rows
from millstream.record import Headers

NO_ORIGIN = -1
"""The origin of a row that no input record caused: a punctuator forwarded it."""

OrderKey = tuple[int, ...]


@dataclass(frozen=True, slots=True)
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
    """

    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None
    origins: Sequence[int]
    olds: Sequence[Any] | None = None
    order: Sequence[OrderKey] | None = None
    ports: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def headers_of(self, row: int) -> Headers:
        """The headers of one row."""
        return self.headers[row] if self.headers is not None else ()

    def with_values(self, values: Sequence[Any]) -> Batch:
        """The same rows with other values, and without old ones."""
        return replace(self, values=values, olds=None)

    def with_columns(self, keys: Sequence[Any], values: Sequence[Any]) -> Batch:
        """The same rows with other keys and values, and without old values."""
        return replace(self, keys=keys, values=values, olds=None)

    def in_rows(self) -> Batch:
        """The same rows as Python objects: for whoever goes through them one by one."""
        if not any(isinstance(column, Column) for column in (self.keys, self.values, self.timestamps)):
            return self
        return replace(
            self, keys=_listed(self.keys), values=_listed(self.values), timestamps=_listed(self.timestamps)
        )

    def take(self, rows: Sequence[int]) -> Batch:
        """The given rows, in the given order."""
        return Batch(
            keys=_take(self.keys, rows),
            values=_take(self.values, rows),
            timestamps=_take(self.timestamps, rows),
            headers=None if self.headers is None else _take(self.headers, rows),
            origins=_take(self.origins, rows),
            olds=None if self.olds is None else _take(self.olds, rows),
            order=None if self.order is None else _take(self.order, rows),
            ports=None if self.ports is None else _take(self.ports, rows),
        )

    def expand(self, parents: Sequence[int], keys: Sequence[Any] | None, values: Sequence[Any]) -> Batch:
        """New rows, each caused by the row of this batch that `parents` names (in ascending order).

        Without keys of their own they have that of this row.
        """
        return Batch(
            keys=_take(self.keys, parents) if keys is None else keys,
            values=values,
            timestamps=_take(self.timestamps, parents),
            headers=None if self.headers is None else _take(self.headers, parents),
            origins=_take(self.origins, parents),
            order=None if self.order is None else list(_numbered(self.order, parents)),
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
        keys=_chain([batch.keys for batch in batches]),
        values=_chain([batch.values for batch in batches]),
        timestamps=_chain([batch.timestamps for batch in batches]),
        headers=_chain_headers(batches),
        origins=_chain([batch.origins for batch in batches]),
        olds=_chain_olds(batches),
        order=None if batches[0].order is None else _chain([batch.order or () for batch in batches]),
        ports=None if batches[0].ports is None else _chain([batch.ports or () for batch in batches]),
    )


def interleave(batches: Sequence[Batch]) -> Batch:
    """Several batches as one, in depth-first order."""
    batches = [batch for batch in batches if len(batch)] or list(batches[:1])
    whole = concatenate(batches)
    if len(batches) == 1 or whole.order is None:
        return whole
    starts = [0]
    for batch in batches:
        starts.append(starts[-1] + len(batch))
    runs = [
        zip(batch.order or (), range(start, start + len(batch)), strict=True)
        for batch, start in zip(batches, starts, strict=False)
    ]
    return whole.take([row for _, row in merge_sorted(*runs)])


def _take(column: Sequence[Any], rows: Sequence[int]) -> Sequence[Any]:
    if isinstance(column, range) and column.start == 0 and column.step == 1 and not isinstance(rows, Column):
        return rows  # row numbers are their own rows
    if isinstance(column, Column) or isinstance(rows, Column):
        return take_rows(column, rows)
    return [column[row] for row in rows]


def _listed(column: Sequence[Any]) -> Sequence[Any]:
    return column.values() if isinstance(column, Column) else column


def _chain(columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
    whole = chain_columns(columns)
    return list(chain.from_iterable(columns)) if whole is None else whole


def _chain_headers(batches: Sequence[Batch]) -> Sequence[Headers] | None:
    if all(batch.headers is None for batch in batches):
        return None
    return _chain([batch.headers if batch.headers is not None else [()] * len(batch) for batch in batches])


def _chain_olds(batches: Sequence[Batch]) -> Sequence[Any] | None:
    if all(batch.olds is None for batch in batches):
        return None
    return _chain([batch.olds if batch.olds is not None else [None] * len(batch) for batch in batches])


def _numbered(order: Sequence[OrderKey], parents: Sequence[int]) -> Iterable[OrderKey]:
    """Order keys of the children of each parent row: the parent's key and the child's number."""
    previous, number = -1, 0
    for parent in parents:
        number = number + 1 if parent == previous else 0
        previous = parent
        yield (*order[parent], number)
