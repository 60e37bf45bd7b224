"""A table's update on its way through a repartition: new and old value in one.

Kafka's layout, so that its tools can read it: the values, then a byte that says which are there. With
both, the length of the new one comes first, as an unsigned varint.
"""

from __future__ import annotations

from millstream.errors import DeserializationError

_OLD, _NEW, _BOTH = 0, 1, 2


def encode_change(new: bytes | None, old: bytes | None) -> bytes:
    r"""New and old value as bytes.

    >>> encode_change(b"n", b"old")
    b'\x01nold\x02'
    """
    if new is not None and old is not None:
        return _varint(len(new)) + new + old + bytes([_BOTH])
    if new is not None:
        return new + bytes([_NEW])
    return (old or b"") + bytes([_OLD])


def decode_change(data: bytes) -> tuple[bytes | None, bytes | None]:
    r"""New and old value.

    >>> decode_change(b"\x01nold\x02")
    (b'n', b'old')
    """
    flag = data[-1] if data else -1
    if flag == _NEW:
        return data[:-1], None
    if flag == _OLD:
        return None, data[:-1]
    if flag != _BOTH:
        message = f"a table's update ends in the byte {flag}, which is no known kind of update"
        raise DeserializationError(message)
    length, start = _read_varint(data)
    return data[start : start + length], data[start + length : -1]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits to a byte
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(data: bytes) -> tuple[int, int]:
    number = 0
    for position, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << (7 * position)
        if not byte & 0x80:
            return number, position + 1
    message = "a table's update begins with a length that does not end"
    raise DeserializationError(message)
