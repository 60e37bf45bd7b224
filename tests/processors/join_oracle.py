"""The join of two streams as Kafka Streams 4.1.0 does it: one record at a time, node by node.

It knows nothing of the product's code: window stores are lists, the store of unmatched records is a
dictionary that is gone through from the start each time, and the time tracker is Kafka's, except that one
that is unset never overflows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LEFT, RIGHT = 0, 1
_MAX = 2**63 - 1

Sent = tuple[str | None, str, int]
"""Key, value and timestamp of a result."""


@dataclass
class _WindowStore:
    retention: int
    rows: list[tuple[bytes, int, str]] = field(default_factory=list)
    observed: int = -1

    def put(self, key: str, value: str, time: int) -> None:
        self.observed = max(self.observed, time)
        self.rows.append((key.encode(), time, value))

    def fetch(self, key: str, time_from: int, time_to: int) -> list[tuple[int, str]]:
        first = max(time_from, self.observed - self.retention + 1)
        found = [(time, value) for own, time, value in self.rows if own == key.encode()]
        return sorted((row for row in found if first <= row[0] <= time_to), key=lambda row: row[0])


@dataclass
class JoinOracle:
    before: int
    after: int
    grace: int
    outer: tuple[bool, bool] = (False, False)
    stream_time: int = -1
    min_time: int = _MAX
    dropped: int = 0
    unmatched: dict[tuple[int, int, bytes], list[str]] = field(default_factory=dict)
    """By time, side (the right one first) and key."""
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        retention = self.before + self.after + self.grace
        self.stores = (_WindowStore(retention), _WindowStore(retention))

    def take(self, side: int, key: str | None, value: str | None, time: int) -> None:
        self._join(side, key, value, time)
        if key is not None and value is not None:
            self.stores[side].put(key, value, time)

    def _join(self, side: int, key: str | None, value: str | None, time: int) -> None:
        before, after = (self.before, self.after) if side == LEFT else (self.after, self.before)
        self.stream_time = max(self.stream_time, time)
        if self.outer[side] and key is None and value is not None:
            self._send(key, side, value, None, time)
            return
        if key is None or value is None:
            self.dropped += 1
            return
        if any(self.outer) and time == self.stream_time:
            self._emit_unmatched(after)
        last = max(0, time + after)
        found = self.stores[1 - side].fetch(key, max(0, time - before), last)
        for other_time, other in found:
            self.unmatched.pop((other_time, side, key.encode()), None)  # the other side's: 0 is the right one
            self._send(key, side, value, other, max(time, other_time))
        if found or not self.outer[side]:
            return
        if last < self.stream_time:
            self._send(key, side, value, None, time)
        else:
            self.min_time = min(self.min_time, time)
            self.unmatched.setdefault((time, 1 - side, key.encode()), []).append(value)

    def _emit_unmatched(self, after: int) -> None:
        if self.min_time + after + self.grace >= self.stream_time:
            return
        self.min_time = _MAX
        is_open = [False, False]
        for (time, place, key), values in sorted(self.unmatched.items()):
            for value in values:
                self.min_time = time
                if all(is_open):
                    return
                side = 1 - place
                wait = self.after if side == LEFT else self.before
                if time + wait + self.grace >= self.stream_time:
                    is_open[side] = True
                else:
                    self._send(key.decode(), side, value, None, time)
                    self.unmatched.pop((time, place, key), None)

    def _send(self, key: str | None, side: int, own: str, other: str | None, time: int) -> None:
        left, right = (own, other) if side == LEFT else (other, own)
        self.sent.append((key, f"{left}+{right}", time))


@dataclass
class SelfJoinOracle:
    """`single.store.self.join`."""

    before: int
    after: int
    grace: int
    stream_time: int = -1
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.retention = self.before + self.after + self.grace
        self.store = _WindowStore(self.retention)

    def take(self, key: str | None, value: str | None, time: int) -> None:
        if key is None or value is None:
            return
        self.stream_time = max(self.stream_time, time)
        itself = time > self.stream_time - self.retention + 1
        for other_time, other in self.store.fetch(key, max(0, time - self.before), max(0, time + self.after)):
            self.sent.append((key, f"{value}+{other}", max(time, other_time)))
        for other_time, other in self.store.fetch(key, max(0, time - self.after), max(0, time + self.before)):
            if itself and time < other_time:
                itself = False
                self.sent.append((key, f"{value}+{value}", time))
            self.sent.append((key, f"{other}+{value}", max(time, other_time)))
        if itself:
            self.sent.append((key, f"{value}+{value}", time))
        self.store.put(key, value, time)
