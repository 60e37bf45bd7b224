"""An aggregation of a grouped stream over the rows of a batch.

Rows without a key or value are left out. The result's timestamp is the largest that took part. An aggregate
of None deletes the row.

With caching on, only the last result of a key in an epoch is heard of. Then an aggregation that has a partial
form does a batch key by key, not row by row: what stands for all rows of a key is combined first. If it has a
column form, too, large batches are done in columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from operator import itemgetter
from typing import Any, cast

from millstream.processors.aggregations.aggregation import Aggregation, Fold, PartialAggregate, has_partials
from millstream.processors.aggregations.groups import Groups, group_rows
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column, are_many
from millstream.processors.table import TableOperator, Updates, drop_nulls
from millstream.serdes import Serde, serialize_column
from millstream.state.stores.cell_store import Cell

__all__ = ["KeyedAggregation"]


class KeyedAggregation(TableOperator):
    """Folds each row into the cell of its key, in order."""

    def __init__(self, store: str, aggregation: Aggregation, *, caching: bool, send_old: bool) -> None:
        super().__init__(store, caching=caching, send_old=send_old)
        self.aggregation = aggregation

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = drop_nulls(self.context, batch)
        combines = self.collapses and self.aggregation.combiner is not None
        if combines and are_many(len(batch)) and self._fold_columns(batch):
            return None
        return self.fold_rows(batch)

    def fold_rows(self, batch: Batch) -> Batch | None:
        """Fold rows without nulls as Python objects: key by key if that can be done, else row by row."""
        if self.collapses and self.aggregation.combiner is not None:
            if self._fold_groups(batch):
                return None
            self.context.fell_back("partials", len(batch))
        updates, batch, cells = self.folded(*self.with_key_bytes(batch))
        return self.write(batch, updates, cells)

    def folded(
        self, keys: list[bytes], batch: Batch, records: Sequence[int] | None = None
    ) -> tuple[Updates, Batch, dict[bytes, Cell]]:
        """Fold rows into the cells of some keys; what changed, and nothing is written yet.

        Several rows in turn may stand for one record, by the numbers in `records`: one that fails is left out
        from there on.
        """
        cells = self.store.load_frozen(keys)
        run = self._fold_to_last if self.collapses else self._fold_each
        updates = run(self._fold_of(batch.values), batch, keys, cells, records)
        return updates, batch, {key: cells[key] for key in updates.key_bytes}

    @property
    def collapses(self) -> bool:
        """Whether nobody hears of any result of a key in a batch but the last."""
        return self.caching and self.history is None

    @property
    def group_serde(self) -> Serde[Any]:
        """From what rows are grouped by to the keys of their cells."""
        return self.store.key_serde

    def write(self, batch: Batch, updates: Updates, cells: Mapping[bytes, Cell]) -> Batch | None:
        """See `TableOperator.write`."""
        return self._shown(super().write(batch, updates, cells))

    def flush(self) -> Batch | None:
        """See `Operator.flush`."""
        return self._shown(super().flush())

    def _shown(self, batch: Batch | None) -> Batch | None:
        shown = self.aggregation.shown
        if batch is None or shown is None:
            return batch

        def each(values: Column) -> Column:
            return Column([None if value is None else shown(value) for value in values])

        return replace(
            batch, values=each(batch.values), olds=None if batch.olds is None else each(batch.olds)
        )

    def _fold_columns(self, batch: Batch) -> bool:
        """Fold in columns. False if that can't be done: nothing has happened then."""
        # Only tasks need Polars: programs that are built, and not run, do without.
        from millstream.processors.aggregations.column_groups import fold_in_columns  # noqa: PLC0415

        return fold_in_columns(self, batch, self.aggregation, self.group_serde)

    def _fold_groups(self, batch: Batch) -> bool:
        """Fold what stands for all rows of a key. False if that can't be done: nothing has happened then."""
        aggregation, kinds = self.aggregation, batch.values.kinds()
        if PartialAggregate in kinds:  # in front of the repartition this was done already
            if len(kinds) > 1:
                return False
            aggregation = aggregation.partials or aggregation
            batch = batch.with_values([value.value for value in batch.values])
        try:
            groups = group_rows(batch, self.group_serde, aggregation)
            if groups is None:
                return False
            last = batch if len(groups.rows) == len(batch) else batch.take(groups.rows)
            keys = cast("list[bytes]", serialize_column(self.group_serde, last.keys))
            updates = self._merged(keys, groups)
        except Exception:  # noqa: BLE001 - row by row it fails again, and then it is known where
            return False
        if not set(map(type, updates.news)) <= self.store.exact_types:
            return False
        self.write(
            last, updates, dict(zip(keys, zip(updates.news, updates.timestamps, strict=True), strict=True))
        )
        return True

    def _merged(self, keys: list[bytes], groups: Groups) -> Updates:
        assert self.aggregation.combiner is not None  # there are groups
        cells, merge = self.store.load_frozen(keys), self.aggregation.combiner.merge
        updates = Updates()
        updates.key_bytes, updates.rows, updates.olds = keys, list(range(len(keys))), [None] * len(keys)
        add_new, add_time = updates.news.append, updates.timestamps.append
        for key, combined, timestamp in zip(keys, groups.combined, groups.timestamps, strict=True):
            cell = cells[key]
            if cell is None:
                add_new(combined)
                add_time(timestamp)
            else:
                add_new(merge(cell[0], combined))
                add_time(max(timestamp, cell[1]))
        return updates

    def _fold_of(self, values: Column) -> Fold:
        """The row form, also for values that stand for several."""
        fold, combiner = self.aggregation.fold, self.aggregation.combiner
        if combiner is None or not has_partials(values):
            return fold
        merge = combiner.merge

        def fold_either(key: Any, value: Any, so_far: Any) -> Any:
            if type(value) is not PartialAggregate:
                return fold(key, value, so_far)
            return value.value if so_far is None else merge(so_far, value.value)

        return fold_either

    def _fold_each(
        self,
        fold: Fold,
        batch: Batch,
        keys: list[bytes],
        cells: dict[bytes, Cell],
        records: Sequence[int] | None,
    ) -> Updates:
        """Fold, with an update for every row."""
        updates = Updates()
        failed = updates.failed
        add, current, cell_of = updates.add, self.current, self.cell_of
        wants_old = self.send_old
        row = 0
        rows = zip(range(len(batch)), keys, batch.keys, batch.values, batch.timestamps, strict=True)
        while True:
            try:
                for row, key, record_key, value, timestamp in rows:
                    cell = cells[key]
                    if cell is None:
                        old, time, new = None, timestamp, fold(record_key, value, None)
                    else:
                        old = current(cell) if wants_old else None
                        time = max(timestamp, cell[1])
                        new = fold(record_key, value, current(cell))
                    cells[key] = cell_of(new, time)
                    add(row, key, new, old, time)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                self.context.failed(batch, row, error)
                failed.append(row)
                _skip_record(rows, records, row)
            else:
                return updates

    def _fold_to_last(
        self,
        fold: Fold,
        batch: Batch,
        keys: list[bytes],
        cells: dict[bytes, Cell],
        records: Sequence[int] | None,
    ) -> Updates:
        """Fold, with one update per key, at its last row: what a cached table remembers anyway."""
        last: dict[bytes, int] = {}
        failed: list[int] = []
        thawed, cell_of = self.store.thawed, self.cell_of
        row = 0
        rows = zip(range(len(batch)), keys, batch.keys, batch.values, batch.timestamps, strict=True)
        while True:
            try:
                for row, key, record_key, value, timestamp in rows:
                    cell = cells[key]
                    if cell is None:
                        cells[key] = cell_of(fold(record_key, value, None), timestamp)
                    else:
                        time = max(timestamp, cell[1])
                        cells[key] = cell_of(fold(record_key, value, thawed(cell[0])), time)
                    last[key] = row
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                self.context.failed(batch, row, error)
                failed.append(row)
                _skip_record(rows, records, row)
            else:
                break
        updates = Updates()
        updates.failed = failed
        for key, row in sorted(last.items(), key=itemgetter(1)):
            cell = cells[key]
            new, time = (None, batch.timestamps[row]) if cell is None else cell
            updates.add(row, key, new, None, time)
        return updates


def _skip_record(rows: Iterator[Any], records: Sequence[int] | None, failed: int) -> None:
    """Leave out the other rows of a record that failed at one of them."""
    if records is not None:
        more = takewhile(records[failed].__eq__, islice(records, failed + 1, None))
        deque(islice(rows, sum(1 for _ in more)), maxlen=0)
