"""`Suppressed`: how long a table holds its updates back, and how many of them.

Of the updates of a row that are held back, the last one goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from millstream.clock import not_negative
from millstream.errors import TopologyError
from millstream.kafka_names import KafkaNames, KafkaNamesOfClass

__all__ = ["Suppressed", "WhenFull"]

WhenFull: TypeAlias = Literal["emit-early", "shut-down"]
"""What happens if more updates wait than may: the oldest go on early, or the application ends."""


@dataclass(frozen=True, slots=True)
class Suppressed(KafkaNames, metaclass=KafkaNamesOfClass):
    """What `KTable.suppress` holds back. Made by `until_window_closes` or `until_time_limit`.

    >>> from millstream import Suppressed
    >>> Suppressed.until_time_limit(5_000).max_records is None
    True
    """

    limit_ms: int | None
    """How long an update waits, by stream time; None: until its window closes."""
    max_records: int | None
    max_bytes: int | None
    when_full: WhenFull
    after_idle_ms: int | None = None
    """After so long without a record the wall clock moves stream time on; None: only records do."""

    @classmethod
    def until_window_closes(
        cls,
        max_records: int | None = None,
        max_bytes: int | None = None,
        *,
        after_idle: int | timedelta | None = None,
    ) -> Suppressed:
        """One result per window: the final one, when no record can change it any more.

        None goes on before its time: if more windows wait than the bounds allow, the application ends.
        Without bounds as many wait as there are; they are in a store, not in memory.

        Only records move time on, so the last windows of a topic that has gone quiet stay open. With
        `after_idle` (milliseconds or a `timedelta`) they close by the clock: after so long without a record,
        stream time goes on as the wall clock does. A window that has closed this way stays closed: updates of
        it that come later are dropped, and counted as late.

        >>> from millstream import Suppressed
        >>> Suppressed.until_window_closes(max_records=1_000).when_full
        'shut-down'
        """
        idle_ms = None if after_idle is None else not_negative("after_idle of Suppressed", after_idle)
        records, size = _bound("max_records", max_records), _bound("max_bytes", max_bytes)
        return cls(None, records, size, "shut-down", idle_ms)

    @classmethod
    def until_time_limit(
        cls,
        limit: int | timedelta,
        max_records: int | None = None,
        max_bytes: int | None = None,
        when_full: WhenFull = "emit-early",
    ) -> Suppressed:
        """At most one update per row and limit of stream time (milliseconds or a `timedelta`).

        The limit counts from the first update that is held back; later ones take its place, and its time.
        If more rows wait than the bounds allow, the ones that have waited longest go on early, or, with
        `when_full="shut-down"`, the application ends.

        >>> from datetime import timedelta
        >>> from millstream import Suppressed
        >>> Suppressed.until_time_limit(timedelta(seconds=5), max_records=10).limit_ms
        5000
        """
        limit_ms = not_negative("limit of Suppressed", limit)
        if when_full not in ("emit-early", "shut-down"):
            raise TopologyError(
                f"Suppressed.until_time_limit can't do {when_full!r} when it is full. Remedy: 'emit-early' "
                "to send the oldest updates on, or 'shut-down' to end the application"
            )
        return cls(limit_ms, _bound("max_records", max_records), _bound("max_bytes", max_bytes), when_full)


def _bound(what: str, number: int | None) -> int | None:
    is_whole = number is None or type(number) is int
    if number is not None and (not is_whole or number < 0):
        given = f"{number}" if is_whole else f"{number!r}, which is no whole number"
        raise TopologyError(f"{what} of Suppressed is {given}. Remedy: give 0 or more, or None for no bound")
    return number
