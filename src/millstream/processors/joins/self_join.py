"""A join of a stream with itself that keeps its records once (Kafka's `single.store.self.join`).

It gives the pairs that the join with two stores gives: of a record with those before it, first as the left
one and then as the right one, and once with itself, in its place by time. Records without a key or value are
left out.
"""

from __future__ import annotations

from typing import Any

from millstream.processors.batch import Batch
from millstream.processors.joins.stream_stream import Joiner, Pairs, encode_rows
from millstream.processors.joins.windows_of_keys import NO_ROWS, KeyRows, SideRows, between
from millstream.processors.operator import Operator, OperatorContext
from millstream.windows import JoinWindows

__all__ = ["SelfJoin"]


class SelfJoin(Operator):
    """Joins the rows of a stream with each other."""

    def __init__(self, store: str, windows: JoinWindows, joiner: Joiner, *, with_key: bool = False) -> None:
        self.store_name = store
        self.windows = windows
        self.joiner = joiner
        self.with_key = with_key

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self._store = context.store(self.store_name)

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        encoded, batch = encode_rows(self.context, batch.in_rows(), (self._store,))
        timestamps = encoded.timestamps
        side, pairs = SideRows(self._store), Pairs()
        keys = {key for key in encoded.keys if key is not None}
        if keys:
            reach = max(self.windows.before_ms, self.windows.after_ms)
            side.load(keys, min(timestamps) - reach, max(timestamps) + reach)
        now, dropped = self.context.times.observed, 0
        rows = zip(timestamps, batch.values.rows(), encoded.keys, encoded.values, strict=True)
        for row, (time, value, key, data) in enumerate(rows):
            if key is None:
                dropped += 1
                continue
            now = max(now, time)
            self._join(pairs, row, time, value, side.by_key.get(key, NO_ROWS), side.gone_until, now)
            side.put(key, time, side.kept(value, data))
        if dropped:
            self.context.dropped(dropped)
        self._store.put_encoded(encoded.of_port(0))
        self.context.times.observed = now
        pairs.lefts, pairs.rights = side.thawed(pairs.lefts), side.thawed(pairs.rights)
        return pairs.joined(self.context, batch, self.joiner, with_key=self.with_key)

    def _join(
        self, pairs: Pairs, row: int, time: int, value: Any, partners: KeyRows, gone: int, now: int
    ) -> None:
        times, values = partners
        before, after = self.windows.before_ms, self.windows.after_ms
        low, high = between(times, max(time - before, gone + 1), max(time + after, 0))
        for place in range(low, high):
            pairs.add(row, max(time, times[place]), value, values[place])
        # A record that is too late to be kept is not joined with itself, either.
        itself = time > now - self.windows.size_ms - self.windows.grace_ms + 1
        low, high = between(times, max(time - after, gone + 1), max(time + before, 0))
        for place in range(low, high):
            if itself and time < times[place]:
                itself = False
                pairs.add(row, time, value, value)
            pairs.add(row, max(time, times[place]), values[place], value)
        if itself:
            pairs.add(row, time, value, value)
