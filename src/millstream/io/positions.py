"""Where a reader begins and ends, and how an address names a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import index
from pathlib import Path
from typing import Final, Literal, TypeAlias

from millstream.errors import ConfigError
from millstream.log import FileLog, TopicPartition, open_log
from millstream.types import Offset, Partition

LogLike: TypeAlias = str | Path | FileLog
"""A log, or its address: ``file:FOLDER`` or the folder's path."""
Position: TypeAlias = "Literal['earliest', 'latest'] | int | datetime | Mapping[int, int]"
"""The first record, behind the last one, an offset (of every partition, or by partition), or a time."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def as_log(log: LogLike) -> FileLog:
    """The log that is meant.

    >>> as_log("file:./millstream-data").root.name, as_log("data").root.name
    ('millstream-data', 'data')
    """
    if isinstance(log, FileLog):
        return log
    if not isinstance(log, str | Path):
        raise ConfigError(
            f"the log is {log!r}, which names none. Remedy: give its folder, an address such as "
            "'file:./millstream-data', or an open log"
        )
    return open_log(log if str(log).startswith(("file:", "kafka:")) else Path(log))


def time_ms(time: int | datetime, what: str) -> int:
    """A time in milliseconds.

    >>> time_ms(datetime(1970, 1, 1, 0, 1, tzinfo=UTC), "the start")
    60000
    """
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ConfigError(
                f"{what} is {time!r}, a datetime without a zone. Remedy: give it one, for example "
                "datetime(2026, 1, 31, tzinfo=timezone.utc)"
            )
        return (time - _EPOCH) // timedelta(milliseconds=1)
    try:
        return index(time)
    except TypeError:
        raise ConfigError(
            f"{what} is {time!r}. Remedy: give whole milliseconds since 1970, or a datetime with its zone"
        ) from None


def partitions_of(log: FileLog, topic: str, chosen: Iterable[int] | None) -> list[TopicPartition]:
    """The partitions to read: those chosen, or all."""
    count = log.config(topic).partitions
    numbers = list(range(count)) if chosen is None else sorted(set(chosen))
    wrong = [number for number in numbers if not 0 <= number < count]
    if wrong:
        raise ConfigError(
            f"topic {topic!r} has no partition {wrong[0]}. Remedy: choose 0 to {count - 1}, or none for all"
        )
    return [TopicPartition(topic, Partition(number)) for number in numbers]


def offset_at(log: FileLog, place: TopicPartition, position: Position, what: str) -> Offset:
    """The offset of a position in a partition; a time is that of the first record that is not older."""
    earliest, latest = log.earliest(place), log.latest(place)
    if isinstance(position, Mapping):
        position = position.get(place.partition, earliest if what == "start" else latest)
    if isinstance(position, str) and position in {"earliest", "latest"}:
        return earliest if position == "earliest" else latest
    if isinstance(position, datetime):
        found = log.offset_for_time(place, time_ms(position, what))
        return latest if found is None else found
    if isinstance(position, int) and not isinstance(position, bool) and position >= 0:
        return Offset(position)
    raise ConfigError(
        f"{what}={position!r} is no place in topic {place.topic!r}. Remedy: use 'earliest', 'latest', a "
        "datetime with its zone, an offset, or a mapping from partitions to offsets"
    )
