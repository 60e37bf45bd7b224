"""Keys with their window, in the bytes of Kafka's WindowedSerdes.

A time window is the key and its 8-byte start; the reader must know the window's size. A session carries
its end and its start, in this order. The window stands behind the key, so that keys that sort together
stay together.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, TypeVar, overload

from millstream.clock import milliseconds
from millstream.record import MAX_TIME, Window, Windowed
from millstream.serdes.api import BaseSerde, Serde, bind, of, require_bytes, serde_name, wrong_type

K = TypeVar("K")

_START = struct.Struct(">q")
_END_START = struct.Struct(">qq")


class TimeWindowedSerde(BaseSerde[Windowed[K]]):
    """A key and its time window; all windows have one size."""

    window_bytes: ClassVar[int] = 8
    """So many bytes stand behind those of the key."""

    def __init__(self, inner: Serde[K], window_size_ms: int | timedelta) -> None:
        of(inner)
        window_size_ms = milliseconds(window_size_ms, "window_size_ms of serdes.time_windowed")
        if window_size_ms <= 0:
            raise ValueError(f"window_size_ms must be positive, got {window_size_ms}")
        self.inner = inner
        self.window_size_ms = window_size_ms

    def serialize(self, value: Windowed[K], /) -> bytes:
        """Return the key's bytes and the window's start."""
        if not isinstance(value, Windowed):
            raise wrong_type("Windowed", value)
        window = value.window
        if window != self._window_at(window.start):
            raise ValueError(
                f"the window {window.start}..{window.end} does not have the size of {self.window_size_ms} ms "
                "that the serde was made for, and could not be read back"
            )
        return _key_bytes(self.inner, value) + _START.pack(window.start)

    def deserialize(self, data: bytes, /) -> Windowed[K]:
        """Split the bytes into key and window."""
        split = _split(data, _START.size)
        (start,) = _START.unpack_from(data, split)
        return Windowed(self.inner.deserialize(data[:split]), self._window_at(start))

    def bind(self, name: str) -> TimeWindowedSerde[K]:
        return TimeWindowedSerde(bind(self.inner, name), self.window_size_ms)

    def _window_at(self, start: int) -> Window:
        return Window(start, min(start + self.window_size_ms, MAX_TIME))

    def __repr__(self) -> str:
        return f"serdes.time_windowed({serde_name(self.inner)}, window_size_ms={self.window_size_ms})"


class SessionWindowedSerde(BaseSerde[Windowed[K]]):
    """A key and its session."""

    window_bytes: ClassVar[int] = 16
    """So many bytes stand behind those of the key."""

    def __init__(self, inner: Serde[K]) -> None:
        of(inner)
        self.inner = inner

    def serialize(self, value: Windowed[K], /) -> bytes:
        """Return the key's bytes, the session's end and its start."""
        if not isinstance(value, Windowed):
            raise wrong_type("Windowed", value)
        return _key_bytes(self.inner, value) + _END_START.pack(value.window.end, value.window.start)

    def deserialize(self, data: bytes, /) -> Windowed[K]:
        """Split the bytes into key and session."""
        split = _split(data, _END_START.size)
        end, start = _END_START.unpack_from(data, split)
        return Windowed(self.inner.deserialize(data[:split]), Window(start, end))

    def bind(self, name: str) -> SessionWindowedSerde[K]:
        return SessionWindowedSerde(bind(self.inner, name))

    def __repr__(self) -> str:
        return f"serdes.session_windowed({serde_name(self.inner)})"


def time_windowed(inner: Serde[K], window_size_ms: int | timedelta) -> TimeWindowedSerde[K]:
    """Return a serde for the keys of a time-windowed result.

    >>> from millstream import serdes
    >>> serde = serdes.time_windowed(serdes.string, window_size_ms=10)
    >>> serde.serialize(Windowed("k", Window(20, 30))).hex()
    '6b0000000000000014'
    >>> serde.deserialize(bytes.fromhex("6b0000000000000014"))
    Windowed(key='k', window=Window(start=20, end=30))
    """
    return TimeWindowedSerde(inner, window_size_ms)


def session_windowed(inner: Serde[K]) -> SessionWindowedSerde[K]:
    """Return a serde for the keys of a session-windowed result.

    >>> from millstream import serdes
    >>> serde = serdes.session_windowed(serdes.string)
    >>> serde.deserialize(serde.serialize(Windowed("k", Window(20, 25))))
    Windowed(key='k', window=Window(start=20, end=25))
    """
    return SessionWindowedSerde(inner)


def as_record(value: Windowed[Any] | None) -> dict[str, Any] | None:
    """A key and its window as columns have it: one record of three fields.

    >>> as_record(Windowed("k", Window(20, 25)))
    {'key': 'k', 'start': 20, 'end': 25}
    """
    if value is None:
        return None
    return {"key": value.key, "start": value.window.start, "end": value.window.end}


@overload
def of_record(record: Mapping[str, Any]) -> Windowed[Any]: ...
@overload
def of_record(record: None) -> None: ...
def of_record(record: Mapping[str, Any] | None) -> Windowed[Any] | None:
    """Undo `as_record`.

    >>> of_record({"key": "k", "start": 20, "end": 25})
    Windowed(key='k', window=Window(start=20, end=25))
    """
    return None if record is None else Windowed(record["key"], Window(record["start"], record["end"]))


def _key_bytes(inner: Serde[K], value: Windowed[K]) -> bytes:
    if value.key is None:
        raise TypeError("the key inside the window is None")
    return require_bytes(inner, inner.serialize(value.key))


def _split(data: bytes, suffix: int) -> int:
    """Return where the key ends and the window's bytes begin."""
    if len(data) < suffix:
        raise ValueError(f"expected at least the window's {suffix} bytes, got {len(data)}")
    return len(data) - suffix
