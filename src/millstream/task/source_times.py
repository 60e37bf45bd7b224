"""The timestamps that records will have, before a task takes them: for whoever plans what it takes.

They are what the task will find, but for the way in which bad records are dealt with: one that can't be
decoded, that the extractor refuses or that it fails on has no time here, and nobody is told. It will be told
of when the task comes to it.
"""

from __future__ import annotations

from typing import Any, Final

from millstream.processors.batch import OrderKey
from millstream.task.records import RawBatch
from millstream.task.serde_book import SerdeBook
from millstream.task.sources import SourceReader
from millstream.timestamps import TimestampExtractor
from millstream.topology.nodes import SourceNode

__all__ = ["NO_TIME", "source_times"]

NO_TIME: Final = -1
"""The record is left out."""


def source_times(
    node: SourceNode,
    extractor: TimestampExtractor,
    book: SerdeBook,
    raw: RawBatch,
    partition_time: int,
    clock_ms: int,
) -> list[int]:
    """The timestamp of each record of a raw batch, by the extractor of its source."""
    reader = SourceReader(node, book, _lenient(extractor), _ignored, _not_counted, clock=lambda: clock_ms)
    part = reader.read(raw, partition_time)
    times = [NO_TIME] * len(raw)
    for row, time in zip(part.rows, part.timestamps, strict=True):
        times[row] = time
    return times


def _lenient(extractor: TimestampExtractor) -> TimestampExtractor:
    def extract(record: Any, partition_time: int) -> int:
        try:
            time = extractor(record, partition_time)
        except Exception:  # noqa: BLE001 - a user's function may raise anything
            return NO_TIME
        return time if type(time) is int else NO_TIME

    return extract


def _ignored(raw: RawBatch, row: int, error: Exception, order: OrderKey) -> None:
    del raw, row, error, order


def _not_counted(name: str, count: int) -> None:
    del name, count
