"""A topic read as a table: the last value of each key."""

from __future__ import annotations

from millstream.processors.batch import Batch
from millstream.processors.operator import Operator, each_row
from millstream.processors.table import TableOperator, Updates, drop_null_keys


class TableSource(Operator):
    """A table that nobody needs to look up: its updates go on, and nothing is kept."""

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        return drop_null_keys(self.context, batch)


class StoredTableSource(TableOperator):
    """A table with a store. Updates are taken as they come, late ones too: the last one wins."""

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = drop_null_keys(self.context, batch)
        keys, batch = self.with_key_bytes(batch)
        # With caching the old value is read at the flush; without it only if somebody wants it.
        wants_old = self.send_old and not self.caching
        cells = self.store.load_frozen(keys) if wants_old else dict.fromkeys(keys)
        updates = Updates()
        values, timestamps = batch.values.rows(), batch.timestamps.rows()

        def put_row(row: int) -> None:
            key, value, timestamp = keys[row], values[row], timestamps[row]
            old = self.current(cells[key]) if wants_old else None
            cells[key] = self.cell_of(value, timestamp)
            updates.add(row, key, value, old, timestamp)

        each_row(self.context, batch, put_row)
        return self.write(batch, updates, {key: cells[key] for key in updates.key_bytes})
