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
from millstream.processors.columns.column import Column
from millstream.processors.joins.unmatched import LEFT, RIGHT, Unmatched, unmatched_row
from millstream.processors.joins.windows_of_keys import SideRows
from millstream.processors.operator import Operator, OperatorContext, collect, rest
from millstream.serdes import ColumnError, Serde, serde_failure, serialize_column
from millstream.state.stores.cell_store import Frozen
from millstream.state.stores.list_value import ListValueStore
from millstream.state.stores.window import WindowStore
from millstream.windows import JoinWindows

__all__ = ["EncodedRows", "Joiner", "Pairs", "StreamStreamJoin", "encode_rows"]

Joiner = Callable[..., Any]
"""Of both values, or of the key and both."""


@dataclass(slots=True)
class EncodedRows:
    """The rows of a batch as stores keep them; None for those without a key or value, which are not kept."""

    keys: list[bytes | None]
    values: list[bytes | None]


@dataclass(slots=True)
class Pairs:
    """What goes on, one entry per pair: parallel columns."""

    rows: list[int] = field(default_factory=list)
    """The rows of the batch that caused them."""
    keys: list[Any] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    lefts: list[Any] = field(default_factory=list)
    """Values, or `Frozen` ones until all pairs are found."""
    rights: list[Any] = field(default_factory=list)

    def add(self, row: int, key: Any, timestamp: int, left: Any, right: Any) -> None:
        """One more."""
        self.rows.append(row)
        self.keys.append(key)
        self.timestamps.append(timestamp)
        self.lefts.append(left)
        self.rights.append(right)

    def joined(
        self, context: OperatorContext, batch: Batch, joiner: Joiner, *, with_key: bool
    ) -> Batch | None:
        """The pairs as rows, with what the joiner makes of them; those on which it fails are left out."""
        if not self.rows:
            return None
        found = replace(batch.expand(self.rows, self.keys, self.lefts), timestamps=Column(self.timestamps))
        columns = (self.keys, self.lefts, self.rights) if with_key else (self.lefts, self.rights)
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
        for side in at_work.sides:
            side.save()
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
        assert batch.ports is not None  # it has two parents
        self.pairs = Pairs()
        self.sides = (SideRows(operator.stores[LEFT]), SideRows(operator.stores[RIGHT]))
        self.unmatched: Unmatched | None = None
        times = operator.context.times
        self.now = times.observed
        self.dropped = 0
        self._batch = batch
        self._encoded = encoded
        self._ports = batch.ports
        self._timestamps = batch.timestamps.rows()
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
        unmatched, outer, sides, now = self.unmatched, self._outer, self.sides, self.now
        batch, encoded = self._batch, self._encoded
        rows = zip(
            self._ports,
            batch.keys.rows(),
            batch.values.rows(),
            self._timestamps,
            encoded.keys,
            encoded.values,
            strict=True,
        )
        for row, (side, key, value, time, key_bytes, data) in enumerate(rows):
            if time > now:
                self.now = now = time
            if key_bytes is None or data is None:
                if key is None and value is not None and outer[side]:
                    self._alone(row, key, time, side, value)
                else:
                    self.dropped += 1
                continue
            if unmatched is not None and time == now and unmatched.is_due(side, now):
                self._release(row, unmatched)
            if (
                not self._pair(row, side, key, value, time, key_bytes)
                and outer[side]
                and unmatched is not None
            ):
                if max(time + self._ranges[side][1], 0) < now:
                    self._alone(row, key, time, side, value)
                else:
                    unmatched.add(side, key_bytes, time, data)
            sides[side].put(key_bytes, time, value, data)

    def _pair(self, row: int, side: int, key: Any, value: Any, time: int, key_bytes: bytes) -> bool:
        """Join a row with what is there. False if it has found no partner."""
        other = self.sides[1 - side]
        partners = other.by_key.get(key_bytes)
        if partners is None:
            return False
        before, after = self._ranges[side]
        low, high = partners.between(max(time - before, 0, other.gone_until + 1), max(time + after, 0))
        many = high - low
        if not many:
            return False
        pairs, times = self.pairs, partners.times[low:high]
        pairs.rows += [row] * many
        pairs.keys += [key] * many
        pairs.timestamps += [max(time, each) for each in times]
        own = [value] * many
        if side == LEFT:
            pairs.lefts += own
            pairs.rights += partners.values[low:high]
        else:
            pairs.lefts += partners.values[low:high]
            pairs.rights += own
        if self.unmatched is not None and self._outer[1 - side]:
            self.unmatched.matched(1 - side, key_bytes, times)
        return True

    def _alone(self, row: int, key: Any, time: int, side: int, value: Any) -> None:
        """A record goes on without a partner."""
        left, right = (value, None) if side == LEFT else (None, value)
        self.pairs.add(row, key, time, left, right)

    def _release(self, row: int, unmatched: Unmatched) -> None:
        """The row makes records leave that have found no partner."""
        for side, key, time, data in unmatched.release(self.now):
            self._alone(row, self._key_serdes[side].deserialize(key), time, side, Frozen(data))

    def _load_partners(self, side: int) -> None:
        """Read what the rows of a side may be joined with."""
        rows = [
            (key, time)
            for key, port, time in zip(self._encoded.keys, self._ports, self._timestamps, strict=True)
            if port == side and key is not None
        ]
        if rows:
            times = [time for _, time in rows]
            before, after = self._ranges[side]
            keys = {key for key, _ in rows}
            self.sides[1 - side].load(keys, min(times) - before, max(max(times) + after, 0))

    def _waiting(self) -> Iterator[bytes]:
        """The records that may have been waiting and are joined now, or that others come to wait beside."""
        for key, side, time in zip(self._encoded.keys, self._ports, self._timestamps, strict=True):
            if key is not None and self._outer[side]:
                yield unmatched_row(time, side, key)
        for side, rows in enumerate(self.sides):
            if self._outer[side]:
                for key, of_key in rows.by_key.items():
                    for time in of_key.times:
                        yield unmatched_row(time, side, key)


def encode_rows(
    context: OperatorContext, batch: Batch, stores: Sequence[WindowStore[Any, Any]]
) -> tuple[EncodedRows, Batch]:
    """The keys and values of a batch as the store of each row's port keeps them, and the rows.

    Rows that can't be kept are left out, or fail.
    """
    ports = batch.ports if batch.ports is not None else [0] * len(batch)
    complete = [
        key is not None and value is not None for key, value in zip(batch.keys, batch.values, strict=True)
    ]
    keys: list[bytes | None] = [None] * len(batch)
    values: list[bytes | None] = [None] * len(batch)
    failed: dict[int, Exception] = {}
    for port, store in enumerate(stores):
        rows = [row for row, its in enumerate(ports) if its == port and complete[row]]
        for column, encoded, serde, part in (
            (batch.keys, keys, store.key_serde, "key"),
            (batch.values, values, store.value_serde, "value"),
        ):
            try:
                found = serialize_column(serde, [column[row] for row in rows])
            except ColumnError:
                found = []
                for row in rows:
                    try:
                        found.append(serde.serialize(column[row]))
                    except Exception as cause:  # noqa: BLE001 - a serde of the user's own may raise anything
                        found.append(None)
                        failed[row] = serde_failure(
                            cause, serde=serde, value=column[row], part=part, store=store.name
                        )
            for row, data in zip(rows, found, strict=True):
                encoded[row] = data
    if not failed:
        return EncodedRows(keys, values), batch
    for row in sorted(failed):
        context.failed(batch, row, failed[row])
    kept = [row for row in range(len(batch)) if row not in failed]
    return (
        EncodedRows([keys[row] for row in kept], [values[row] for row in kept]),
        batch.take(kept),
    )
