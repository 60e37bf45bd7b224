"""Session windows as Kafka Streams defines them, one record at a time, with nothing but a list of sessions.

It knows nothing of the product's code: sessions that end at or before the latest end less the retention are
not seen, whatever is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Row = tuple[str, int, int]
"""Key, start and end of a session."""
Sent = tuple[Row, Any, Any, int]
"""A session, its new value, its old value and the timestamp."""


@dataclass
class SessionOracle:
    gap: int
    grace: int
    retention: int
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any]
    caching: bool = False
    on_close: bool = False
    observed: int = -1
    store_time: int = -1
    emitted: int = -1
    late: int = 0
    sessions: dict[Row, Any] = field(default_factory=dict)
    committed: dict[Row, Any] = field(default_factory=dict)
    dirty: dict[Row, Any] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)

    def take(self, key: str | None, value: Any, time: int) -> None:
        if key is None:
            return
        self.observed = max(self.observed, time)
        close = self.observed - self.grace - self.gap
        due = self._due(close)
        found = sorted(
            (row for row in self.visible() if row[0] == key and self._is_near(row, time)),
            key=lambda row: (row[2], row[1]),
        )
        start = min([time, *(row[1] for row in found)])
        end = max([time, *(row[2] for row in found)])
        if end < close:
            self.late += 1
        else:
            so_far = self.initializer()
            for row in found:
                so_far = self.merger(key, so_far, self.sessions[row])
            if (start, end) != (time, time):
                for row in found:
                    due.pop(row, None)
                    self._send(row, None, self.sessions.pop(row))
            new = self.aggregator(key, value, so_far)
            merged = (key, start, end)
            old = self.visible().get(merged)
            self.store_time = max(self.store_time, end)
            self.sessions.pop(merged, None)
            due.pop(merged, None)
            if new is not None and end > self.store_time - self.retention:
                self.sessions[merged] = new
            self._send(merged, new, old)
        if self.on_close and close > self.emitted:
            self.emitted = close
            by_time = sorted(due, key=lambda row: (row[2], row[1], row[0].encode()))
            self.sent += [(row, due[row], None, row[2]) for row in by_time]

    def commit(self) -> None:
        """The end of an epoch: what was held back goes on, and is committed."""
        for row, new in self.dirty.items():
            if new is not None or row in self.committed:
                self.sent.append((row, new, self.committed.get(row), row[2]))
        self.dirty = {}
        self.committed = self.visible()

    def visible(self) -> dict[Row, Any]:
        """The sessions that a reader sees."""
        return {
            row: value for row, value in self.sessions.items() if row[2] > self.store_time - self.retention
        }

    def _is_near(self, row: Row, time: int) -> bool:
        return row[2] >= time - self.gap and row[1] <= time + self.gap

    def _due(self, close: int) -> dict[Row, Any]:
        """What closes now, before anything of it expires."""
        return {row: value for row, value in self.visible().items() if max(self.emitted, 0) <= row[2] < close}

    def _send(self, row: Row, new: Any, old: Any) -> None:
        if self.on_close:
            return
        if self.caching:
            self.dirty.pop(row, None)
            self.dirty[row] = new
        else:
            self.sent.append((row, new, old, row[2]))
