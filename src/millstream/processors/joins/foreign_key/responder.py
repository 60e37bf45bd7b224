"""The second step of a foreign-key join, at the right table: keeps subscriptions, and answers them.

The operator has two ports: subscriptions come by the first, updates of the right table by the second. A
subscription is kept or ended, and answered with the right row as of then, as its instruction says; an update
of a right row is told to all who subscribe to it, in the order of their primary keys. Answers to a
subscription have the later one of both times, those to an update have its own.

A left row and its right row may change in one epoch. If the right row goes first, the left row is told so as
it was before, which is stale by the time it is resolved; and its new subscription finds no right row. It is
answered all the same, where Kafka's result would stay as it was for ever.

Of the store only those subscriptions are read whose right rows are updated in the batch: in ranges, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.errors import SerdeError
from millstream.processors.batch import Batch
from millstream.processors.joins.foreign_key.messages import (
    Instruction,
    answer,
    kept_key,
    kept_range,
    split_subscription,
)
from millstream.processors.joins.foreign_key.serdes import ForeignKeySerdes
from millstream.processors.joins.table_view import Lookup, TableView
from millstream.processors.operator import Operator, OperatorContext, each_row
from millstream.processors.table import latest_only
from millstream.serdes import serde_failure
from millstream.state.stores.key_value import KeyValueStore
from millstream.state.stores.overlay import Overlay

__all__ = ["SubscriptionResponder"]

_SUBSCRIPTIONS = 0


class SubscriptionResponder(Operator):
    """From subscriptions and updates of the right table to answers, by primary key."""

    def __init__(self, store: str, right: TableView, serdes: ForeignKeySerdes) -> None:
        self.store_name = store
        self.right = right
        self.serdes = serdes
        self.told_of_deletion: set[bytes] = set()
        """Subscriptions, by the keys under which they are kept, that were told so in this epoch."""

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self._store: KeyValueStore[bytes, bytes] = context.store(self.store_name)
        self._right = self.right.open(context)
        self._foreign = self.serdes.foreign_key(context)
        self._value = self.serdes.right_value(context)

    def flush(self) -> None:
        """See `Operator.flush`."""
        self.told_of_deletion.clear()

    def close(self) -> None:
        """See `Operator.close`."""
        self._right.close()

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = latest_only(self.context, self._without_null_keys(batch)).in_rows()
        if not len(batch):
            return None
        answering = _Answering(self, batch)
        each_row(self.context, batch, answering.take)
        answering.write()
        out = batch.expand(answering.rows, answering.keys, answering.values)
        return Batch(
            keys=out.keys,
            values=out.values,
            timestamps=answering.timestamps,
            headers=out.headers,
            origins=out.origins,
            order=out.order,
        )

    def _without_null_keys(self, batch: Batch) -> Batch:
        """Subscriptions to nothing stay: they are answered."""
        assert batch.ports is not None  # both sides are told apart
        ports, keys = batch.ports, batch.keys
        kept = [row for row, port in enumerate(ports) if port == _SUBSCRIPTIONS or keys[row] is not None]
        if len(kept) == len(batch):
            return batch
        self.context.dropped(len(batch) - len(kept))
        return batch.take(kept)

    def foreign_keys(self, batch: Batch) -> list[bytes | SerdeError | None]:
        """The right row that each row is about, in bytes; or why there are none."""
        encoded: list[bytes | SerdeError | None] = []
        for port, key in zip(batch.ports or (), batch.keys, strict=True):
            if port == _SUBSCRIPTIONS:
                encoded.append(key)
                continue
            try:
                encoded.append(self._foreign.serialize(key))
            except Exception as cause:  # noqa: BLE001 - a serde of the user's own may raise anything
                topic = self.serdes.registration
                encoded.append(serde_failure(cause, serde=self._foreign, value=key, part="key", topic=topic))
        return encoded

    def look_up(self, batch: Batch, rows: Sequence[int]) -> Lookup:
        """The right rows that some subscriptions are about, as of each of them."""
        keys = [batch.keys.rows()[row] for row in rows]
        known = {data: None if data is None else self._foreign.deserialize(data) for data in set(keys)}
        orders = None if batch.order is None else [batch.order[row] for row in rows]
        return self._right.lookup([known[data] for data in keys], orders)

    def encoded(self, right: Any) -> bytes:
        """A right value in bytes. Raises if the serde does not take it."""
        try:
            return self._value.serialize(right)
        except Exception as cause:
            raise serde_failure(cause, serde=self._value, value=right, topic=self.serdes.response) from cause

    @property
    def overlay(self) -> Overlay:
        """The subscriptions."""
        return self._store.overlay


class _Answering:
    """The rows of a batch on their way through the right side of a foreign-key join."""

    def __init__(self, responder: SubscriptionResponder, batch: Batch) -> None:
        self.rows: list[int] = []
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.timestamps: list[int] = []
        self._responder = responder
        self._values = batch.values.rows()
        self._ports = batch.ports or ()
        self._times = batch.timestamps.rows()
        self._foreign = responder.foreign_keys(batch)
        self._written: dict[bytes, bytes | None] = {}
        asking = [row for row, port in enumerate(self._ports) if port == _SUBSCRIPTIONS]
        self._place = {row: place for place, row in enumerate(asking)}
        self._right = responder.look_up(batch, asking)
        self._subscribers = self._read_subscribers()

    def take(self, row: int) -> None:
        """Handle one row; may raise what serdes raise, or what computes the right table."""
        foreign = self._foreign[row]
        if isinstance(foreign, SerdeError):
            raise foreign
        if self._ports[row] == _SUBSCRIPTIONS:
            self._subscribe(row, foreign)
        elif foreign is not None:
            self._tell_all(row, foreign)

    def write(self) -> None:
        """Keep what the batch has done to subscriptions."""
        self._responder.overlay.put_many(self._written.items())

    def _subscribe(self, row: int, foreign: bytes | None) -> None:
        instruction, kept, primary = split_subscription(self._values[row])
        key = kept_key(foreign or b"", primary)
        found = self._right(self._place[row])
        is_told = instruction is not Instruction.DELETE_KEY_NO_PROPAGATE and (
            found is not None
            or instruction is not Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
            or key in self._responder.told_of_deletion
        )
        right = None if found is None or instruction.deletes or not is_told else found[0]
        told = answer(kept, None if right is None else self._responder.encoded(right))
        if foreign is not None:
            remembered = None if instruction.deletes else kept
            self._written[key] = remembered
            subscribers = self._subscribers.get(foreign)
            if subscribers is not None:
                subscribers.set(primary, remembered)
        if is_told:
            time = self._times[row]
            self._add(row, primary, told, time if found is None else max(time, found[1]))

    def _tell_all(self, row: int, foreign: bytes) -> None:
        new = self._values[row]
        right = None if new is None else self._responder.encoded(new)
        time = self._times[row]
        subscribers = self._subscribers[foreign].in_order()
        for primary, kept in subscribers:
            self._add(row, primary, answer(kept, right), time)
        if right is None:
            self._responder.told_of_deletion.update(kept_key(foreign, primary) for primary, _ in subscribers)

    def _add(self, row: int, primary: bytes, told: bytes, time: int) -> None:
        self.rows.append(row)
        self.keys.append(primary)
        self.values.append(told)
        self.timestamps.append(time)

    def _read_subscribers(self) -> dict[bytes, _Subscribers]:
        """Who subscribes, before the batch, to the right rows that it updates."""
        updated = {
            foreign
            for port, foreign in zip(self._ports, self._foreign, strict=True)
            if port != _SUBSCRIPTIONS and isinstance(foreign, bytes)
        }
        found = {foreign: _Subscribers() for foreign in updated}
        ranges = sorted(kept_range(foreign) for foreign in updated)
        for key, kept in self._responder.overlay.scan_ranges(ranges):
            end = 4 + int.from_bytes(key[:4])
            found[key[4:end]].add(key[end:], kept)
        return found


class _Subscribers:
    """Who subscribes to one right row, by primary key."""

    __slots__ = ("_by_key", "_in_order")

    def __init__(self) -> None:
        self._by_key: dict[bytes, bytes] = {}
        self._in_order = True

    def add(self, primary: bytes, kept: bytes) -> None:
        """One more, behind those that are there."""
        self._by_key[primary] = kept

    def set(self, primary: bytes, kept: bytes | None) -> None:
        """A subscription begins, changes or ends."""
        if kept is None:
            self._by_key.pop(primary, None)
            return
        self._in_order = self._in_order and primary in self._by_key
        self._by_key[primary] = kept

    def in_order(self) -> Sequence[tuple[bytes, bytes]]:
        """All of them, in the order of their keys."""
        if not self._in_order:
            self._by_key = dict(sorted(self._by_key.items()))
            self._in_order = True
        return list(self._by_key.items())
