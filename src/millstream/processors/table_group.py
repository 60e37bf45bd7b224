"""Grouping a table: each update is retracted from the group it was in and added to the one it is in now.

Between the two halves lies a repartition, on which new and old value travel together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.batch import Batch
from millstream.processors.operator import Operator, as_pair, collect, each_row, rest
from millstream.processors.table import TableOperator, Updates, olds_of
from millstream.state.stores.cell_store import Cell

_Mapped = tuple[Any, Any, Any]
"""Group, new value, old value."""


class TableGroupBy(Operator):
    """From each update of a table to retractions and additions by group.

    Same group before and after: one row with both values. Another group: the retraction first, then the
    addition. A row that maps to no group or no value takes no part, nor does one of a versioned table that is
    not the latest of its key.
    """

    def __init__(self, mapper: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self.mapper = mapper

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        if batch.latest is not None:
            batch = batch.take([row for row, is_latest in enumerate(batch.latest) if is_latest])
        olds = olds_of(batch)
        lists, batch = collect(
            self.context,
            batch,
            lambda start: map(
                self._regroup, rest(batch.keys, start), rest(batch.values, start), rest(olds, start)
            ),
        )
        parents = [row for row, mapped in enumerate(lists) for _ in mapped]
        mapped = [one for several in lists for one in several]
        out = batch.expand(parents, [group for group, _, _ in mapped], [new for _, new, _ in mapped])
        return Batch(
            keys=out.keys,
            values=out.values,
            timestamps=out.timestamps,
            headers=out.headers,
            origins=out.origins,
            olds=[old for _, _, old in mapped],
            order=out.order,
        )

    def _regroup(self, key: Any, new: Any, old: Any) -> list[_Mapped]:
        new_group, new_value = self._map(key, new)
        old_group, old_value = self._map(key, old)
        added = new_group is not None and new_value is not None
        removed = old_group is not None and old_value is not None
        if added and removed and new_group == old_group:
            return [(old_group, new_value, old_value)]
        retraction = [(old_group, None, old_value)] if removed else []
        addition = [(new_group, new_value, None)] if added else []
        return retraction + addition

    def _map(self, key: Any, value: Any) -> tuple[Any, Any]:
        pair = None if value is None else self.mapper(key, value)
        return (None, None) if pair is None else as_pair(pair)


class TableAggregation(TableOperator):
    """Applies retractions and additions to the cell of their group."""

    def __init__(self, store: str, aggregation: Aggregation, *, caching: bool, send_old: bool) -> None:
        super().__init__(store, caching=caching, send_old=send_old)
        assert aggregation.subtract is not None, "a table needs a subtractor"
        self._add, self._subtract = aggregation.fold, aggregation.subtract

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        keys, batch = self.with_key_bytes(batch)
        rows = list(zip(batch.keys, batch.values, olds_of(batch), batch.timestamps, strict=True))
        cells = self.store.load_frozen(keys)
        updates = Updates()

        def apply_row(row: int) -> None:
            self._apply(row, *rows[row], keys[row], cells, updates)

        each_row(self.context, batch, apply_row)
        return self.write(batch, updates, {key: cells[key] for key in updates.key_bytes})

    def _apply(
        self,
        row: int,
        group: Any,
        added: Any,
        removed: Any,
        timestamp: int,
        key: bytes,
        cells: dict[bytes, Cell],
        updates: Updates,
    ) -> None:
        cell = cells[key]
        aggregate = before = None
        if cell is not None:
            before = self.current(cell) if self.send_old else None
            aggregate = self.current(cell)
            if removed is not None:
                aggregate = self._subtract(group, removed, aggregate)
            if removed is not None or added is not None:
                timestamp = max(timestamp, cell[1])
        if added is not None:
            aggregate = self._add(group, added, aggregate)
        cells[key] = self.cell_of(aggregate, timestamp)
        updates.add(row, key, aggregate, before, timestamp)
