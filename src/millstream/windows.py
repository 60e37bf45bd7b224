"""Windows: how the records of a key are cut by time before they are aggregated.

Durations are milliseconds or `timedelta`. A window takes records for as long as its grace says beyond its
end, measured by the stream time of the operator; later ones are dropped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from millstream.clock import milliseconds, not_negative
from millstream.errors import TopologyError
from millstream.kafka_names import KafkaNames, KafkaNamesOfClass
from millstream.record import MAX_TIME, Window

__all__ = [
    "EmitStrategy",
    "JoinWindows",
    "SessionWindows",
    "SlidingWindows",
    "TimeWindows",
    "UnlimitedWindows",
    "Windows",
]


@dataclass(frozen=True, slots=True, init=False)
class TimeWindows(KafkaNames, metaclass=KafkaNamesOfClass):
    """Windows of one size, aligned to time 0: one after the other, or overlapping if they advance by less.

    >>> from millstream import TimeWindows
    >>> TimeWindows(10).containing(12)
    [Window(start=10, end=20)]
    >>> TimeWindows(10, advance=5).containing(12)
    [Window(start=5, end=15), Window(start=10, end=20)]
    """

    size_ms: int
    advance_ms: int
    grace_ms: int

    def __init__(
        self, size: int | timedelta, advance: int | timedelta | None = None, grace: int | timedelta = 0
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "size_ms", _positive("the size of time windows", size))
        set_field(
            self,
            "advance_ms",
            self.size_ms if advance is None else _positive("the advance of windows", advance),
        )
        set_field(self, "grace_ms", not_negative("the grace of windows", grace))
        if self.advance_ms > self.size_ms:
            raise TopologyError(
                f"windows of {self.size_ms} ms advance by {self.advance_ms} ms: the records between them "
                "would be in no window. Remedy: an advance of at most the size"
            )

    def containing(self, timestamp: int) -> list[Window]:
        """The windows that a record belongs to, the earliest first."""
        return [Window(start, start + self.size_ms) for start in self.starts_of(timestamp)]

    def starts_of(self, timestamp: int) -> range:
        """Where these windows start.

        >>> list(TimeWindows(10, advance=5).starts_of(12))
        [5, 10]
        """
        first = max(0, timestamp - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return range(first, timestamp + 1, self.advance_ms)


@dataclass(frozen=True, slots=True, init=False)
class SlidingWindows(KafkaNames, metaclass=KafkaNamesOfClass):
    """Windows of one size that end or begin at records: one for each set of records so close together.

    Both ends are inclusive.

    >>> from millstream import SlidingWindows
    >>> SlidingWindows(5_000, grace=100).difference_ms
    5000
    """

    difference_ms: int
    grace_ms: int

    def __init__(self, difference: int | timedelta, grace: int | timedelta = 0) -> None:
        object.__setattr__(
            self, "difference_ms", _positive("the time difference of sliding windows", difference)
        )
        object.__setattr__(self, "grace_ms", not_negative("the grace of windows", grace))


@dataclass(frozen=True, slots=True, init=False)
class SessionWindows(KafkaNames, metaclass=KafkaNamesOfClass):
    """Windows of activity: records of a key that are at most a gap apart belong together.

    Both ends are inclusive.

    >>> from datetime import timedelta
    >>> from millstream import SessionWindows
    >>> SessionWindows(timedelta(minutes=5)).gap_ms
    300000
    """

    gap_ms: int
    grace_ms: int

    def __init__(self, gap: int | timedelta, grace: int | timedelta = 0) -> None:
        object.__setattr__(self, "gap_ms", not_negative("the gap of session windows", gap))
        object.__setattr__(self, "grace_ms", not_negative("the grace of windows", grace))


@dataclass(frozen=True, slots=True, init=False)
class UnlimitedWindows(KafkaNames, metaclass=KafkaNamesOfClass):
    """One window that never ends. Records before its start belong to none.

    >>> from millstream import UnlimitedWindows
    >>> UnlimitedWindows(start=10).containing(9)
    []
    >>> UnlimitedWindows().grace_ms
    0
    """

    start_ms: int

    def __init__(self, start: int | timedelta = 0) -> None:
        object.__setattr__(self, "start_ms", not_negative("the start of an unlimited window", start))

    @property
    def grace_ms(self) -> int:
        """None is needed: the window stays open."""
        return 0

    def containing(self, timestamp: int) -> list[Window]:
        """The windows that a record belongs to."""
        return [Window(self.start_ms, MAX_TIME)] if timestamp >= self.start_ms else []


@dataclass(frozen=True, slots=True, init=False)
class JoinWindows(KafkaNames, metaclass=KafkaNamesOfClass):
    """How far apart in time two records of a key may be to be joined. Both bounds are inclusive.

    A record of the right stream may be up to `before` earlier and `after` later than the left one; one of the
    two may be negative, as long as they leave something between them. Without `after` both are the same.
    `grace` is how long records that have found no partner wait longer for a late one.

    >>> from datetime import timedelta
    >>> from millstream import JoinWindows
    >>> JoinWindows(timedelta(minutes=5)).after_ms
    300000
    >>> JoinWindows(before=0, after=10_000, grace=500).size_ms
    10000
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    def __init__(
        self, before: int | timedelta, after: int | timedelta | None = None, grace: int | timedelta = 0
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "before_ms", milliseconds(before, "before of join windows"))
        set_field(
            self,
            "after_ms",
            self.before_ms if after is None else milliseconds(after, "after of join windows"),
        )
        set_field(self, "grace_ms", not_negative("the grace of windows", grace))
        if self.size_ms < 0:
            raise TopologyError(
                f"join windows from {self.before_ms} ms before a record to {self.after_ms} ms after it: no "
                "record could ever be joined. Remedy: before + after of 0 or more milliseconds"
            )

    @property
    def size_ms(self) -> int:
        """How long a window is."""
        return self.before_ms + self.after_ms


Windows: TypeAlias = TimeWindows | SlidingWindows | SessionWindows | UnlimitedWindows
"""What `windowed_by` takes: windows of any kind."""


@dataclass(frozen=True, slots=True)
class EmitStrategy(KafkaNames, metaclass=KafkaNamesOfClass):
    """When a windowed aggregation emits a window. Made by `on_window_update` or `on_window_close`.

    >>> from millstream import EmitStrategy
    >>> EmitStrategy.on_window_close().on_close, EmitStrategy.on_window_update().on_close
    (True, False)
    """

    on_close: bool = False
    """Once, when it closes; else whenever it changes."""
    after_idle_ms: int | None = None
    """After so long without a record the wall clock moves stream time on; None: only records do."""

    def __post_init__(self) -> None:
        if self.after_idle_ms is not None and not self.on_close:
            raise TopologyError(
                f"an EmitStrategy with after_idle_ms={self.after_idle_ms} that does not emit on close: every "
                "update goes on at once, so none waits for the clock. Remedy: "
                "EmitStrategy.on_window_close(after_idle=...)"
            )

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """Whenever it changes (the default)."""
        return cls()

    @classmethod
    def on_window_close(cls, *, after_idle: int | timedelta | None = None) -> EmitStrategy:
        """Once, when no record can change it any more.

        Only records move time on, so the last windows of a topic that has gone quiet stay open. With
        `after_idle` (milliseconds or a `timedelta`) they close by the clock: after so long without a record,
        stream time goes on as the wall clock does.

        >>> from datetime import timedelta
        >>> from millstream import EmitStrategy
        >>> EmitStrategy.on_window_close(after_idle=timedelta(minutes=1)).after_idle_ms
        60000
        """
        return cls(True, None if after_idle is None else not_negative("after_idle", after_idle))


ON_WINDOW_UPDATE: Final = EmitStrategy.on_window_update()
"""The default."""


def _positive(what: str, duration: int | timedelta) -> int:
    found = milliseconds(duration, what)
    if found <= 0:
        raise TopologyError(f"{what} is {found} ms. Remedy: give a positive number of milliseconds")
    return found
