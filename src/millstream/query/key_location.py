"""Which task has a key of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.commit.manifest import Manifest
from millstream.log.partitioner import partition_for_key
from millstream.query.replica import store_of
from millstream.query.store_frames import bound_to
from millstream.topology.plan import Plan

__all__ = ["task_of_key"]


def task_of_key(
    plan: Plan, store: str, key: Any, counts: Mapping[str, int], head: Manifest | None
) -> tuple[str, int]:
    """The task, and the partition, by the hash of the key's bytes.

    That is where repartitions put it, and producers that partition as Kafka's do.
    """
    sub, spec = store_of(plan, store)
    tasks = plan.task_count(sub, counts) if counts else 1
    partition = partition_for_key(bound_to(spec, head).key.serialize(key), tasks)
    return sub.task_id(partition), partition
