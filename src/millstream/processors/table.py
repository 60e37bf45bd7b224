"""How a table with a store writes its updates and decides what goes on.

Caching off: every update goes on, in order. Caching on: the updates of an epoch collapse into one per
key, which goes on when the epoch is committed, in the order of each key's last update; its old value is
that of the last epoch, and a key that came and went within the epoch is not heard of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from millstream.processors.batch import Batch
from millstream.processors.operator import Operator, OperatorContext
from millstream.serdes import ColumnError, serde_failure
from millstream.state.keyvalue import TimestampedKeyValueStore

Cell = tuple[Any, int] | None
"""A value and its timestamp, or nothing."""

_IMMUTABLE = frozenset({int, str, float, bool, bytes, UUID, type(None)})


class Updates:
    """The updates that one batch makes to a table: parallel columns, one row per update."""

    __slots__ = ("key_bytes", "news", "olds", "rows", "timestamps")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.key_bytes: list[bytes] = []
        self.news: list[Any] = []
        self.olds: list[Any] = []
        self.timestamps: list[int] = []

    def add(self, row: int, key: bytes, new: Any, old: Any, timestamp: int) -> None:
        """Row `row` of the batch set `key`, which had the value `old`, to `new`."""
        self.rows.append(row)
        self.key_bytes.append(key)
        self.news.append(new)
        self.olds.append(old)
        self.timestamps.append(timestamp)

    def drop(self, key: bytes) -> None:
        """Forget the updates of a key."""
        kept = [place for place, one in enumerate(self.key_bytes) if one != key]
        for name in self.__slots__:
            column = getattr(self, name)
            setattr(self, name, [column[place] for place in kept])


class TableOperator(Operator):
    """An operator that keeps its result in a timestamped store."""

    def __init__(self, store: str, *, caching: bool, send_old: bool) -> None:
        self.store_name = store
        self.caching = caching
        self.send_old = send_old

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self.store: TimestampedKeyValueStore[Any] = context.store(self.store_name)

    def with_key_bytes(self, batch: Batch) -> tuple[list[bytes], Batch]:
        """The keys as the store's bytes; rows whose key can't be serialized are left out, or fail."""
        while True:
            try:
                return self.store.encode_keys(batch.keys), batch
            except ColumnError as bad:
                serde, key = self.store.key_serde, batch.keys[bad.index]
                error = serde_failure(bad.cause, serde=serde, value=key, part="key", store=self.store_name)
                self.context.failed(batch, bad.index, error)
                batch = batch.take([row for row in range(len(batch)) if row != bad.index])

    def write(self, batch: Batch, updates: Updates, cells: Mapping[bytes, Cell]) -> Batch | None:
        """Save the cells that the updates led to; hand the updates on, or keep them for the flush."""
        self._save(batch, updates, cells)
        if self.caching:
            self._remember(batch, updates)
            return None
        changed = batch.take(updates.rows)
        return Batch(
            keys=changed.keys,
            values=updates.news,
            timestamps=updates.timestamps,
            headers=changed.headers,
            origins=changed.origins,
            olds=updates.olds if self.send_old else None,
            order=changed.order,
        )

    def isolated(self, value: Any) -> Any:
        """A value that may go on while the table goes on working with the original.

        A user's aggregator may change a list in place. What was sent before must not change with it.
        """
        if self.caching or type(value) in _IMMUTABLE:
            return value
        return self.store.fresh_copy(value)

    def flush(self) -> Batch | None:
        """See `Operator.flush`."""
        # Held back by the store, not by the operator: the operators of a cogroup share one.
        dirty, self.store.held_back = self.store.held_back, {}
        if not dirty:
            return None
        before = self.store.load_committed(dirty)
        rows = [
            (key, new, timestamp, headers, origin, None if before[data] is None else before[data][0])  # type: ignore[index]
            for data, (key, new, timestamp, headers, origin) in dirty.items()
            if new is not None or before[data] is not None
        ]
        if not rows:
            return None
        keys, values, timestamps, headers, origins, olds = map(list, zip(*rows, strict=True))
        return Batch(
            keys=keys,
            values=values,
            timestamps=timestamps,
            headers=headers if any(headers) else None,
            origins=origins,
            olds=olds if self.send_old else None,
        )

    def _save(self, batch: Batch, updates: Updates, cells: Mapping[bytes, Cell]) -> None:
        try:
            self.store.save(cells)
        except ColumnError as bad:
            present = [(key, cell) for key, cell in cells.items() if cell is not None]
            key, cell = present[bad.index]
            row = updates.rows[max(place for place, one in enumerate(updates.key_bytes) if one == key)]
            serde = self.store.value_serde
            error = serde_failure(bad.cause, serde=serde, value=value_of(cell), store=self.store_name)
            self.context.failed(batch, row, error)
            # The value can't be kept, so the key keeps the one it had, and none of its updates goes on.
            updates.drop(key)
            self._save(batch, updates, {one: cell for one, cell in cells.items() if one != key})

    def _remember(self, batch: Batch, updates: Updates) -> None:
        last = {key: position for position, key in enumerate(updates.key_bytes)}
        dirty = self.store.held_back
        for key, position in sorted(last.items(), key=lambda item: item[1]):
            row = updates.rows[position]
            new = updates.news[position]
            dirty.pop(key, None)
            dirty[key] = (
                batch.keys[row],
                new,
                # A tombstone has no stored time: it goes on with that of the record that caused it.
                batch.timestamps[row] if new is None else updates.timestamps[position],
                batch.headers_of(row),
                batch.origins[row],
            )


def drop_null_keys(context: OperatorContext, batch: Batch) -> Batch:
    """Leave rows without a key out, and count them."""
    if None not in batch.keys:
        return batch
    kept = [row for row, key in enumerate(batch.keys) if key is not None]
    context.dropped(len(batch) - len(kept))
    return batch.take(kept)


def drop_nulls(context: OperatorContext, batch: Batch) -> Batch:
    """Leave rows without a key or without a value out, and count them."""
    if None not in batch.keys and None not in batch.values:
        return batch
    kept = [
        row
        for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True))
        if key is not None and value is not None
    ]
    context.dropped(len(batch) - len(kept))
    return batch.take(kept)


def value_of(cell: Cell) -> Any:
    """The value of a cell, None if it is empty."""
    return None if cell is None else cell[0]


def olds_of(batch: Batch) -> Sequence[Any]:
    """The old values of a table's batch, None for each where they are not sent."""
    return batch.olds if batch.olds is not None else [None] * len(batch)
