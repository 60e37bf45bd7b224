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
from millstream.processors.table import Cell, TableOperator, Updates, drop_nulls


class Folding(TableOperator):
    """Folds each row into the cell of its key, in order."""

    def fold(self, key: Any, value: Any, so_far: Any) -> Any:
        """The new value; `so_far` is None for the first one of a key."""
        raise NotImplementedError

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = drop_nulls(self.context, batch)
        keys, batch = self.with_key_bytes(batch)
        cells = self.store.load_settled(keys)
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
            old = self.current(cell) if self.send_old else None
            new = self.fold(batch.keys[row], batch.values[row], self.current(cell))
            cells[key] = self.settle(new, timestamp)
            updates.add(row, key, new, old, timestamp)

        each_row(self.context, batch, fold_row)
        return updates

    def _fold_to_last(self, batch: Batch, keys: list[bytes], cells: dict[bytes, Cell]) -> Updates:
        """Fold, with one update per key, at its last row: what a cached table remembers anyway."""
        last: dict[bytes, int] = {}
        batch_keys, values, timestamps, fold = batch.keys, batch.values, batch.timestamps, self.fold
        fresh, settled = self.store.fresh, self.store.settled

        def fold_row(row: int) -> None:
            key = keys[row]
            cell = cells[key]
            timestamp = timestamps[row]
            if cell is None:
                new = fold(batch_keys[row], values[row], None)
            else:
                new = fold(batch_keys[row], values[row], fresh(cell[0]))
                timestamp = max(timestamp, cell[1])
            cells[key] = None if new is None else (settled(new), timestamp)
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

    def fold(self, key: Any, value: Any, so_far: Any) -> Any:
        """See `Folding.fold`."""
        return self.aggregator(key, value, self.initializer() if so_far is None else so_far)


class StreamReduce(Folding):
    """`reduce(reducer)`: the first value of a key is its first result."""

    def __init__(
        self, store: str, reducer: Callable[[Any, Any], Any], *, caching: bool, send_old: bool
    ) -> None:
        super().__init__(store, caching=caching, send_old=send_old)
        self.reducer = reducer

    def fold(self, key: Any, value: Any, so_far: Any) -> Any:
        """See `Folding.fold`."""
        return value if so_far is None else self.reducer(so_far, value)
