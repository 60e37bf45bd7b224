"""Aggregations of a grouped stream: aggregate (and count, which is one) and reduce.

Rows without a key or value are left out. The result's timestamp is the largest that took part. An
aggregator that answers None deletes the row.

With caching on, only the last result of a key in an epoch is heard of. Then the built-in aggregations fold a
batch key by key, not row by row: what stands for all rows of a key is combined first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import Any

from millstream.processors.batch import Batch
from millstream.processors.columns.column import are_many
from millstream.processors.fold import Combine, PartialAggregate, Reducing, combine_for
from millstream.processors.groups import Groups, fold_in_columns, group_rows, has_partials
from millstream.processors.table import TableOperator, Updates, drop_nulls
from millstream.state.stores.cell_store import Cell


class KeyedAggregation(TableOperator):
    """Folds each row into the cell of its key, in order."""

    combine: Combine | None = None
    """How rows of a key can be combined before they are folded, if that gives the same."""
    _may_be_combined = False

    def fold(self, key: Any, value: Any, so_far: Any) -> Any:
        """The new value; `so_far` is None for the first one of a key."""
        raise NotImplementedError

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = drop_nulls(self.context, batch)
        if self.caching and self.combine is not None:
            held = fold_in_columns(self.store, batch, self.combine) if are_many(len(batch)) else None
            if held is not None:
                self.cache.hold(held)
                return None
            if self._fold_groups(batch, self.combine):
                return None
        self._may_be_combined = self.combine is not None and has_partials(batch.values)
        keys, batch = self.with_key_bytes(batch)
        cells = self.store.load_frozen(keys)
        fold = self._fold_to_last if self.caching else self._fold_each
        updates = fold(batch, keys, cells)
        return self.write(batch, updates, {key: cells[key] for key in updates.key_bytes})

    def _fold_groups(self, batch: Batch, combine: Combine) -> bool:
        """Fold what stands for all rows of a key. False if that can't be done: nothing has happened then."""
        values, way = batch.values, combine
        kinds = set(map(type, values))
        if PartialAggregate in kinds:  # in front of the repartition this was done already
            if len(kinds) > 1:
                return False
            way, values = combine.again, [value.value for value in values]
        try:
            groups = group_rows(replace(batch, values=values), self.store.key_serde, way)
            if groups is None:
                return False
            last = batch.take(groups.rows)
            keys = self.store.encode_keys(last.keys)
            updates = self._merged(keys, groups, combine)
        except Exception:  # noqa: BLE001 - row by row it fails again, and then it is known where
            return False
        if not set(map(type, updates.news)) <= self.store.exact_types:
            return False
        self.write(
            last, updates, dict(zip(keys, zip(updates.news, updates.timestamps, strict=True), strict=True))
        )
        return True

    def _merged(self, keys: list[bytes], groups: Groups, combine: Combine) -> Updates:
        cells = self.store.load_frozen(keys)
        updates = Updates()
        updates.key_bytes, updates.rows, updates.olds = keys, list(range(len(keys))), [None] * len(keys)
        add_new, add_time, merged = updates.news.append, updates.timestamps.append, combine.merged
        for key, combined, timestamp in zip(keys, groups.combined, groups.timestamps, strict=True):
            cell = cells[key]
            if cell is None:
                add_new(merged(None, combined))
                add_time(timestamp)
            else:
                add_new(merged(cell[0], combined))
                add_time(max(timestamp, cell[1]))
        return updates

    def _folder(self) -> Callable[[Any, Any, Any], Any]:
        """`fold`, also for values that stand for several."""
        fold, combine = self.fold, self.combine
        if combine is None or not self._may_be_combined:
            return fold

        def fold_either(key: Any, value: Any, so_far: Any) -> Any:
            return (
                combine.merged(so_far, value.value)
                if type(value) is PartialAggregate
                else fold(key, value, so_far)
            )

        return fold_either

    def _fold_each(self, batch: Batch, keys: list[bytes], cells: dict[bytes, Cell]) -> Updates:
        """Fold, with an update for every row."""
        updates = Updates()
        add, fold, current, settle = updates.add, self._folder(), self.current, self.settle
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
                    cells[key] = settle(new, time)
                    add(row, key, new, old, time)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                self.context.failed(batch, row, error)
            else:
                return updates

    def _fold_to_last(self, batch: Batch, keys: list[bytes], cells: dict[bytes, Cell]) -> Updates:
        """Fold, with one update per key, at its last row: what a cached table remembers anyway."""
        last: dict[bytes, int] = {}
        fold, fresh, settle = self._folder(), self.store.thawed, self.settle
        row = 0
        rows = zip(range(len(batch)), keys, batch.keys, batch.values, batch.timestamps, strict=True)
        while True:
            try:
                for row, key, record_key, value, timestamp in rows:
                    cell = cells[key]
                    if cell is None:
                        cells[key] = settle(fold(record_key, value, None), timestamp)
                    else:
                        time = max(timestamp, cell[1])
                        cells[key] = settle(fold(record_key, value, fresh(cell[0])), time)
                    last[key] = row
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                self.context.failed(batch, row, error)
            else:
                break
        updates = Updates()
        for key, row in sorted(last.items(), key=itemgetter(1)):
            cell = cells[key]
            new, time = (None, batch.timestamps[row]) if cell is None else cell
            updates.add(row, key, new, None, time)
        return updates


class StreamAggregate(KeyedAggregation):
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
        self.combine = combine_for(initializer, aggregator)

    def fold(self, key: Any, value: Any, so_far: Any) -> Any:
        """See `KeyedAggregation.fold`."""
        return self.aggregator(key, value, self.initializer() if so_far is None else so_far)


class StreamReduce(KeyedAggregation):
    """`reduce(reducer)`: the first value of a key is its first result."""

    def __init__(
        self,
        store: str,
        reducer: Callable[[Any, Any], Any],
        *,
        caching: bool,
        send_old: bool,
        commutative: bool = False,
    ) -> None:
        super().__init__(store, caching=caching, send_old=send_old)
        self.reducer = reducer
        self.combine = Reducing(reducer) if commutative else None

    def fold(self, key: Any, value: Any, so_far: Any) -> Any:
        """See `KeyedAggregation.fold`."""
        return value if so_far is None else self.reducer(so_far, value)
