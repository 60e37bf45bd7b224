"""A topic read as a table: the last value of each key."""

from __future__ import annotations

from millstream.processors.batch import Batch
from millstream.processors.operator import Operator
from millstream.processors.table import TableOperator, Updates, drop_null_keys, value_of


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
        cells = self.store.load(keys) if self.send_old and not self.caching else dict.fromkeys(keys)
        updates = Updates()
        for row, (key, value, timestamp) in enumerate(zip(keys, batch.values, batch.timestamps, strict=True)):
            updates.add(row, key, value, value_of(cells[key]), timestamp)
            cells[key] = None if value is None else (value, timestamp)
        return self.write(batch, updates, cells)
