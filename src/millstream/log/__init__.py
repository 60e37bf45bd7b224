"""Logs: topics with partitions of records. The embedded one is a folder; Kafka is another.

:func:`open_log` gives the log that an address names. What a log is and promises: :mod:`millstream.log.api`.
"""

from __future__ import annotations

from pathlib import Path

from millstream.errors import ConfigError
from millstream.log.api import (
    AppendResult,
    Log,
    LogRecordBatch,
    Publication,
    PublishResult,
    SealedLog,
    SealedRange,
    Stamp,
    TimestampType,
    TopicConfig,
    TopicDescription,
    TopicPartition,
)
from millstream.log.blocks import SCHEMA, encode_blocks, record_batch
from millstream.log.embedded.file_log import FileLog
from millstream.log.embedded.partition import Limits
from millstream.log.partitioner import murmur2, partition_for_key, partitions_for_keys
from millstream.log.producer import Producer

__all__ = [
    "SCHEMA",
    "AppendResult",
    "FileLog",
    "Limits",
    "Log",
    "LogRecordBatch",
    "Producer",
    "Publication",
    "PublishResult",
    "SealedLog",
    "SealedRange",
    "Stamp",
    "TimestampType",
    "TopicConfig",
    "TopicDescription",
    "TopicPartition",
    "encode_blocks",
    "murmur2",
    "open_log",
    "partition_for_key",
    "partitions_for_keys",
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
