"""Sessions, one record after the other, over those of a batch's keys in memory.

A record belongs to all sessions of its key that are at most a gap away from it, and makes them one. It is
late if the session that it would make has closed. Whatever has passed the store's retention is not seen.
Nothing outside of a `SessionRows` changes: its owner writes what came out, or throws it away.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any, Final

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.batch import Batch
from millstream.state.stores.cell_store import Frozen
from millstream.state.stores.session import SessionRow
from millstream.state.stores.window_key_schema import WindowedRow
from millstream.windows import SessionWindows

__all__ = ["CLOSING_ORDER", "Merger", "Session", "SessionRows", "SessionRules", "Update"]

Merger = Callable[[Any, Any, Any], Any]
"""`(key, one, other)`: two aggregates of a key as one. The first is what the aggregation begins with."""

_BY_END: Final = attrgetter("end", "start")
CLOSING_ORDER: Final = attrgetter("end", "start", "key")
"""In which sessions that close at a time come out."""


class Session:
    """A session of one key."""

    __slots__ = ("end", "is_there", "key", "start", "value", "was_stored")

    def __init__(self, key: bytes, start: int, end: int, value: Any, *, was_stored: bool) -> None:
        self.key = key
        self.start = start
        self.end = end
        self.value = value
        """As a cell keeps it."""
        self.was_stored = was_stored
        """Whether others know of it: a session that came and went within the batch is not heard of."""
        self.is_there = True
        """False once it has become part of another one, or was deleted."""


Update = tuple[int, Session, Any, Any]
"""The row of the batch, the session, its new value and the old one, as a cell keeps it; None if the session
is gone, or was not there."""
_Waiting = tuple[int, int, bytes, int, Session]
"""End, start and key, in which order sessions close; and a number that tells one from its successor."""


@dataclass(frozen=True, slots=True)
class SessionRules:
    """What decides: windows, functions, and what the store does to values."""

    windows: SessionWindows
    aggregation: Aggregation
    merger: Merger
    retention_ms: int
    freeze: Callable[[Any], Any]
    thaw: Callable[[Any], Any]
    gap_ms: int = field(init=False)
    open_ms: int = field(init=False)
    """For how long a session stays open behind its end."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap_ms", self.windows.gap_ms)
        object.__setattr__(self, "open_ms", self.windows.gap_ms + self.windows.grace_ms)


@dataclass(slots=True)
class SessionRows:
    """The sessions of a batch's keys, and what its rows do to them."""

    rules: SessionRules
    observed: int
    """The largest timestamp of a record so far."""
    store_time: int
    """The latest end of a session so far."""
    emitted: int
    """Sessions that had closed by then were emitted."""
    known: Container[tuple[bytes, int, int]] = ()
    """Key, start and end of sessions that are gone, and whose tombstones wait for the end of the epoch."""
    sessions: dict[bytes, list[Session]] = field(default_factory=dict)
    """By key, each in the order of their ends."""
    updates: list[Update] = field(default_factory=list)
    """All of them, in order."""
    closed: list[tuple[int, Session]] = field(default_factory=list)
    """Sessions that have closed, and the row at which."""
    late: list[int] = field(default_factory=list)
    failures: list[tuple[int, Exception]] = field(default_factory=list)
    _open: list[_Waiting] = field(default_factory=list)
    """A heap of what may close in this batch, the first to close on top."""

    def load(self, stored: Mapping[bytes, Iterable[SessionRow]]) -> None:
        """Begin with what the store has."""
        self.sessions = {
            key: [Session(key, start, end, Frozen(data), was_stored=True) for end, start, data in rows]
            for key, rows in stored.items()
        }

    def last_updates(self) -> list[Update]:
        """The last one of each session; those that came and went are left out."""
        last = {
            (session.key, session.end, session.start): (row, session, new, old)
            for row, session, new, old in self.updates
            if (session.is_there if new is not None else session.was_stored)
        }
        if len(last) < len(self.updates):
            return sorted(last.values(), key=lambda update: update[0])
        return list(last.values())

    def fold(self, batch: Batch, keys: Sequence[bytes]) -> None:
        """Take all rows."""
        self._fold(self._take, batch, keys)

    def fold_and_close(self, batch: Batch, keys: Sequence[bytes], ended: Iterable[WindowedRow]) -> None:
        """Take all rows, and find what closes; `ended` are the stored sessions that may, the first first."""
        self._open = [self._stored(*row) for row in ended]
        self._fold(self._take_and_close, batch, keys)

    def _fold(self, take: Callable[..., object], batch: Batch, keys: Sequence[bytes]) -> None:
        row = 0
        rows = zip(range(len(batch)), keys, batch.keys, batch.values, batch.timestamps, strict=True)
        while True:
            try:
                for row, key, record_key, value, timestamp in rows:
                    take(row, key, record_key, value, timestamp)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                self.failures.append((row, error))
            else:
                return

    def _take(self, row: int, key: bytes, record_key: Any, value: Any, timestamp: int) -> Session | None:
        """One record. Answers with the session that it made; None if there is none."""
        rules = self.rules
        self.observed = max(self.observed, timestamp)
        own = self.sessions.get(key)
        if own is None:
            own = self.sessions[key] = []
        found = self._found(own, timestamp) if own else ()
        start = end = timestamp
        for session in found:
            start, end = min(start, session.start), max(end, session.end)
        if end < self.observed - rules.open_ms:
            self.late.append(row)
            return None
        aggregation = rules.aggregation
        if found:
            fold = aggregation.aggregator or aggregation.fold
            new = fold(record_key, value, self._merged(record_key, found))
        else:
            new = aggregation.fold(record_key, value, None)
        made = Session(key, start, end, rules.freeze(new), was_stored=(key, start, end) in self.known)
        # From here on nothing fails, and things change.
        old = self._replace(row, own, found, made) if found else None
        self.store_time = max(self.store_time, end)
        self.updates.append((row, made, new, old))
        made.is_there = new is not None
        if new is None or end <= self.store_time - rules.retention_ms:
            return None
        if not own or own[-1].end < end:
            own.append(made)
        else:
            insort(own, made, key=_BY_END)
        return made

    def _replace(self, row: int, own: list[Session], found: Sequence[Session], made: Session) -> Any:
        """Sessions become part of another one. Answers with what it overwrites without a tombstone."""
        old = None
        for session in found:
            own.remove(session)
            session.is_there = False
            if made.start != made.end:
                self.updates.append((row, session, None, session.value))
            else:  # it is replaced by one as short
                old = session.value
            if session.start == made.start and session.end == made.end:
                made.was_stored = session.was_stored
        return old

    def _found(self, own: list[Session], timestamp: int) -> Sequence[Session]:
        """The sessions that a record belongs to, by their ends."""
        gap = self.rules.gap_ms
        earliest_end = max(timestamp - gap, self.store_time - self.rules.retention_ms + 1)
        latest_start = timestamp + gap
        last = own[-1]
        if last.end < earliest_end:
            return ()
        if (len(own) == 1 or own[-2].end < earliest_end) and last.start <= latest_start:
            return (last,)  # most often, for most records are in order
        found = []
        for session in reversed(own):
            if session.end < earliest_end:
                break
            if session.start <= latest_start:
                found.append(session)
        found.reverse()
        return found

    def _merged(self, key: Any, found: Sequence[Session]) -> Any:
        rules = self.rules
        initializer = rules.aggregation.initializer
        so_far = None if initializer is None else initializer()
        for session in found:
            so_far = rules.merger(key, so_far, rules.thaw(session.value))
        return so_far

    def _stored(self, key: bytes, end: int, start: int, data: bytes) -> _Waiting:
        for session in self.sessions.get(key, ()):
            if session.start == start and session.end == end:
                return end, start, key, 0, session
        return end, start, key, 0, Session(key, start, end, Frozen(data), was_stored=True)

    def _take_and_close(self, row: int, key: bytes, record_key: Any, value: Any, timestamp: int) -> None:
        made = self._take(row, key, record_key, value, timestamp)
        waiting = self._open
        if made is not None:
            heappush(waiting, (made.end, made.start, key, len(self.updates), made))
        close_time = self.observed - self.rules.open_ms
        if close_time <= self.emitted:
            return
        self.emitted = close_time
        while waiting and waiting[0][0] < close_time:
            session = heappop(waiting)[-1]
            if session.is_there:
                self.closed.append((row, session))
