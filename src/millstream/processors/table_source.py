"""A topic read as a table: the last value of each key."""

from __future__ import annotations

from millstream.processors.batch import Batch
from millstream.processors.operator import Operator
from millstream.processors.table import TableOperator, drop_null_keys


class TableSource(Operator):
    """A table that nobody needs to look up: its updates go on, and nothing is kept."""

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        return drop_null_keys(self.context, batch)


class StoredTableSource(TableOperator):
    """A table with a store. Updates are taken as they come, late ones too: the last one wins."""

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        return self.put(drop_null_keys(self.context, batch))
