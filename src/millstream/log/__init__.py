"""Logs: topics with partitions of records. The embedded one is a folder; Kafka is another.

:func:`open_log` gives the log that an address names. What a log is and promises: :mod:`millstream.log.api`.
"""

from __future__ import annotations

from pathlib import Path

from millstream.errors import ConfigError
from millstream.log.api import LogRecordBatch, TimestampType, TopicConfig, TopicPartition
from millstream.log.blocks import record_batch
from millstream.log.embedded.file_log import FileLog
from millstream.log.producer import Producer

__all__ = [
    "FileLog",
    "LogRecordBatch",
    "Producer",
    "TimestampType",
    "TopicConfig",
    "TopicPartition",
    "open_log",
    "record_batch",
]


def open_log(address: str | Path) -> FileLog:
    """Return the log that an address names: ``file:`` and a folder, or the folder's path.

    >>> open_log("file:./millstream-data").root.name
    'millstream-data'
    """
    scheme, colon, place = str(address).partition(":")
    if isinstance(address, Path) or (scheme == "file" and colon and place):
        path = str(address) if isinstance(address, Path) else place
        return FileLog(path.removeprefix("//") if path.startswith("///") else path)
    if scheme == "kafka":
        raise ConfigError(f"{address!r}: Kafka is not supported yet. Remedy: use file:FOLDER.")
    raise ConfigError(
        f"{address!r} is not the address of a log. Likely cause: the scheme is missing. Remedy: write "
        "file:FOLDER, for example file:./millstream-data."
    )
