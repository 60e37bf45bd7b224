"""How a store is asked for: by name, serdes and a few switches. Nothing here opens anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any

from millstream.clock import milliseconds
from millstream.errors import TopologyError

Backend = Any
"""A backend's name, or a supplier object of the user's own."""


class StoreKind(Enum):
    """What shape a store's values have."""

    KEY_VALUE = "key-value"
    TIMESTAMPED_KEY_VALUE = "timestamped key-value"
    VERSIONED_KEY_VALUE = "versioned key-value"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped window"
    SESSION = "session"
    LIST_VALUE = "list-valued"
    TIME_ORDERED_BUFFER = "time-ordered buffer"


_SEGMENTED = frozenset(
    {
        StoreKind.VERSIONED_KEY_VALUE,
        StoreKind.WINDOW,
        StoreKind.TIMESTAMPED_WINDOW,
        StoreKind.SESSION,
    }
)
_SHORTEST_SEGMENT_MS = 60_000
_MOST_SEGMENTS = 500
_VERSIONED_SEGMENTS_MS = ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000))
"""Up to a retention: cut it into so many segments, none shorter than that. As Kafka Streams does."""


@dataclass(frozen=True, slots=True)
class Store:
    """How an operator of the DSL keeps its table (Kafka Streams' `Materialized`).

    name
        The identity of the state on disk and in the changelog. Without one the store gets a numbered
        name, which shifts when an operator is inserted in front of it: name what you want to keep.
    key, value
        Serdes; by default those of the operator.
    caching
        True: one update per key and epoch goes on. False: every update does, in order.
    logging
        False: no changelog, the store starts empty after its disk is lost.
    backend
        "memory", "rocksdb", "lmdb" or a supplier of your own; by default the application's.
    retention
        For windowed stores, how long a window stays readable: milliseconds or `timedelta`, from the window's
        start, or from a session's end. By default as long as records can change it.
    retention_ms
        The same in milliseconds; give one of the two.
    versioned
        For tables without windows: keep the history of each key for so long (milliseconds or `timedelta`).
        Then updates may come out of order: the latest by timestamp is the row's value. Such a store has no
        cache.

    >>> from millstream import Store
    >>> Store("counts", caching=False).name
    'counts'
    """

    name: str | None = None
    key: Any = None
    value: Any = None
    caching: bool = True
    logging: bool = True
    backend: Backend = None
    retention_ms: int | None = None
    retention: int | timedelta | None = field(default=None, repr=False, compare=False)
    versioned: int | timedelta | None = None

    def __post_init__(self) -> None:
        history_ms = _optional(self.versioned, f"versioned of the store {self.name!r}")
        if history_ms is not None and history_ms < 0:
            raise TopologyError(
                f"the store {self.name!r} keeps a history of {history_ms} ms. Remedy: "
                "Store(versioned=...) of 0 or more milliseconds, or none for a store without history"
            )
        _optional(self.retention_ms, f"retention_ms of the store {self.name!r}")
        given = _optional(self.retention, f"retention of the store {self.name!r}")
        if given is None:
            return
        if self.retention_ms not in {None, given}:
            raise TopologyError(
                f"the store {self.name!r} has a retention of {given} ms and a retention_ms of "
                f"{self.retention_ms}. Remedy: give one of the two"
            )
        object.__setattr__(self, "retention_ms", given)


@dataclass(frozen=True, slots=True)
class StoreBuilder:
    """A store as the topology knows it; made by `millstream.stores` or by the DSL."""

    name: str
    kind: StoreKind
    key: Any = None
    value: Any = None
    caching: bool = False
    logging: bool = True
    backend: Backend = None
    retention_ms: int | None = None
    """How long rows are kept: windows, sessions, the history of versions."""
    window_size_ms: int | None = None
    windows: str | None = None
    """Which windows the rows are of, and by which rules, where another answer would not fit them: as text, to
    be compared with that of the next program. None where nobody knows: in the Processor API."""
    segment_interval_ms: int | None = None
    """How long the segments are by which rows expire; by default it follows from the retention."""
    retain_duplicates: bool = False
    time_ordered: bool = False
    source_topic: str | None = None
    """The topic whose records are all that is ever written to the store: they do for a changelog."""
    copy_of: str | None = None
    """The store that this one is a copy of, for a later step of the epoch: see `topology.steps`."""

    def __post_init__(self) -> None:
        if not self.name:
            raise TopologyError(
                "a state store needs a name: it is the identity of the state on disk and in the changelog"
            )
        if self.is_segmented:
            self._check_times()

    @property
    def is_segmented(self) -> bool:
        """Whether rows belong to a time, and expire.

        >>> session("visits", retention_ms=60_000).is_segmented, key_value("seen").is_segmented
        (True, False)
        """
        return self.kind in _SEGMENTED

    @property
    def serdes_of(self) -> str:
        """Under which name automatic serdes have learned the store's types.

        >>> key_value("seen").serdes_of
        'seen'
        """
        return self.name if self.copy_of is None else self.copy_of

    @property
    def has_changelog(self) -> bool:
        """Whether there is a topic for the store's changes alone.

        >>> key_value("seen").has_changelog, key_value("seen", logging=False).has_changelog
        (True, False)
        """
        return self.logging and self.source_topic is None

    @property
    def layout(self) -> str:
        """What decides about the bytes on disk: a store can't become one of another layout.

        >>> window("joined", window_size_ms=10, retention_ms=10, retain_duplicates=True).layout
        'window with duplicates'
        """
        duplicates = " with duplicates" if self.retain_duplicates else ""
        order = " ordered by time" if self.time_ordered else ""
        return f"{self.kind.value}{duplicates}{order}"

    @property
    def segment_ms(self) -> int:
        """How long the segments of a new store are.

        >>> versioned_key_value("prices", history_retention_ms=60_000).segment_ms
        20000
        """
        if self.segment_interval_ms is not None:
            return self.segment_interval_ms
        retention = self.retention_ms or 0
        if self.kind is not StoreKind.VERSIONED_KEY_VALUE:
            return max(retention // 2, _SHORTEST_SEGMENT_MS)
        for longest, parts, shortest in _VERSIONED_SEGMENTS_MS:
            if retention <= longest:
                return max(retention // parts, shortest)
        return max(retention // 24, 300_000)

    def _check_times(self) -> None:
        what = f"the {self.kind.value} store {self.name!r}"
        if self.retention_ms is None or self.retention_ms < 0:
            raise TopologyError(
                f"{what} has a retention of {self.retention_ms} ms. Remedy: say how long rows are to be "
                "kept, in milliseconds"
            )
        if self.window_size_ms is not None and self.window_size_ms < 0:
            raise TopologyError(f"{what} has windows of {self.window_size_ms} ms. Remedy: give them a size")
        if self.window_size_ms is not None and self.retention_ms < self.window_size_ms:
            raise TopologyError(
                f"{what} keeps rows for {self.retention_ms} ms, but its windows are {self.window_size_ms} ms "
                "long: they would expire before they are complete. Remedy: a retention of at least the "
                "window size, and of the grace period on top, if there is one"
            )
        if self.segment_ms < 1 or self.retention_ms // self.segment_ms > _MOST_SEGMENTS:
            raise TopologyError(
                f"{what} keeps rows for {self.retention_ms} ms in segments of {self.segment_ms} ms. Remedy: "
                f"a segment interval that cuts the retention into {_MOST_SEGMENTS} parts at most, or none "
                "at all: the default is a good one"
            )


def key_value(
    name: str,
    *,
    key: Any = None,
    value: Any = None,
    caching: bool = False,
    logging: bool = True,
    backend: Backend = None,
) -> StoreBuilder:
    """A key-value store for the Processor API.

    >>> from millstream import serdes, stores
    >>> stores.key_value("last-seen", key=serdes.string, value=serdes.int64).name
    'last-seen'
    """
    return StoreBuilder(name, StoreKind.KEY_VALUE, key, value, caching, logging, backend)


def timestamped_key_value(
    name: str,
    *,
    key: Any = None,
    value: Any = None,
    caching: bool = False,
    logging: bool = True,
    backend: Backend = None,
) -> StoreBuilder:
    """A key-value store whose values are `ValueAndTimestamp`, for the Processor API.

    >>> from millstream import serdes, stores
    >>> stores.timestamped_key_value("prices", value=serdes.double).kind.value
    'timestamped key-value'
    """
    return StoreBuilder(name, StoreKind.TIMESTAMPED_KEY_VALUE, key, value, caching, logging, backend)


def versioned_key_value(
    name: str,
    *,
    history_retention_ms: int | timedelta,
    key: Any = None,
    value: Any = None,
    logging: bool = True,
    backend: Backend = None,
    segment_interval_ms: int | timedelta | None = None,
) -> StoreBuilder:
    """A key-value store that knows what a key's value was at a time, for the Processor API.

    History goes back for `history_retention_ms`, and so far back may writes come late.

    >>> from millstream import serdes, stores
    >>> stores.versioned_key_value("prices", history_retention_ms=60_000, value=serdes.double).retention_ms
    60000
    """
    return StoreBuilder(
        name,
        StoreKind.VERSIONED_KEY_VALUE,
        key,
        value,
        logging=logging,
        backend=backend,
        retention_ms=milliseconds(history_retention_ms, f"history_retention_ms of the store {name!r}"),
        segment_interval_ms=_optional(segment_interval_ms, f"segment_interval_ms of the store {name!r}"),
    )


def window(
    name: str,
    *,
    window_size_ms: int | timedelta,
    retention_ms: int | timedelta,
    key: Any = None,
    value: Any = None,
    retain_duplicates: bool = False,
    time_ordered: bool = False,
    logging: bool = True,
    backend: Backend = None,
    segment_interval_ms: int | timedelta | None = None,
) -> StoreBuilder:
    """A store of values by key and window, for the Processor API.

    retain_duplicates
        True: a window keeps every value that is put, not only the last.
    time_ordered
        True: windows of all keys are found by time quickly, at the price of a second row per window.

    >>> from millstream import stores
    >>> stores.window("clicks", window_size_ms=10_000, retention_ms=60_000).layout
    'window'
    >>> stores.window("clicks", window_size_ms=10_000, retention_ms=5_000)
    Traceback (most recent call last):
    millstream.errors.TopologyError: the window store 'clicks' keeps rows for 5000 ms, but its windows ...
    """
    return StoreBuilder(
        name,
        StoreKind.WINDOW,
        key,
        value,
        logging=logging,
        backend=backend,
        retention_ms=milliseconds(retention_ms, f"retention_ms of the store {name!r}"),
        window_size_ms=milliseconds(window_size_ms, f"window_size_ms of the store {name!r}"),
        segment_interval_ms=_optional(segment_interval_ms, f"segment_interval_ms of the store {name!r}"),
        retain_duplicates=retain_duplicates,
        time_ordered=time_ordered,
    )


def timestamped_window(
    name: str,
    *,
    window_size_ms: int | timedelta,
    retention_ms: int | timedelta,
    key: Any = None,
    value: Any = None,
    time_ordered: bool = False,
    logging: bool = True,
    backend: Backend = None,
    segment_interval_ms: int | timedelta | None = None,
) -> StoreBuilder:
    """A window store whose values are `ValueAndTimestamp`, for the Processor API.

    >>> from millstream import stores
    >>> stores.timestamped_window("clicks", window_size_ms=10, retention_ms=60, time_ordered=True).layout
    'timestamped window ordered by time'
    """
    return StoreBuilder(
        name,
        StoreKind.TIMESTAMPED_WINDOW,
        key,
        value,
        logging=logging,
        backend=backend,
        retention_ms=milliseconds(retention_ms, f"retention_ms of the store {name!r}"),
        window_size_ms=milliseconds(window_size_ms, f"window_size_ms of the store {name!r}"),
        segment_interval_ms=_optional(segment_interval_ms, f"segment_interval_ms of the store {name!r}"),
        time_ordered=time_ordered,
    )


def session(
    name: str,
    *,
    retention_ms: int | timedelta,
    key: Any = None,
    value: Any = None,
    time_ordered: bool = False,
    logging: bool = True,
    backend: Backend = None,
    segment_interval_ms: int | timedelta | None = None,
) -> StoreBuilder:
    """A store of values by key and session, for the Processor API.

    >>> from millstream import stores
    >>> stores.session("visits", retention_ms=600_000).segment_ms
    300000
    """
    return StoreBuilder(
        name,
        StoreKind.SESSION,
        key,
        value,
        logging=logging,
        backend=backend,
        retention_ms=milliseconds(retention_ms, f"retention_ms of the store {name!r}"),
        segment_interval_ms=_optional(segment_interval_ms, f"segment_interval_ms of the store {name!r}"),
        time_ordered=time_ordered,
    )


def list_value(
    name: str, *, key: Any = None, value: Any = None, logging: bool = True, backend: Backend = None
) -> StoreBuilder:
    """A store of lists of values by key, for the Processor API.

    >>> from millstream import serdes, stores
    >>> stores.list_value("waiting", value=serdes.json).kind.value
    'list-valued'
    """
    return StoreBuilder(name, StoreKind.LIST_VALUE, key, value, logging=logging, backend=backend)


def time_ordered_buffer(
    name: str,
    *,
    key: Any = None,
    value: Any = None,
    retain_duplicates: bool = False,
    logging: bool = True,
    backend: Backend = None,
) -> StoreBuilder:
    """A buffer of records that wait for a time, for the Processor API.

    retain_duplicates
        True: all records of a key wait; False: the last one does, in the place of the first.

    >>> from millstream import stores
    >>> stores.time_ordered_buffer("waiting").kind.value
    'time-ordered buffer'
    """
    return StoreBuilder(
        name,
        StoreKind.TIME_ORDERED_BUFFER,
        key,
        value,
        logging=logging,
        backend=backend,
        retain_duplicates=retain_duplicates,
    )


def _optional(duration: int | timedelta | None, what: str) -> int | None:
    return None if duration is None else milliseconds(duration, what)
