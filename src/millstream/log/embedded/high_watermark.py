"""The watermark: up to where a partition is acknowledged.

A file of 48 bytes, ``end``, overwritten in place after each durable append. Everything below it must be
intact; nothing above it was seen by a reader. It is written without a sync, so after a power cut it may be
too low, never too high: whoever opens the partition first moves it up again over what is durable
(:mod:`millstream.log.embedded.recovery`). Why: docs/design/0002-embedded-log.md.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from millstream.durable import FileLayer, access_denied, create_exclusive, opened, write_all

NAME: Final = "end"
_BODY: Final = struct.Struct("<4sB3xqqqq")
_CHECKSUM: Final = struct.Struct("<I4x")
_FILE: Final = struct.Struct("<4sB3xqqqqI4x")
"""Both."""
_MAGIC: Final = b"MSWM"
_VERSION: Final = 1
_READ_ATTEMPTS: Final = 100


class Watermark(NamedTuple):
    """The active segment, how much of it is acknowledged, and the partition's first and next offset."""

    segment_base: int
    length: int
    next_offset: int
    start_offset: int


def create_watermark(folder: Path, mark: Watermark, files: FileLayer) -> None:
    """Write the first watermark of a partition, durably."""
    create_exclusive(folder / NAME, [_pack(mark)], files=files)


def write_watermark(folder: Path, mark: Watermark, files: FileLayer, *, durably: bool = False) -> None:
    """Overwrite the watermark. The caller holds the partition's lock; what is below is durable already.

    ``durably``: sync it (and create it if it is lost), for those rare writes that must not be forgotten.
    """
    write_watermark_file(folder / NAME, mark, files, durably=durably)


def write_watermark_file(path: Path, mark: Watermark, files: FileLayer, *, durably: bool = False) -> None:
    """The same, for whoever writes it so often that it keeps the path."""
    with opened(path, os.O_WRONLY | (os.O_CREAT if durably else 0), files=files) as fd:
        write_open_watermark(fd, mark, files)
        if durably:
            files.fsync(fd)


def write_open_watermark(fd: int, mark: Watermark, files: FileLayer) -> None:
    """The same, for whoever has opened it."""
    write_all(fd, [_pack(mark)], 0, files=files)


def read_watermark(folder: Path, files: FileLayer) -> Watermark | None:
    """Return the watermark; ``None`` if the file is missing or damaged."""
    return read_watermark_file(folder / NAME, files)


def read_watermark_file(path: Path, files: FileLayer) -> Watermark | None:
    """The same, for whoever asks so often that it keeps the path."""
    try:
        fd = files.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise access_denied(path, error) from None
    try:
        return read_open_watermark(fd, files)
    finally:
        files.close(fd)


def read_open_watermark(fd: int, files: FileLayer) -> Watermark | None:
    """The same, for whoever has opened it.

    Reading may meet a write in progress and see half of each; so a bad checksum is read again, a bounded
    number of times.
    """
    for _ in range(_READ_ATTEMPTS):
        mark = _unpack(files.pread(fd, _FILE.size, 0))
        if mark is not None:
            return mark
    return None


def _pack(mark: Watermark) -> bytes:
    body = _BODY.pack(_MAGIC, _VERSION, *mark)
    return body + _CHECKSUM.pack(zlib.crc32(body))


def _unpack(data: bytes) -> Watermark | None:
    if len(data) != _FILE.size:
        return None
    magic, version, segment_base, length, next_offset, start_offset, checksum = _FILE.unpack(data)
    if magic != _MAGIC or version != _VERSION or zlib.crc32(data[: _BODY.size]) != checksum:
        return None
    return Watermark(segment_base, length, next_offset, start_offset)
