"""All that is in a log: to compare applications that were killed with one that was not."""

from __future__ import annotations

from typing import Any

from millstream.log import FileLog, TopicPartition
from millstream.types import Offset, Partition


def rows_of(log: FileLog) -> dict[str, list[tuple[Any, ...]]]:
    """The keys, values and times of each topic, changelogs included, by partition."""
    return {
        topic: [
            row
            for number in range(log.config(topic).partitions)
            for batch in log.read(TopicPartition(topic, Partition(number)), Offset(0))
            for row in zip(batch.keys(), batch.values(), batch.timestamps(), strict=True)
        ]
        for topic in sorted(log.topics())
    }
