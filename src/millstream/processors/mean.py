"""`mean()`: the store keeps a `Mean`, which knows its total and count; what goes on is a plain float."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from millstream.processors.aggregate import StreamAggregate
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.table import TableOperator, Updates
from millstream.state.stores.cell_store import Cell


class SendsFloats(TableOperator):
    """A table of means, as those behind it see it."""

    def write(self, batch: Batch, updates: Updates, cells: Mapping[bytes, Cell]) -> Batch | None:
        """See `TableOperator.write`."""
        return _plain(super().write(batch, updates, cells))

    def flush(self) -> Batch | None:
        """See `Operator.flush`."""
        return _plain(super().flush())


class StreamMean(SendsFloats, StreamAggregate):
    """The mean of the values of each key."""


def _plain(batch: Batch | None) -> Batch | None:
    if batch is None:
        return None
    return replace(
        batch, values=_floats(batch.values), olds=None if batch.olds is None else _floats(batch.olds)
    )


def _floats(means: Sequence[Any]) -> Sequence[Any]:
    if isinstance(means, Column):
        return means
    return [None if mean is None else float(mean) for mean in means]
