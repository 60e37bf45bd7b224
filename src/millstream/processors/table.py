"""How a table with a store writes its updates and decides what goes on.

Caching off: every update goes on, in order. Caching on: the updates of an epoch collapse into one per
key, which goes on when the epoch is committed, in the order of each key's last update; its old value is
that of the last epoch, and a key that came and went within the epoch is not heard of.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

from millstream.errors import SerdeError
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.operator import Operator, OperatorContext, each_row
from millstream.processors.record_cache import last_of_each
from millstream.processors.table_history import TableHistory
from millstream.serdes import ColumnError, Serde, serde_failure, serialize_column
from millstream.state.stores.cell_store import Cell, CellStore, Frozen
from millstream.state.stores.versioned import VersionedKeyValueStore


class Updates:
    """The updates that one batch makes to a table: parallel columns, one row per update."""

    __slots__ = ("failed", "key_bytes", "news", "olds", "rows", "timestamps")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.key_bytes: list[bytes] = []
        self.news: list[Any] = []
        self.olds: list[Any] = []
        self.timestamps: list[int] = []
        self.failed: list[int] = []
        """Rows on which a function of the user's failed."""

    def add(self, row: int, key: bytes, new: Any, old: Any, timestamp: int) -> None:
        """Row `row` of the batch set `key`, which had the value `old`, to `new`."""
        self.rows.append(row)
        self.key_bytes.append(key)
        self.news.append(new)
        self.olds.append(old)
        self.timestamps.append(timestamp)

    def add_all(self, keys: list[bytes], news: list[Any], timestamps: list[int]) -> None:
        """Each row of the batch set its key; what that had before is not known."""
        self.rows = list(range(len(keys)))
        self.key_bytes, self.news, self.timestamps = keys, news, timestamps
        self.olds = [None] * len(keys)

    def keep(self, keys: Container[bytes]) -> None:
        """Forget the updates of all other keys."""
        self.keep_at([place for place, key in enumerate(self.key_bytes) if key in keys])

    def keep_at(self, places: Sequence[int]) -> None:
        """Forget the updates at all other places."""
        for name in ("key_bytes", "news", "olds", "rows", "timestamps"):
            column = getattr(self, name)
            setattr(self, name, [column[place] for place in places])


class TableOperator(Operator):
    """An operator that keeps its result in a store of cells."""

    def __init__(self, store: str, *, caching: bool, send_old: bool) -> None:
        self.store_name = store
        self.caching = caching
        self.send_old = send_old

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self.store: CellStore[Any] = context.store(self.store_name)
        self.cache = context.record_cache(self.store_name)
        self.history = context.table_history(self.store_name)
        """Where each row's writes are noted, if somebody looks the table up."""

    def with_key_bytes(self, batch: Batch, serde: Serde[Any] | None = None) -> tuple[list[bytes], Batch]:
        """The keys as the store's bytes, and the rows, to be gone through one by one.

        Rows whose key can't be serialized are left out, or fail. The serde is that of the cells' keys, if
        none is given.
        """
        batch = batch.in_rows()
        serde = self.store.cell_key_serde if serde is None else serde
        try:
            return serialize_column(serde, batch.keys), batch  # type: ignore[return-value]  # none is None
        except ColumnError:
            pass  # go through them one by one: there may be several
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

    def table_keys(self, cells: Sequence[bytes], keys: Column) -> Column:
        """The table's keys of rows that were held back, by the keys of their cells and of the batch."""
        del cells
        return keys

    def cell_of(self, new: Any, timestamp: int) -> Cell:
        """The cell for a new value. Raises if the store's serde does not take it."""
        return self.store.deleted(timestamp) if new is None else (self.store.frozen(new), timestamp)

    def current(self, cell: Cell) -> Any:
        """The value of a cell as a read of the store would give it: fresh, if it could be changed."""
        return None if cell is None else self.store.thawed(cell[0])

    def put(self, batch: Batch, *, skip_if_both_null: bool = False) -> Batch | None:
        """Set the key of each row to its value, in order, and hand on what changed, or keep it for the flush.

        With `skip_if_both_null` a row without a value is left out if its key has none.
        """
        keys, batch = self.with_key_bytes(batch)
        # With caching the old value is read at the flush; without it only if somebody wants it.
        wants_old = skip_if_both_null or (self.send_old and not self.caching)
        updates = Updates()
        values, timestamps = batch.values.rows(), batch.timestamps.rows()
        if not wants_old and self.store.keeps(values):  # nothing is asked for, row by row
            updates.add_all(keys, list(values), list(timestamps))
            news = [
                self.store.deleted(timestamp) if new is None else (new, timestamp)
                for new, timestamp in zip(values, timestamps, strict=True)
            ]
            return self.write(batch, updates, dict(zip(keys, news, strict=True)))
        cells = self.store.load_frozen(keys) if wants_old else dict.fromkeys(keys)

        def put_row(row: int) -> None:
            key, new, timestamp = keys[row], values[row], timestamps[row]
            old = self.current(cells[key]) if wants_old else None
            if skip_if_both_null and new is None and old is None:
                return
            cells[key] = self.cell_of(new, timestamp)
            updates.add(row, key, new, old, timestamp)

        each_row(self.context, batch, put_row)
        return self.write(batch, updates, {key: cells[key] for key in updates.key_bytes})

    def write(self, batch: Batch, updates: Updates, cells: Mapping[bytes, Cell]) -> Batch | None:
        """Save the cells that the updates led to; hand the updates on, or keep them for the flush.

        A versioned store keeps every update, and those that it refuses do not go on.
        """
        latest: list[bool] | None = None
        if self.history is not None:
            self.history.before(self.store, updates.key_bytes)
        if isinstance(self.store, VersionedKeyValueStore):
            latest = self._put_versions(self.store, updates)
        else:
            self.save(batch, updates, cells)
        if self.history is not None:
            self._note(self.history, batch, updates, latest)
        if self.caching:
            self.hold_back(batch, updates)
            return None
        changed = batch if updates.rows == list(range(len(batch))) else batch.take(updates.rows)
        return Batch(
            keys=changed.keys,
            values=updates.news,
            timestamps=updates.timestamps,
            headers=changed.headers,
            origins=changed.origins,
            olds=updates.olds if self.send_old else None,
            order=changed.order,
            latest=latest,
        )

    def flush(self) -> Batch | None:
        """See `Operator.flush`."""
        held = self.cache.take()
        if not held:
            return None
        data, batch = last_of_each(held)
        keys = self.table_keys(data, batch.keys)
        if keys is not batch.keys:
            batch = replace(batch, keys=keys)
        olds: list[Any] | None = None
        if self.send_old or None in batch.values:
            rows = zip(data, batch.values, strict=True)
            before = self.store.load_committed(
                data if self.send_old else [key for key, value in rows if value is None]
            )
            kept = [
                row
                for row, (key, value) in enumerate(zip(data, batch.values, strict=True))
                if value is not None or before[key] is not None
            ]
            if not kept:
                return None
            if self.send_old:
                olds = [value_of(before[data[row]]) for row in kept]
            batch = batch.take(kept)
        values = batch.values
        if values.shows(Frozen):
            values = Column(list(map(self.store.thawed, values)))
        if values is batch.values and not self.send_old:  # what is held back has no old values
            return batch
        return replace(batch, values=values, olds=Column(olds or ()) if self.send_old else None)

    def save(self, batch: Batch, updates: Updates, cells: Mapping[bytes, Cell]) -> None:
        """Save cells. Updates whose value can't be kept fail, and are taken out of the updates."""
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
                good[key] = cell if cell is None else (Frozen(self.store.encode_value(cell[0])), cell[1])
            except SerdeError as error:
                self.context.failed(batch, last[key], error)
        # A value that can't be kept leaves its key as it was, and none of its updates goes on.
        updates.keep(good)
        self.store.save(good)

    def _put_versions(self, store: VersionedKeyValueStore[Any, Any], updates: Updates) -> list[bool] | None:
        """Keep the updates as versions. Which are the latest ones of their keys; None if all are."""
        data = [None if new is None else store.encode_value(new) for new in updates.news]
        valid_to = store.put_versions(updates.key_bytes, data, updates.timestamps)
        kept = [place for place, until in enumerate(valid_to) if until != store.NOT_PUT]
        if len(kept) < len(valid_to):
            self.context.dropped(len(valid_to) - len(kept))
            updates.keep_at(kept)
        latest = [valid_to[place] == store.VALID_TO_UNDEFINED for place in kept]
        return None if all(latest) else latest

    def _note(
        self, history: TableHistory, batch: Batch, updates: Updates, latest: Sequence[bool] | None
    ) -> None:
        """Tell those who look the table up what each row has written."""
        assert batch.order is not None  # rows have places wherever a table is looked up
        keys, times = updates.key_bytes, updates.timestamps
        orders = [batch.order[row] for row in updates.rows]
        news = updates.news
        values = news if self.store.keeps(news) else list(map(self.store.frozen, news))
        if self.store.has_versions:
            history.versions.add(keys, orders, times, [value and value.data for value in values])
        if latest is not None:  # an older version changes nothing in what is there now
            keys, times, orders, values = (
                list(compress(one, latest)) for one in (keys, times, orders, values)
            )
        cells = [None if value is None else (value, time) for value, time in zip(values, times, strict=True)]
        history.add(keys, orders, cells)

    def hold_back(self, batch: Batch, updates: Updates) -> None:
        """Hold the last update of each key back until the flush."""
        keys, rows, news, timestamps = updates.key_bytes, updates.rows, updates.news, updates.timestamps
        last = dict(zip(keys, range(len(keys)), strict=True))
        if len(last) < len(keys):
            places = sorted(last.values())
            keys, rows = [keys[place] for place in places], [rows[place] for place in places]
            news, timestamps = [news[place] for place in places], [timestamps[place] for place in places]
        if None in news:
            # A tombstone has no stored time: it goes on with that of the record that caused it.
            timestamps = [
                batch.timestamps[row] if new is None else timestamp
                for row, new, timestamp in zip(rows, news, timestamps, strict=True)
            ]
        if not self.store.keeps(news):
            news = list(map(self.store.frozen, news))
        held = batch if rows == list(range(len(batch))) else batch.take(rows)
        last_rows = Batch(
            held.keys, news, timestamps, held.headers, held.origins, ports=held.ports, latest=held.latest
        )
        self.cache.hold((keys, last_rows))


def drop_null_keys(context: OperatorContext, batch: Batch) -> Batch:
    """Leave rows without a key out, and count them."""
    if None not in batch.keys:
        return batch
    kept = batch.keys.present()
    context.dropped(len(batch) - len(kept))
    return batch.take(kept)


def latest_only(context: OperatorContext, batch: Batch) -> Batch:
    """Leave updates of versioned tables out that are older than the latest of their key, and count them."""
    if batch.latest is None:
        return batch
    kept = [row for row, is_latest in enumerate(batch.latest) if is_latest]
    context.dropped(len(batch) - len(kept))
    return batch.take(kept)


def drop_nulls(context: OperatorContext, batch: Batch) -> Batch:
    """Leave rows without a key or without a value out, and count them."""
    if None not in batch.keys and None not in batch.values:
        return batch
    if batch.keys.in_arrow and batch.values.in_arrow:
        rows = (batch.keys.series().is_not_null() & batch.values.series().is_not_null()).arg_true()
        context.dropped(len(batch) - len(rows))
        return batch.take(Column.of_series(rows))
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
