"""The nouns that flow: records, where they came from, and the windows that keys live in.

All are immutable values: equal when their fields are equal, safe to share, and changed by making a new one
(``record.with_value(...)``). Times are milliseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import Any, Final, Generic, NoReturn, Self, TypeAlias, TypeVar

from millstream.errors import InvalidTimestampError

K = TypeVar("K")
V = TypeVar("V")
K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
C = TypeVar("C", bound=type[Any])

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

MAX_TIME: Final = 2**63 - 1
"""The largest timestamp that there can be."""


def _refuse_set(self: object, name: str, _value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r} of {type(self).__name__}")


def _mend_frozen(cls: C) -> C:
    """Let ``Record[str, int](...)`` work.

    Python 3.11's frozen dataclasses with slots raise TypeError when typing notes the alias on the instance;
    typing expects AttributeError, which FrozenInstanceError is.
    """
    cls.__setattr__ = _refuse_set  # type: ignore[assignment]  # mypy sees an instance's method here
    return cls


@dataclass(frozen=True, slots=True, init=False)
class _Timed(Generic[K_co, V_co]):
    """The fields that both kinds of record share."""

    key: K_co
    value: V_co
    timestamp: int
    headers: Headers = ()

    def __init__(self, key: K_co, value: V_co, timestamp: int, headers: Headers = ()) -> None:
        # Written by hand: with slot setters a record costs half of what dataclass' own __init__ takes.
        if not 0 <= timestamp <= MAX_TIME:
            raise _invalid_timestamp(timestamp)
        _set_key(self, key)
        _set_value(self, value)
        _set_timestamp(self, timestamp)
        _set_headers(self, headers)

    def with_timestamp(self, timestamp: int) -> Self:
        """Return the same record at another time (milliseconds).

        >>> Record("a", 1, 5).with_timestamp(6).timestamp
        6
        """
        return type(self)(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Self:
        """Return the same record with other headers.

        >>> FixedKeyRecord("a", 1, 5).with_headers((("trace", b"7"),)).headers
        (('trace', b'7'),)
        """
        return type(self)(self.key, self.value, self.timestamp, headers)


_set_key, _set_value, _set_timestamp, _set_headers = (
    vars(_Timed)[name].__set__ for name in ("key", "value", "timestamp", "headers")
)


def _invalid_timestamp(timestamp: int) -> InvalidTimestampError:
    if timestamp > MAX_TIME:
        return InvalidTimestampError(
            f"A record's timestamp is {timestamp}, which does not fit: the largest is {MAX_TIME} (2**63 - "
            "1). Likely cause: a unit other than milliseconds since 1970. Remedy: give milliseconds."
        )
    return InvalidTimestampError(
        f"A record's timestamp is {timestamp}, but timestamps are milliseconds since 1970, never negative. "
        "Likely cause: a timestamp extractor that returned -1 for 'unknown', or seconds mixed up with a "
        "difference of times. Remedy: return a valid time, or drop the record before it is made."
    )


@_mend_frozen
class Record(_Timed[K_co, V_co]):
    """A key, a value, a time and headers: what a processor receives and forwards.

    >>> Record("river", 1, 5)
    Record(key='river', value=1, timestamp=5, headers=())
    >>> Record("river", 1, 5) == Record[str, int](key="river", value=1, timestamp=5)
    True
    """

    __slots__ = ()

    def with_key(self, key: K) -> Record[K, V_co]:
        """Return the same record with another key.

        >>> Record("a", 1, 5).with_key("b").key
        'b'
        """
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V) -> Record[K_co, V]:
        """Return the same record with another value.

        >>> Record("a", 1, 5).with_value("one").value
        'one'
        """
        return Record(self.key, value, self.timestamp, self.headers)


@_mend_frozen
class FixedKeyRecord(_Timed[K_co, V_co]):
    """A record whose key cannot be changed, so that no repartition is needed after it.

    >>> FixedKeyRecord("river", 1, 5).with_value(2)
    FixedKeyRecord(key='river', value=2, timestamp=5, headers=())
    """

    __slots__ = ()

    def with_value(self, value: V) -> FixedKeyRecord[K_co, V]:
        """Return the same record with another value.

        >>> FixedKeyRecord("a", 1, 5).with_value("one").value
        'one'
        """
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was read from.

    >>> RecordMetadata("orders", partition=3, offset=41).topic
    'orders'
    """

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A stretch of time in milliseconds.

    ``end`` is exclusive for time windows and inclusive for session windows, as in Kafka Streams.

    >>> Window(0, 60_000)
    Window(start=0, end=60000)
    >>> Window(10, 5)
    Traceback (most recent call last):
    ValueError: a window ends (5) before it starts (10)
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start < 0:
            raise ValueError(f"a window starts at {self.start}, before time 0")
        if self.end < self.start:
            raise ValueError(f"a window ends ({self.end}) before it starts ({self.start})")


@_mend_frozen
@dataclass(frozen=True, slots=True)
class Windowed(Generic[K_co]):
    """A key in a window: the key of a windowed aggregation's result.

    >>> Windowed("river", Window(0, 60_000)).window.end
    60000
    """

    key: K_co
    window: Window


@_mend_frozen
@dataclass(frozen=True, slots=True)
class ValueAndTimestamp(Generic[V_co]):
    """What a timestamped store keeps per key: the value and the time of its last update.

    >>> ValueAndTimestamp(3, timestamp=5).value
    3
    """

    value: V_co
    timestamp: int


@_mend_frozen
@dataclass(frozen=True, slots=True)
class VersionedRecord(Generic[V_co]):
    """A value, since when it is valid, and until when (exclusive; None: it is the latest).

    >>> VersionedRecord("blue", timestamp=5, valid_to=9).valid_to
    9
    """

    value: V_co
    timestamp: int
    valid_to: int | None = None
