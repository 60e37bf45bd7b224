"""Checking what a publisher says about a sealed range.

The publisher wrote the file, the log will serve it for years: both sides look at the same fact. The block
headers of the range must be intact and add up to the number of records and the times that were stated. The
records themselves are checked when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Final

from millstream.durable import FileLayer
from millstream.log.api import SealedRange
from millstream.log.blocks import BLOCK_HEADER_BYTES, decode_header, summary
from millstream.log.embedded.reader import sealed_path
from millstream.log.embedded.segment import Located, ReadBuffer, block_headers, sealed_entry
from millstream.log.errors import DamagedLogError, InvalidPublicationError

_SMALL_BYTES: Final = 4 << 10
_DENSE_WINDOW_BYTES: Final = 64 << 10


def check_sealed(root: Path, ranges: Iterable[SealedRange], files: FileLayer) -> None:
    """Refuse ranges that are not there as stated. Each file is opened once."""
    by_file: dict[str, list[SealedRange]] = {}
    for sealed in ranges:
        by_file.setdefault(sealed.file, []).append(sealed)
    for file, of_file in by_file.items():
        _check_file(root, file, of_file, files)


def _check_file(root: Path, file: str, ranges: list[SealedRange], files: FileLayer) -> None:
    ranges.sort(key=attrgetter("start"))
    # Small ranges of many tasks stand side by side. Of large ones no more is read than the headers.
    is_dense = ranges[-1].start - ranges[0].start < _SMALL_BYTES * len(ranges)
    window_bytes = _DENSE_WINDOW_BYTES if is_dense and len(ranges) > 1 else BLOCK_HEADER_BYTES
    try:
        opened = ReadBuffer(sealed_path(root, file), files, window_bytes=window_bytes)
    except FileNotFoundError:
        raise _invalid(ranges[0], "there is no such file") from None
    except DamagedLogError as error:
        raise _invalid(ranges[0], str(error)) from error
    with opened as window:
        size = window.size()
        for sealed in ranges:
            _check_range(sealed, window, size)


def _check_range(sealed: SealedRange, window: ReadBuffer, size: int) -> None:
    if not 0 <= sealed.start < sealed.start + sealed.length <= size:
        raise _invalid(sealed, f"the file has {size} bytes")
    stated = (sealed.count, sealed.min_timestamp, sealed.max_timestamp)
    try:
        found = _summary_of(sealed, window)
    except DamagedLogError as error:
        raise _invalid(sealed, str(error)) from error
    if found != stated:
        count, lowest, highest = found
        raise _invalid(sealed, f"the blocks hold {count} records with the times {lowest} to {highest}")


def _summary_of(sealed: SealedRange, window: ReadBuffer) -> tuple[int, int, int]:
    first = decode_header(window.get(sealed.start, BLOCK_HEADER_BYTES), window.at(sealed.start))
    if first.length == first.raw_length == sealed.length and first.span == sealed.count:
        return summary([first])  # one block, as most have: nothing has to be added up
    located = Located(sealed_entry(sealed, 0, 0, 0, 0), sealed.start, 0)
    return summary([header for _, header, _ in block_headers(window, located)])


def _invalid(sealed: SealedRange, how: str) -> InvalidPublicationError:
    stamp = sealed.stamp
    return InvalidPublicationError(
        f"Task {stamp.task} of {stamp.publisher} wants to publish {sealed.count} records at bytes "
        f"{sealed.start} to {sealed.start + sealed.length} of {sealed.file!r} (epoch {stamp.epoch}), but "
        f"{how}. Nothing was published. Likely cause: the file was changed after it was sealed. Remedy: "
        "restore it from a backup."
    )
