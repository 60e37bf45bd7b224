"""Aggregations of a grouped stream: aggregate (and count, which is one) and reduce.

Rows without a key or value are left out. The result's timestamp is the largest that took part. An
aggregator that answers None deletes the row.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from millstream.processors.batch import Batch
from millstream.processors.operator import each_row
from millstream.processors.table import Cell, TableOperator, Updates, drop_nulls, value_of


class Folding(TableOperator):
    """Folds each row into the cell of its key, in order."""

    def fold(self, key: Any, value: Any, cell: Cell) -> Any:
        """The new value of the cell."""
        raise NotImplementedError

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = drop_nulls(self.context, batch)
        keys, batch = self.with_key_bytes(batch)
        cells = self.store.load(keys)
        fold = self._fold_to_last if self.caching else self._fold_each
        updates = fold(batch, keys, cells)
        return self.write(batch, updates, {key: cells[key] for key in updates.key_bytes})

    def _fold_each(self, batch: Batch, keys: list[bytes], cells: dict[bytes, Cell]) -> Updates:
        """Fold, with an update for every row."""
        updates = Updates()

        def fold_row(row: int) -> None:
            key = keys[row]
            cell = cells[key]
            timestamp = batch.timestamps[row]
            if cell is not None:
                timestamp = max(timestamp, cell[1])
            old = self.isolated(value_of(cell)) if self.send_old else None
            new = self.fold(batch.keys[row], batch.values[row], cell)
            cells[key] = None if new is None else (new, timestamp)
            updates.add(row, key, self.isolated(new), old, timestamp)

        each_row(self.context, batch, fold_row)
        return updates

    def _fold_to_last(self, batch: Batch, keys: list[bytes], cells: dict[bytes, Cell]) -> Updates:
        """Fold, with one update per key, at its last row: what a cached table remembers anyway."""
        last: dict[bytes, int] = {}
        batch_keys, values, timestamps, fold = batch.keys, batch.values, batch.timestamps, self.fold

        def fold_row(row: int) -> None:
            key = keys[row]
            cell = cells[key]
            timestamp = timestamps[row]
            new = fold(batch_keys[row], values[row], cell)
            if cell is not None and cell[1] > timestamp:
                timestamp = cell[1]
            cells[key] = None if new is None else (new, timestamp)
            last[key] = row

        each_row(self.context, batch, fold_row)
        updates = Updates()
        for key, row in sorted(last.items(), key=itemgetter(1)):
            cell = cells[key]
            new, timestamp = (None, timestamps[row]) if cell is None else cell
            updates.add(row, key, new, None, timestamp)
        return updates


class StreamAggregate(Folding):
    """`aggregate(initializer, aggregator)`."""

    def __init__(
        self,
        store: str,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        *,
        caching: bool,
        send_old: bool,
    ) -> None:
        super().__init__(store, caching=caching, send_old=send_old)
        self.initializer = initializer
        self.aggregator = aggregator

    def fold(self, key: Any, value: Any, cell: Cell) -> Any:
        """See `Folding.fold`."""
        return self.aggregator(key, value, self.initializer() if cell is None else cell[0])


class StreamReduce(Folding):
    """`reduce(reducer)`: the first value of a key is its first result."""

    def __init__(
        self, store: str, reducer: Callable[[Any, Any], Any], *, caching: bool, send_old: bool
    ) -> None:
        super().__init__(store, caching=caching, send_old=send_old)
        self.reducer = reducer

    def fold(self, key: Any, value: Any, cell: Cell) -> Any:
        """See `Folding.fold`."""
        return value if cell is None else self.reducer(cell[0], value)
