"""`KStream.join` and `left_join` with a table: each record with the row of its key, as of that record.

Updates of the table cause nothing. Records without a value are left out, those without a key, too, unless it
is a left join: then they go on without a row of the table. With a versioned table a record is joined with the
row as it was at the record's time.

A global table is looked up by a key that a function makes of the record, and is as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.joins.table_view import TableReader, TableView
from millstream.processors.operator import Operator, OperatorContext, collect, rest
from millstream.processors.table import value_of

__all__ = ["StreamTableJoin", "StreamTableJoiner"]


@dataclass(frozen=True, slots=True)
class StreamTableJoiner:
    """What a record and a row of a table make."""

    joiner: Any
    with_key: bool
    left: bool
    """Records without a row of the table are wanted, too."""
    key_of: Callable[[Any, Any], Any] | None = None
    """From key and value of a record to the key of the table; None: the record's own."""

    @property
    def in_columns(self) -> bool:
        """Whether it would rather have columns than Python values, and never changes a value."""
        return False

    def values(
        self, context: OperatorContext, batch: Batch, others: Sequence[Any]
    ) -> tuple[Sequence[Any], Batch]:
        """The joined values of rows with those of a table, and the rows that they belong to."""

        def calls(start: int) -> Iterator[Any]:
            columns = (rest(batch.values, start), rest(others, start))
            return map(self.joiner, *((rest(batch.keys, start),) if self.with_key else ()), *columns)

        return collect(context, batch, calls)


class StreamTableJoin(Operator):
    """Joins each record when it comes. `as_of_time`: the table has versions."""

    def __init__(self, table: TableView, join: StreamTableJoiner, *, as_of_time: bool = False) -> None:
        self.table = table
        self.join = join
        self.as_of_time = as_of_time

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self._reader: TableReader = self.table.open(context)

    def close(self) -> None:
        """See `Operator.close`."""
        self._reader.close()

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = self.without_nulls(batch if self.join.in_columns else batch.in_rows())
        return self.joined(batch) if len(batch) else None

    def without_nulls(self, batch: Batch) -> Batch:
        """Leave rows out that have no value, or no key to be looked up with, and count them."""
        keyless = self.join.left or self.join.key_of is not None
        if None not in batch.values and (keyless or None not in batch.keys):
            return batch
        kept = [
            row
            for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True))
            if value is not None and (keyless or key is not None)
        ]
        self.context.dropped(len(batch) - len(kept))
        return batch.take(kept)

    def joined(self, batch: Batch) -> Batch:
        """Rows with values, joined."""
        join = self.join
        if join.in_columns and join.key_of is None and not self.as_of_time:
            column = self._reader.column(batch.keys, batch.order)
            if column is not None:
                return self._joined_with(batch, column)
        keys: Sequence[Any] = batch.keys.rows()
        if join.key_of is not None:
            keys, batch = self._mapped_keys(batch, join.key_of)
        times = batch.timestamps.rows() if self.as_of_time else None
        others = self._reader.values(keys, batch.order, times, shared=join.in_columns)
        if others is None:
            lookup = self._reader.lookup(keys, batch.order, times)
            found, batch = collect(self.context, batch, lambda start: map(lookup, range(start, len(keys))))
            others = [value_of(cell) for cell in found]
        return self._joined_with(batch, Column.of(others))

    def _joined_with(self, batch: Batch, others: Column) -> Batch:
        """Rows, joined with what the table has for each."""
        if not self.join.left and None in others:
            kept = others.present()
            batch, others = batch.take(kept), others.take(kept)
        values, batch = self.join.values(self.context, batch, others)
        return batch.with_values(values)

    def _mapped_keys(self, batch: Batch, key_of: Callable[[Any, Any], Any]) -> tuple[list[Any], Batch]:
        """The keys to look up. A row without one has no partner, and only a left join keeps it."""
        keys, batch = collect(
            self.context, batch, lambda start: map(key_of, rest(batch.keys, start), rest(batch.values, start))
        )
        if self.join.left or None not in keys:
            return keys, batch
        kept = [row for row, key in enumerate(keys) if key is not None]
        self.context.dropped(len(batch) - len(kept))
        return [keys[row] for row in kept], batch.take(kept)
