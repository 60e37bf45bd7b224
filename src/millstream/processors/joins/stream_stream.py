"""A join of two streams: records of a key that are close enough in time, each pair once.

A record looks for partners among those of the other stream that came before it, and is then kept itself, for
those to come. Pairs come in the order of the partners' times, with the later of both timestamps. There is no
test for late records: they are joined with whatever is still there. What expires, in each store by itself, is
decided by the latest time that was put there.

Records without a value are left out, and so are those without a key; but on an outer side, whose records are
wanted without a partner, too (left join: the left side, outer join: both), a record without a key goes on
alone at once. Others of such a side wait for a partner until they close (see `unmatched`), unless their
window is over already. What leaves without one comes before the pairs of the record that made it leave.

A batch is joined in memory: the rows of its keys are read at once and written once. Pairs depend on nothing
that a joiner answers, so all of them are found first, and the joiner is run over them in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column, are_many
from millstream.processors.joins.partners_in_columns import Partners, partners_in_columns
from millstream.processors.joins.unmatched import LEFT, RIGHT, Unmatched, unmatched_row
from millstream.processors.joins.windows_of_keys import EncodedRows, SideRows, partners_in_rows
from millstream.processors.operator import Operator, OperatorContext, collect, rest
from millstream.serdes import ColumnError, Serde, serde_failure, serialize_column
from millstream.state.stores.cell_store import Frozen
from millstream.state.stores.list_value import ListValueStore
from millstream.state.stores.window import WindowStore
from millstream.windows import JoinWindows

__all__ = ["Joiner", "Pairs", "StreamStreamJoin", "encode_rows"]

Joiner = Callable[..., Any]
"""Of both values, or of the key and both."""


@dataclass(slots=True)
class Pairs:
    """What goes on, one entry per pair: parallel columns."""

    rows: list[int] = field(default_factory=list)
    """The rows of the batch that caused them."""
    timestamps: list[int] = field(default_factory=list)
    lefts: list[Any] = field(default_factory=list)
    """Values, or `Frozen` ones until all pairs are found."""
    rights: list[Any] = field(default_factory=list)
    other_keys: dict[int, Any] = field(default_factory=dict)
    """By the places of pairs: keys that are not those of the rows."""

    def add(self, row: int, timestamp: int, left: Any, right: Any) -> None:
        """One more."""
        self.rows.append(row)
        self.timestamps.append(timestamp)
        self.lefts.append(left)
        self.rights.append(right)

    def joined(
        self, context: OperatorContext, batch: Batch, joiner: Joiner, *, with_key: bool
    ) -> Batch | None:
        """The pairs as rows, with what the joiner makes of them; those on which it fails are left out."""
        if not self.rows:
            return None
        found = replace(batch.expand(self.rows, None, self.lefts), timestamps=Column(self.timestamps))
        if self.other_keys:
            keys = list(found.keys)
            for place, key in self.other_keys.items():
                keys[place] = key
            found = replace(found, keys=Column(keys))
        columns = (found.keys.rows(), self.lefts, self.rights) if with_key else (self.lefts, self.rights)
        values, found = collect(
            context, found, lambda start: map(joiner, *(rest(column, start) for column in columns))
        )
        return found.with_values(values)


class StreamStreamJoin(Operator):
    """Joins the rows of port 0, the left stream, with those of port 1."""

    def __init__(
        self,
        stores: tuple[str, str],
        windows: JoinWindows,
        joiner: Joiner,
        *,
        with_key: bool = False,
        outer: tuple[bool, bool] = (False, False),
        unmatched: str | None = None,
    ) -> None:
        """`outer` says of which sides records without a partner are wanted; they wait in `unmatched`."""
        self.store_names = stores
        self.joiner = joiner
        self.with_key = with_key
        self.outer = outer
        self.unmatched_name = unmatched
        # How much earlier and later the partners of each side's records may be, and how long these wait.
        self.ranges = (
            (windows.before_ms, windows.after_ms),
            (windows.after_ms, windows.before_ms),
        )
        self.waits = (windows.after_ms + windows.grace_ms, windows.before_ms + windows.grace_ms)

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        left, right = self.store_names
        self.stores: tuple[WindowStore[Any, Any], ...] = (context.store(left), context.store(right))
        self.unmatched: ListValueStore[Any, Any] | None = None
        if self.unmatched_name is not None:
            self.unmatched = context.store(self.unmatched_name)

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        encoded, batch = encode_rows(self.context, batch.in_rows(), self.stores)
        at_work = _BatchAtWork(self, batch, encoded)
        at_work.join()
        for port, store in enumerate(self.stores):
            store.put_encoded(encoded.of_port(port))
        times = self.context.times
        times.observed = at_work.now
        if at_work.unmatched is not None:
            at_work.unmatched.save()
            times.emitted = at_work.unmatched.noted
        if at_work.dropped:
            self.context.dropped(at_work.dropped)
        pairs, (left, right) = at_work.pairs, at_work.sides
        pairs.lefts, pairs.rights = left.thawed(pairs.lefts), right.thawed(pairs.rights)
        return pairs.joined(self.context, batch, self.joiner, with_key=self.with_key)


class _BatchAtWork:
    """A batch on its way through the join."""

    def __init__(self, operator: StreamStreamJoin, batch: Batch, encoded: EncodedRows) -> None:
        self.pairs = Pairs()
        self.sides = (SideRows(operator.stores[LEFT]), SideRows(operator.stores[RIGHT]))
        self.unmatched: Unmatched | None = None
        times = operator.context.times
        self.now = times.observed
        self.dropped = 0
        self._batch = batch
        self._encoded = encoded
        self._outer = operator.outer
        self._ranges = operator.ranges
        self._key_serdes: list[Serde[Any]] = [store.key_serde for store in operator.stores]
        for side in (LEFT, RIGHT):
            self._load_partners(side)
        if operator.unmatched is not None:
            self.unmatched = Unmatched(operator.unmatched, operator.waits, self._outer, times.emitted)
            self.unmatched.load(self._waiting())

    def join(self) -> None:
        """Go through the rows in order."""
        encoded, batch = self._encoded, self._batch
        values = batch.values.rows()
        kept = [
            self.sides[port].kept(value, data)
            for port, value, data in zip(encoded.ports, values, encoded.values, strict=True)
        ]
        given = (encoded, kept, self.sides, self._ranges)
        found = partners_in_columns(*given) if are_many(len(batch)) else None
        if found is not None and self.unmatched is None:
            self._take(found, values)
            return
        partners = partners_in_rows(*given) if found is None else found.by_row(len(batch))
        rows = zip(encoded.ports, encoded.timestamps, encoded.keys, values, partners, strict=True)
        for row, (side, time, key, value, (times, others)) in enumerate(rows):
            self.now = max(self.now, time)
            if key is None:
                self._without_key(row, side, time, value)
                continue
            unmatched = self.unmatched
            if unmatched is not None and time == self.now and unmatched.is_due(side, self.now):
                self._release(row, unmatched)
            if times:
                self._pair(row, side, time, value, times, others)
                if unmatched is not None and self._outer[1 - side]:
                    unmatched.matched(1 - side, key, times)
            elif unmatched is not None and self._outer[side]:
                self._without_partner(row, unmatched)

    def _pair(self, row: int, side: int, time: int, value: Any, times: list[int], others: list[Any]) -> None:
        """A row has found partners."""
        pairs, many = self.pairs, len(times)
        pairs.rows += [row] * many
        pairs.timestamps += [max(time, each) for each in times]
        if side == LEFT:
            pairs.lefts += [value] * many
            pairs.rights += others
        else:
            pairs.lefts += others
            pairs.rights += [value] * many

    def _take(self, found: Partners, values: Sequence[Any]) -> None:
        """All pairs of an inner join at once."""
        ports, timestamps = self._encoded.ports, self._encoded.timestamps
        self.now = max(self.now, *timestamps)
        self.dropped = sum(key is None for key in self._encoded.keys)
        pairs = self.pairs
        pairs.rows = found.rows
        own = [values[row] for row in found.rows]
        pairs.timestamps = list(map(max, [timestamps[row] for row in found.rows], found.times))
        are_left = [ports[row] == LEFT for row in found.rows]
        both = list(zip(are_left, own, found.values, strict=True))
        pairs.lefts = [mine if is_left else other for is_left, mine, other in both]
        pairs.rights = [other if is_left else mine for is_left, mine, other in both]

    def _without_key(self, row: int, side: int, time: int, value: Any) -> None:
        """A row without a key or value."""
        if self._outer[side] and value is not None and self._batch.keys[row] is None:
            self._alone(row, time, side, value)
        else:
            self.dropped += 1

    def _without_partner(self, row: int, unmatched: Unmatched) -> None:
        """A row of an outer side that has found no partner."""
        encoded = self._encoded
        side, time = encoded.ports[row], encoded.timestamps[row]
        key, data = encoded.keys[row], encoded.values[row]
        assert key is not None
        assert data is not None
        if max(time + self._ranges[side][1], 0) < self.now:
            self._alone(row, time, side, self._batch.values[row])
        else:
            unmatched.add(side, key, time, data)

    def _alone(self, row: int, time: int, side: int, value: Any) -> None:
        """A record goes on without a partner."""
        left, right = (value, None) if side == LEFT else (None, value)
        self.pairs.add(row, time, left, right)

    def _release(self, row: int, unmatched: Unmatched) -> None:
        """The row makes records leave that have found no partner."""
        for side, key, time, data in unmatched.release(self.now):
            self.pairs.other_keys[len(self.pairs.rows)] = self._key_serdes[side].deserialize(key)
            self._alone(row, time, side, Frozen(data))

    def _load_partners(self, side: int) -> None:
        """Read what the rows of a side may be joined with."""
        rows = self._encoded.of_port(side)
        if rows:
            keys, times, _ = zip(*rows, strict=True)
            before, after = self._ranges[side]
            self.sides[1 - side].load(set(keys), min(times) - before, max(max(times) + after, 0))

    def _waiting(self) -> Iterator[bytes]:
        """The records that may have been waiting and are joined now, or that others come to wait beside."""
        for side, rows in enumerate(self.sides):
            if self._outer[side]:
                for key, time, _ in self._encoded.of_port(side):
                    yield unmatched_row(time, side, key)
                for key, time in zip(rows.keys, rows.times, strict=True):
                    yield unmatched_row(time, side, key)


def encode_rows(
    context: OperatorContext, batch: Batch, stores: Sequence[WindowStore[Any, Any]]
) -> tuple[EncodedRows, Batch]:
    """The keys and values of a batch as the store of each row's port keeps them, and the rows.

    Rows that can't be kept are left out, or fail.
    """
    ports = batch.ports if batch.ports is not None else [0] * len(batch)
    keys, values = batch.keys.rows(), batch.values.rows()
    if None in keys or None in values:
        complete = [key is not None and value is not None for key, value in zip(keys, values, strict=True)]
        keys = [key if whole else None for key, whole in zip(keys, complete, strict=True)]
        values = [value if whole else None for value, whole in zip(values, complete, strict=True)]
    try:
        encoded = EncodedRows(
            _encoded(keys, ports, [store.key_serde for store in stores]),
            _encoded(values, ports, [store.value_serde for store in stores]),
            ports,
            batch.timestamps.rows(),
        )
    except ColumnError:
        kept = _rows_to_keep(context, batch, stores, ports)
        return encode_rows(context, batch.take(kept), stores)
    return encoded, batch


def _encoded(
    column: Sequence[Any], ports: Sequence[int], serdes: Sequence[Serde[Any]]
) -> Sequence[bytes | None]:
    """A column in bytes, by the serdes of the ports."""
    if all(serde is serdes[0] for serde in serdes):
        return serialize_column(serdes[0], column)
    encoded: list[bytes | None] = [None] * len(column)
    for port, serde in enumerate(serdes):
        rows = [row for row, its in enumerate(ports) if its == port]
        for row, data in zip(rows, serialize_column(serde, [column[row] for row in rows]), strict=True):
            encoded[row] = data
    return encoded


def _rows_to_keep(
    context: OperatorContext, batch: Batch, stores: Sequence[WindowStore[Any, Any]], ports: Sequence[int]
) -> list[int]:
    """The rows that their stores can keep; the others fail."""
    kept: list[int] = []
    for row, (port, key, value) in enumerate(zip(ports, batch.keys, batch.values, strict=True)):
        store = stores[port]
        part, serde, given = "key", store.key_serde, key
        try:
            if key is not None and value is not None:
                serde.serialize(key)
                part, serde, given = "value", store.value_serde, value
                serde.serialize(value)
        except Exception as cause:  # noqa: BLE001 - a serde of the user's own may raise anything
            error = serde_failure(cause, serde=serde, value=given, part=part, store=store.name)
            context.failed(batch, row, error)
        else:
            kept.append(row)
    return kept
