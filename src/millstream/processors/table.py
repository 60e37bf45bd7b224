"""How a table with a store writes its updates and decides what goes on.

Caching off: every update goes on, in order. Caching on: the updates of an epoch collapse into one per
key, which goes on when the epoch is committed, in the order of each key's last update; its old value is
that of the last epoch, and a key that came and went within the epoch is not heard of.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from millstream.errors import SerdeError
from millstream.processors.batch import Batch
from millstream.processors.operator import Operator, OperatorContext
from millstream.serdes import ColumnError, serde_failure
from millstream.state.keyvalue import Encoded, TimestampedKeyValueStore

Cell = tuple[Any, int] | None
"""A value and its timestamp, or nothing."""


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

    def keep(self, keys: Container[bytes]) -> None:
        """Forget the updates of all other keys."""
        kept = [place for place, key in enumerate(self.key_bytes) if key in keys]
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
        try:
            return self.store.encode_keys(batch.keys), batch
        except ColumnError:
            pass  # go through them one by one: there may be several
        serde = self.store.key_serde
        encoded: list[bytes] = []
        kept: list[int] = []
        for row, key in enumerate(batch.keys):
            try:
                encoded.append(serde.serialize(key))
                kept.append(row)
            except Exception as cause:  # noqa: BLE001 - a serde of the user's own may raise anything
                error = serde_failure(cause, serde=serde, value=key, part="key", store=self.store_name)
                self.context.failed(batch, row, error)
        return encoded, batch.take(kept)

    def settle(self, new: Any, timestamp: int) -> Cell:
        """The cell for a new value. Raises if the store's serde does not take it."""
        return None if new is None else (self.store.settled(new), timestamp)

    def current(self, cell: Cell) -> Any:
        """The value of a cell as a read of the store would give it: fresh, if it could be changed."""
        return None if cell is None else self.store.fresh(cell[0])

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

    def flush(self) -> Batch | None:
        """See `Operator.flush`."""
        # Held back by the store, not by the operator: the operators of a cogroup share one.
        dirty, self.store.held_back = self.store.held_back, {}
        if not dirty:
            return None
        before = self.store.load_committed(dirty)
        rows = [
            (key, self.store.fresh(new), timestamp, headers, origin, value_of(before[data]))
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
        except ColumnError:
            pass  # go through them one by one: there may be several
        else:
            return
        last = dict(zip(updates.key_bytes, updates.rows, strict=True))
        good: dict[bytes, Cell] = {}
        for key, cell in cells.items():
            try:
                good[key] = cell if cell is None else (Encoded(self.store.encode_value(cell[0])), cell[1])
            except SerdeError as error:
                self.context.failed(batch, last[key], error)
        # A value that can't be kept leaves its key as it was, and none of its updates goes on.
        updates.keep(good)
        self.store.save(good)

    def _remember(self, batch: Batch, updates: Updates) -> None:
        last = {key: position for position, key in enumerate(updates.key_bytes)}
        dirty = self.store.held_back
        for key, position in sorted(last.items(), key=lambda item: item[1]):
            row = updates.rows[position]
            new = self.store.settled(updates.news[position])
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
