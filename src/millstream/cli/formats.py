"""Keys and values as text: how the command line reads and shows bytes.

======================== ======================================= ================================
string                   the text itself, in UTF-8               ``river``
int16, int32, int64      a whole number, as Kafka's serdes       ``42``
float32, double          a number, as Kafka's serdes             ``2.5``
boolean                  as Kafka's BooleanSerde                 ``true``
uuid                     as Kafka's UUIDSerde                    ``0f8e...``
json                     one JSON value                          ``{"shop": "north"}``
avro:FILE                by the schema in a file, shown as JSON  ``{"shop":"north"}``
avro:FILE@7              the same with Confluent's schema id 7
hex                      any bytes, two digits each              ``00ff10``
======================== ======================================= ================================

The keys of a windowed table have a window behind them: see `windowed`.

A format turns a piece of a line into bytes and back, and a JSON value (of a JSON line) into bytes and back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID

import click
import msgspec

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


def _of_serde(name: str, serde: Serde[Any], read: Callable[[str], Any]) -> Format:
    """A format for the values of a serde, each written as Python reads it."""

    def from_json(value: object) -> bytes:
        if isinstance(value, int) and not isinstance(value, bool) and read is float:
            value = float(value)  # JSON has one kind of number
        return serde.serialize(read(value) if isinstance(value, str) and read is UUID else value)

    def to_json(data: bytes) -> object:
        value = serde.deserialize(data)
        return str(value) if isinstance(value, UUID) else value

    return Format(
        name,
        parse=lambda data: serde.serialize(read(data.decode())),
        show=lambda data: _shown(serde.deserialize(data)),
        from_json=from_json,
        to_json=to_json,
    )


def _shown(value: object) -> bytes:
    return str(value).lower().encode() if isinstance(value, bool) else str(value).encode()


def _boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


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
        _of_serde("int16", serdes.int16, int),
        _of_serde("int32", serdes.int32, int),
        _of_serde("int64", serdes.int64, int),
        _of_serde("float32", serdes.float32, float),
        _of_serde("double", serdes.double, float),
        _of_serde("boolean", serdes.boolean, _boolean),
        _of_serde("uuid", serdes.uuid, UUID),
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


def json_format(name: str, serde: Serde[Any]) -> Format:
    """A format for any serde: its values are written as JSON.

    >>> json_format("pairs", serdes.json).show(b'{"a": 1}')
    b'{"a":1}'
    """
    encode = msgspec.json.Encoder(enc_hook=str).encode
    return Format(
        name,
        parse=lambda data: serde.serialize(msgspec.json.decode(data)),
        show=lambda data: encode(serde.deserialize(data)),
        from_json=serde.serialize,
        to_json=lambda data: msgspec.json.decode(encode(serde.deserialize(data))),
    )


def avro_format(place: str) -> Format:
    """The format of values of an Avro schema: ``FILE``, or ``FILE@ID`` with Confluent's schema id."""
    file, _, number = place.rpartition("@")
    if not file or not number.isdigit():
        file, number = place, ""
    try:
        schema = msgspec.json.decode(Path(file).read_bytes())
        serde = serdes.avro(schema, schema_id=int(number) if number else None)
    except (OSError, ImportError) as error:
        raise click.BadParameter(f"avro:{place} can't be used: {error}") from error
    except Exception as error:  # fastavro has errors of its own for a schema that is none
        raise click.BadParameter(f"{file} is no Avro schema: {error}") from error
    return json_format(f"Avro by {file}", serde)


def format_names() -> str:
    """All formats, for a message."""
    return f"{', '.join(FORMATS)}, avro:FILE"


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


_WINDOW_BYTES: Final = {"time": 8, "sessions": 16}


def has_key(key: bytes, windows: Windows | None) -> Callable[[bytes | None], bool]:
    r"""Tell of keys whether they are this one, with whatever window behind it.

    >>> wants = has_key(b"ann", 60_000)
    >>> wants(b"ann\0\0\0\0\0\0\0\0"), wants(b"ann"), wants(None)
    (True, False, False)
    """
    if windows is None:
        return key.__eq__
    size = len(key) + _WINDOW_BYTES["sessions" if windows == "sessions" else "time"]
    return lambda found: found is not None and len(found) == size and found.startswith(key)


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
