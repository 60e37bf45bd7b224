"""Lines out of files and pipes, in pieces that fit into memory.

A file is read in large pieces. A pipe is read as it delivers, and whoever reads is told when it has nothing
more for the moment, so that a slow source's records are not held back.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

from millstream.log.errors import RecordTooLargeError

_PIECE_BYTES: Final = 1 << 20
MAX_LINE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines (without their ends), how many bytes they took, and whether more is there already."""

    lines: list[bytes]
    size: int
    is_more_waiting: bool


def read_lines(stream: IO[bytes]) -> Iterator[Lines]:
    """Yield the lines of a stream. The last one needs no line end; a carriage return before it is dropped."""
    read = getattr(stream, "read1", stream.read)
    rest = b""
    while piece := read(_PIECE_BYTES):
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise RecordTooLargeError(
                f"A line is longer than {MAX_LINE_BYTES} bytes. Likely cause: a binary file, or other line "
                "ends. Remedy: end lines with a newline."
            )
        yield Lines([line.removesuffix(b"\r") for line in whole], len(piece), _is_more_waiting(stream))
    if rest:
        yield Lines([rest.removesuffix(b"\r")], 0, False)


def _is_more_waiting(stream: IO[bytes]) -> bool:
    try:
        ready, _, _ = select.select([stream], [], [], 0)
    except (OSError, ValueError):  # not a real file: all there is, is there
        return True
    return bool(ready)
