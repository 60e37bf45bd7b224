"""Retention: what is let go because it is old, and what somebody still needs.

Manifests below the head's `oldest` are removed, unless a task has last sealed with them or a snapshot pins
them. Records of topics that an application reads are not let go unread.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from millstream.commit.manifest import Manifest
from millstream.log.api import SealedLog, TopicPartition
from millstream.types import Offset


@dataclass(frozen=True, slots=True)
class PinnedEpochs:
    """The epochs of snapshots: of those that are there, and of those at work.

    These may be of any version from the one on with which they began.

    >>> pinned = PinnedEpochs({3, 7}, at_work_since=9)
    >>> 7 in pinned, 8 in pinned, 12 in pinned
    (True, False, True)
    """

    listed: Container[int]
    at_work_since: int | None = None

    def __contains__(self, epoch: object) -> bool:
        at_work = self.at_work_since is not None and isinstance(epoch, int) and epoch >= self.at_work_since
        return at_work or epoch in self.listed


def retain(log: SealedLog, place: TopicPartition, head: Manifest, *, is_read: bool) -> None:
    """Let go of the old records of a topic; of one that is read, nothing that the head has not read."""
    unread = head.position(place.topic, place.partition) or Offset(0)
    log.retain(place, spare=unread if is_read else None)
