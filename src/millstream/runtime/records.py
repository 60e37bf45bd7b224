"""Records at the edges of a task, where they are still, or again, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.record import Headers


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Consecutive records of one topic partition."""

    topic: str
    partition: int
    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def headers_of(self, row: int) -> Headers:
        """The headers of one record."""
        return self.headers[row] if self.headers is not None else ()


@dataclass(frozen=True, slots=True)
class OutputBatch:
    """Records for one topic, in the order in which they are to be written."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None
    partitions: Sequence[int | None] | None
    """The partition that a partitioner of the user's own chose; None where the key decides."""

    def __len__(self) -> int:
        return len(self.keys)

    def headers_of(self, row: int) -> Headers:
        """The headers of one record."""
        return self.headers[row] if self.headers is not None else ()
