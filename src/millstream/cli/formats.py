"""Keys and values as text: how the command line reads and shows bytes.

====== ======================================= =============================================
string the text itself, in UTF-8               ``river``
int64  a whole number, as Kafka's LongSerde    ``42``
json   one JSON value                          ``{"shop": "north"}``
hex    any bytes, two digits each              ``00ff10``
====== ======================================= =============================================

The keys of a windowed table have a window behind them: see `windowed`.

A format turns a piece of a line into bytes and back, and a JSON value (of a JSON line) into bytes and back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from millstream import serdes
from millstream.record import Headers, Windowed
from millstream.serdes import Serde


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write bytes as text. Each function raises ValueError or TypeError for what it can't take."""

    name: str
    parse: Callable[[bytes], bytes]
    """From the bytes of a line to the bytes of a record."""
    show: Callable[[bytes], bytes]
    """The other way round."""
    from_json: Callable[[object], bytes]
    to_json: Callable[[bytes], object]


def _json_parse(data: bytes) -> bytes:
    serdes.json.deserialize(data)
    return data


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


FORMATS: Final = {
    form.name: form
    for form in (
        Format(
            "string",
            parse=bytes,
            show=bytes,
            from_json=lambda value: _text(value).encode(),
            to_json=lambda data: data.decode(),
        ),
        Format(
            "int64",
            parse=lambda data: serdes.int64.serialize(int(data)),
            show=lambda data: str(serdes.int64.deserialize(data)).encode(),
            from_json=serdes.int64.serialize,  # type: ignore[arg-type]  # it refuses another type
            to_json=serdes.int64.deserialize,
        ),
        Format(
            "json",
            parse=_json_parse,
            show=_json_parse,
            from_json=serdes.json.serialize,
            to_json=serdes.json.deserialize,
        ),
        Format(
            "hex",
            parse=lambda data: bytes.fromhex(data.decode()),
            show=lambda data: data.hex().encode(),
            from_json=lambda value: bytes.fromhex(_text(value)),
            to_json=bytes.hex,
        ),
    )
}


Windows = int | Literal["sessions"]
"""Of which kind the windows of a topic's keys are: time windows of a size in milliseconds, or sessions."""


def windowed(form: Format, windows: Windows) -> Format:
    r"""Keys with their window: start, end and key.

    >>> shown = windowed(FORMATS["string"], 60_000)
    >>> shown.show(b"ann\0\0\0\0\0\0\0\0"), shown.to_json(b"ann\0\0\0\0\0\0\0\0")
    (b'0\t60000\tann', {'start': 0, 'end': 60000, 'key': 'ann'})
    """
    serde: Serde[Windowed[bytes]] = (
        serdes.session_windowed(serdes.bytes)
        if windows == "sessions"
        else serdes.time_windowed(serdes.bytes, windows)
    )

    def show(data: bytes) -> bytes:
        found = serde.deserialize(data)
        return b"%d\t%d\t%s" % (found.window.start, found.window.end, form.show(found.key))

    def to_json(data: bytes) -> dict[str, Any]:
        found = serde.deserialize(data)
        return {"start": found.window.start, "end": found.window.end, "key": form.to_json(found.key)}

    def refuse(value: object) -> bytes:
        raise ValueError(f"{value!r}: keys with a window are written by applications only")

    return Format(f"{form.name} with a window", refuse, show, refuse, to_json)


def headers_to_json(headers: Headers) -> list[list[object]]:
    r"""Return headers as ``[[name, value], ...]``; a value that is not text becomes ``{"hex": ...}``.

    >>> headers_to_json((("trace", b"7"), ("raw", b"\xff"), ("none", None)))
    [['trace', '7'], ['raw', {'hex': 'ff'}], ['none', None]]
    """
    return [[name, None if value is None else _header_value(value)] for name, value in headers]


def _header_value(value: bytes) -> object:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def headers_from_json(headers: object) -> Headers:
    """Return the headers that a JSON line states: an object, or a list of pairs as we show them.

    >>> headers_from_json({"trace": "7"})
    (('trace', b'7'),)
    """
    if isinstance(headers, dict):
        headers = list(headers.items())
    if not isinstance(headers, list):
        raise TypeError(f"headers: expected an object or a list of pairs, got {type(headers).__name__}")
    return tuple(_header(pair) for pair in headers)


def _header(pair: object) -> tuple[str, bytes | None]:
    match pair:
        case [str(name), None]:
            return name, None
        case [str(name), str(text)]:
            return name, text.encode()
        case [str(name), {"hex": str(digits)}]:
            return name, bytes.fromhex(digits)
    raise ValueError(f'headers: {pair!r} is not a name with a text, null or {{"hex": "..."}}')
