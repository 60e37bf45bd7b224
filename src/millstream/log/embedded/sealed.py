"""Checking what a publisher says about a sealed range.

The publisher wrote the file, the log will serve it for years: both sides look at the same fact. The block
headers of the range must be intact and add up to the number of records and the times that were stated. The
records themselves are checked when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from millstream.durable import FileLayer
from millstream.log.api import SealedRange
from millstream.log.blocks import summary
from millstream.log.embedded.reader import sealed_path
from millstream.log.embedded.segment import Located, ReadBuffer, block_headers, sealed_entry
from millstream.log.errors import DamagedLogError, InvalidPublicationError


def check_sealed(root: Path, ranges: Iterable[SealedRange], files: FileLayer) -> None:
    """Refuse ranges that are not there as stated. Those of one file are best asked one after the other."""
    for file, of_file in groupby(ranges, attrgetter("file")):
        _check_file(root, file, list(of_file), files)


def _check_file(root: Path, file: str, ranges: Sequence[SealedRange], files: FileLayer) -> None:
    try:
        opened = ReadBuffer(sealed_path(root, file), files, window_bytes=64)
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
    located = Located(sealed_entry(sealed, 0, 0), sealed.start, 0)
    try:
        found = summary(header for _, header, _ in block_headers(window, located))
    except DamagedLogError as error:
        raise _invalid(sealed, str(error)) from error
    if found != (sealed.count, sealed.min_timestamp, sealed.max_timestamp):
        count, lowest, highest = found
        raise _invalid(sealed, f"the blocks hold {count} records with the times {lowest} to {highest}")


def _invalid(sealed: SealedRange, how: str) -> InvalidPublicationError:
    stamp = sealed.stamp
    return InvalidPublicationError(
        f"Task {stamp.task} of {stamp.publisher} wants to publish {sealed.count} records at bytes "
        f"{sealed.start} to {sealed.start + sealed.length} of {sealed.file!r} (epoch {stamp.epoch}), but "
        f"{how}. Nothing was published. Likely cause: the file was changed after it was sealed. Remedy: "
        "restore it from a backup."
    )
