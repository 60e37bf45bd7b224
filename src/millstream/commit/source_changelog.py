"""Tables that have their source topic for a changelog: what must hold, and who must not throw away what.

A store is restored by reading its topic up to the committed offset, so the topic has to keep what it had:

- Retention would let keys go that nobody has deleted: refused.
- Compaction keeps the last record of a key. That is enough, if it is one that the table took: a record that
  can't be read would replace one that could. So none may be skipped in a compacted topic, whatever the
  handler says.
- Compaction ends where the oldest kept manifest stands, of every application that follows the topic,
  whoever compacts it: a record beyond that offset must not replace one before it. A table that begins does
  so when nobody is compacting its topic who has not seen its manifest; until then the topic is not read.

And timestamps must be the records' own: an extractor of the user's runs once, when a record is processed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from millstream.commit.application_storage import ApplicationStorage, application_ids
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.config import StreamsConfig
from millstream.durable import LockTimeoutError
from millstream.errors import MillstreamError
from millstream.log.api import Log, TopicPartition
from millstream.task.metrics import Metrics
from millstream.timestamps import fail_on_invalid_timestamp
from millstream.topology.plan import Plan, SubTopology
from millstream.types import Epoch, Offset, Partition

_REMEDY = "build the topology without the optimisation reuse_ktable_source_topics"


class SourceReuseError(MillstreamError):
    """A source topic can't do for a table's changelog."""


def reused_sources(plan: Plan) -> Iterator[tuple[SubTopology, str, str]]:
    """The stores that have a source topic for a changelog: sub-topology, store, topic."""
    for sub in plan.subtopologies:
        yield from ((sub, name, topic) for name, topic in _reused(sub))


def _reused(sub: SubTopology) -> Iterator[tuple[str, str]]:
    for name, spec in sub.stores.items():
        if spec.source_topic is not None:
            yield name, spec.source_topic


def being_rewritten(log: Log, places: Iterable[TopicPartition], timeout_ms: int) -> frozenset[TopicPartition]:
    """Where somebody is still at work after so long, for all of them, who may not have seen our manifests."""
    deadline = time.monotonic() + timeout_ms / 1000
    busy: set[TopicPartition] = set()
    for place in places:
        left_ms = max(0, int((deadline - time.monotonic()) * 1000))
        try:
            log.wait_for_log_cleaner(place, timeout_ms=left_ms)
        except LockTimeoutError:
            busy.add(place)
    return frozenset(busy)


def check_retention(plan: Plan, log: Log) -> None:
    """Refuse topics that let records go by age or size."""
    known = set(log.topics())
    for _, store, topic in reused_sources(plan):
        if topic not in known:
            continue  # the engine says so better
        config = log.config(topic)
        if config.retention_ms is not None or config.retention_bytes is not None:
            raise SourceReuseError(
                f"Topic {topic!r} lets records go by age or size, but store {store!r} has it for a changelog "
                "and would lose keys that nobody has deleted. Nothing was changed. Remedy: read a topic "
                f"without retention (a compacted one stays small, too), or {_REMEDY}."
            )


def check_timestamps(sub: SubTopology, config: StreamsConfig) -> None:
    """Refuse an extractor that the application sets for all its sources."""
    for store, topic in _reused(sub):
        if config.timestamp_extractor is not fail_on_invalid_timestamp:
            raise SourceReuseError(
                f"The application has a timestamp_extractor for all its sources, but store {store!r} has its "
                f"topic {topic!r} for a changelog, which has the records' own timestamps only. Remedy: give "
                f"the extractor to the sources that need it, or {_REMEDY}."
            )


def check_nothing_skipped(sub: SubTopology, log: Log, task_id: str, metrics: Metrics) -> None:
    """Fail if an epoch left a record of a compacted topic out that a store follows."""
    for store, topic in _reused(sub):
        source = sub.source_of(topic)
        assert source is not None  # the store is its table's
        skipped = metrics.of_task(task_id).get((source.name, "records-dropped"), 0)
        if skipped and log.config(topic).is_compacted:
            raise SourceReuseError(
                f"{skipped} records of topic {topic!r} (task {task_id}) can't be read, and the handler "
                f"says to go on without them. But store {store!r} has this topic for a changelog, and it is "
                "compacted: such a record takes away the one that it follows, and a restored store would "
                f"not have the key. Nothing was committed. Remedy: {_REMEDY}; or mend the records' writer "
                "and begin behind them, under another app_id with offset_reset."
            )


def compaction_bound(
    log_root: Path, place: TopicPartition, chains: dict[str, ManifestChain] | None = None
) -> Offset | None:
    """How far a topic may be compacted for the sake of stores that follow it; None: nobody minds.

    If the manifests of an application can't be read, nobody knows, and nothing may be compacted. Who asks for
    many partitions gives `chains` with each: then a manifest is read once, and what has changed since.
    """
    chains = {} if chains is None else chains
    found: list[Offset] = []
    for application_id in application_ids(log_root):
        try:
            storage = ApplicationStorage(log_root, application_id)
            found += _bounds(chains.setdefault(application_id, ManifestChain(storage)), place)
        except (MillstreamError, OSError):
            return Offset(0)
    return min(found, default=None)


def _bounds(chain: ManifestChain, place: TopicPartition) -> list[Offset]:
    """Where the stores of an application stood that follow a topic, at the oldest manifest that is kept."""
    head = chain.latest()
    followed = [] if head is None else [one for one in _followed(head.plan) if one[2] == place.topic]
    if head is None or not followed:
        return []
    if place.partition >= max(1, head.partitions(place.topic)):
        return [Offset(0)]
    oldest = chain.read(Epoch(head.oldest))
    return [_position(oldest, task, store, topic, place.partition) for task, store, topic in followed]


def _followed(plan: Any) -> Iterator[tuple[int, str, str]]:
    """Sub-topology, store and topic, from the plan as a manifest keeps it."""
    for sub in plan.get("subtopologies", ()):
        for store in sub["stores"]:
            if store.get("source_topic") is not None:
                yield sub["number"], store["name"], store["source_topic"]


def _position(manifest: Manifest, sub: int, store: str, topic: str, partition: Partition) -> Offset:
    """Where a store stood; before its first epoch, where its topic will be read from."""
    entry = manifest.tasks.get(f"{sub}_{partition}")
    position = None if entry is None else entry.changelogs.get(store)
    if position is None:
        position = manifest.position(topic, partition)
    return Offset(0) if position is None else position
