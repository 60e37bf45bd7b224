"""Frames: how a small record stands in a file so that damage is noticed.

::

    magic (4) | version (1) | zero (3) | length of payload (4) | CRC-32 (4) | payload

Numbers are little-endian. The checksum covers the header before it and the payload, so a flipped bit anywhere
is found. A length is compared with a bound before anything is allocated. CRC-32 is zlib's: in the standard
library, fast, and finds every burst of up to 32 bits; it guards against accidents, not against
somebody who may write into the folder (see :mod:`millstream.durable.folders` for that).

A payload is usually a :class:`msgspec.Struct` as canonical JSON (sorted keys, no spaces): equal records are
equal bytes. What the records mean is not known here.

``where`` names a frame in messages: a text, or what becomes one.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from millstream.durable.errors import DamagedFileError, FormatVersionError

T = TypeVar("T")

_HEADER: Final = struct.Struct("<4sB3xI")
_CHECKSUM: Final = struct.Struct("<I")
FRAME_HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size


class TruncatedFrameError(DamagedFileError):
    """The bytes end before the frame does: a torn write, or more is still to come."""


def checksum(*parts: bytes | memoryview) -> int:
    """Return the CRC-32 of the parts joined.

    >>> hex(checksum(b"1234", b"56789"))
    '0xcbf43926'
    """
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


@dataclass(frozen=True, slots=True)
class FrameKind:
    """One kind of record on disk: its magic, its format version and the bound of its payload.

    >>> kind = FrameKind(b"TEST", version=1, max_bytes=100)
    >>> kind.unwrap(kind.wrap(b"hello"), "somewhere")
    b'hello'
    """

    magic: bytes
    version: int
    max_bytes: int

    def wrap(self, payload: bytes) -> bytes:
        """Return the payload in a frame."""
        if len(payload) > self.max_bytes:
            raise ValueError(
                f"a {self.magic!r} record has {len(payload)} bytes; the bound is {self.max_bytes}"
            )
        header = _HEADER.pack(self.magic, self.version, len(payload))
        return header + _CHECKSUM.pack(zlib.crc32(payload, zlib.crc32(header))) + payload

    def encode(self, record: msgspec.Struct) -> bytes:
        """Return a record as canonical JSON in a frame."""
        return self.wrap(msgspec.json.encode(record, order="deterministic"))

    def unwrap(self, data: bytes | memoryview, where: object) -> bytes:
        """Return the payload of a frame that is all of ``data``."""
        payload, end = self.unwrap_at(data, 0, where)
        if end != len(data):
            raise DamagedFileError(
                f"{where} has {len(data) - end} bytes after its end. Likely cause: the file was overwritten "
                "or two files were joined. Remedy: restore it from a backup."
            )
        return payload

    def unwrap_at(self, data: bytes | memoryview, start: int, where: object) -> tuple[bytes, int]:
        """Return the payload of the frame that begins at ``start``, and where the frame ends."""
        view = memoryview(data)[start:]
        length = self.payload_length(view, where)
        end = FRAME_HEADER_BYTES + length
        if len(view) < end:
            raise _truncated(where, len(view), end)
        payload = bytes(view[FRAME_HEADER_BYTES:end])
        (expected,) = _CHECKSUM.unpack_from(view, _HEADER.size)
        if zlib.crc32(payload, zlib.crc32(view[: _HEADER.size])) != expected:
            raise _damaged(where, "its checksum does not match")
        version = view[4]
        if version != self.version:
            raise FormatVersionError(
                f"{where} has format version {version}, but this Millstream reads version {self.version}. "
                "Likely cause: another release wrote it. Remedy: use that release, or migrate the data."
            )
        return payload, start + end

    def payload_length(self, data: bytes | memoryview, where: object) -> int:
        """Return the payload's length that the header at the start of ``data`` states, within the bound."""
        if len(data) < FRAME_HEADER_BYTES:
            raise _truncated(where, len(data), FRAME_HEADER_BYTES)
        magic, _version, length = _HEADER.unpack_from(data)
        if magic != self.magic:
            raise _damaged(where, f"it begins with {magic!r}, not with {self.magic!r}")
        if length > self.max_bytes:
            raise _damaged(where, f"it claims a payload of {length} bytes; the bound is {self.max_bytes}")
        return int(length)

    def decode(self, data: bytes | memoryview, record_type: type[T], where: object) -> T:
        """Return the record whose frame is all of ``data``."""
        return self.parse(self.unwrap(data, where), record_type, where)

    def parse(self, payload: bytes, record_type: type[T], where: object) -> T:
        """Return the record that an intact payload holds."""
        try:
            return msgspec.json.decode(payload, type=record_type)
        except msgspec.DecodeError as error:
            raise _damaged(where, f"its content is not as expected ({error})") from error


def _truncated(where: object, length: int, expected: int) -> TruncatedFrameError:
    return TruncatedFrameError(
        f"{where} ends after {length} bytes; at least {expected} are expected. Likely cause: the file was "
        "cut, or a write was torn. Remedy: restore the file from a backup."
    )


def _damaged(where: object, how: str) -> DamagedFileError:
    return DamagedFileError(
        f"{where} is damaged: {how}. Likely cause: a fault of the disk, or another program wrote into the "
        "file. Remedy: restore the file from a backup; don't edit it."
    )
