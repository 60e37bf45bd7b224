"""Timestamp extractors: where a record's event time comes from.

An extractor is a function of the record (with `.key`, `.value`, `.timestamp`, `.headers`, `.topic`,
`.partition`, `.offset` and `.wall_clock_ms`) and the partition time (the largest timestamp of its partition
so far, -1 before the first). A negative answer drops the record and counts it; the default refuses instead.

It must be a function of these two alone: where partitions have to be put into order, a record may be shown to
it once more when an epoch is planned, and again when an epoch is run again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from millstream.errors import InvalidTimestampError

TimestampExtractor = Callable[[Any, int], int]

HOW_TO_EXTRACT: Final = "use one of millstream.timestamps, or a function of the record and the partition time"
"""The remedy for what is no extractor."""


def fail_on_invalid_timestamp(record: Any, partition_time: int) -> int:
    """The record's own time; a negative one is an error (the default).

    >>> from millstream import Record, timestamps
    >>> timestamps.fail_on_invalid_timestamp(Record("k", "v", 5), -1)
    5
    """
    del partition_time
    timestamp: int = record.timestamp
    if timestamp < 0:
        raise InvalidTimestampError(
            f"the timestamp is {timestamp}, which is negative. Likely cause: the producer set none. "
            "Remedy: choose another timestamp_extractor, such as timestamps.skip_invalid_timestamp or "
            "timestamps.use_partition_time_on_invalid_timestamp"
        )
    return timestamp


def skip_invalid_timestamp(record: Any, partition_time: int) -> int:
    """The record's own time; a record with a negative one is dropped and counted.

    >>> from millstream import Record, timestamps
    >>> timestamps.skip_invalid_timestamp(Record("k", "v", 5), -1)
    5
    """
    del partition_time
    timestamp: int = record.timestamp
    return timestamp


def use_partition_time_on_invalid_timestamp(record: Any, partition_time: int) -> int:
    """The record's own time, or for a negative one the largest of its partition so far.

    >>> from millstream import Record, timestamps
    >>> timestamps.use_partition_time_on_invalid_timestamp(Record("k", "v", 5), 3)
    5
    """
    timestamp: int = record.timestamp
    if timestamp >= 0:
        return timestamp
    if partition_time < 0:
        raise InvalidTimestampError(
            f"the timestamp is {timestamp} and its partition has no earlier one to use instead. "
            "Remedy: choose another timestamp_extractor"
        )
    return partition_time


def wall_clock_timestamp(record: Any, partition_time: int) -> int:
    """The time of processing: the clock of the epoch that reads the record, the same when it is run again.

    >>> from types import SimpleNamespace
    >>> from millstream import timestamps
    >>> timestamps.wall_clock_timestamp(SimpleNamespace(wall_clock_ms=1_700_000_000_000), -1)
    1700000000000
    """
    del partition_time
    clock_ms: int = record.wall_clock_ms
    return clock_ms
