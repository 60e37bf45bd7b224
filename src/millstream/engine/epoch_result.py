"""What an epoch did, in figures: for listeners of an application, and for its totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.commit.manifest import Manifest
from millstream.engine.api import DurableEpoch
from millstream.state.backends.api import StoreSize


@dataclass(frozen=True, slots=True)
class EpochResult:
    """What an epoch did."""

    manifest: Manifest
    records: int
    """Of the sources; rows that went through repartitions are not counted again."""
    seconds: float
    commit_requested: bool
    counters: Mapping[tuple[str, str], int]
    """What its tasks counted, by node and counter. Attempts that were not committed are not in it."""
    has_backlog: bool = False
    """Records were waiting that did not fit into it."""
    latency_ms: int | None = None
    """From the moment when its newest record came into the log to the publication; None without records."""
    state_sizes: Mapping[str, StoreSize] = field(default_factory=dict)
    """About how large the stores of the tasks that ran are: bytes are without the changes of this epoch."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Where the coordinator's time went: plan, job and commit, publish."""
    task_stages: Mapping[str, float] = field(default_factory=dict)
    """Where the tasks' time went, summed over all tasks; they run side by side, within the job."""
    enforced: int = 0
    """Groups of partitions that meet and were read, though some of them had no records."""
    restored: Mapping[str, int] = field(default_factory=dict)
    """Tasks whose stores had to read their changelogs before they ran, and how many records.

    After a start and a takeover; on the engine of jobs also for what the epoch before has changed.
    """


def result_of(
    epoch: DurableEpoch, *, seconds: float, has_backlog: bool, latency_ms: int | None
) -> EpochResult:
    """The figures of an epoch."""
    counters: Counter[tuple[str, str]] = Counter()
    task_stages: Counter[str] = Counter()
    for report in epoch.reports:
        counters.update(report.counters)
        task_stages.update(report.stages)
    return EpochResult(
        epoch.manifest,
        sum(end - start for parts in epoch.job.cut.values() for start, end in parts.values()),
        seconds,
        any(report.commit_requested for report in epoch.reports),
        counters,
        has_backlog,
        latency_ms,
        {report.task_id: report.state_size for report in epoch.reports if report.sealed is not None},
        epoch.stages,
        dict(task_stages),
        epoch.job.enforced,
        {report.task_id: report.restored for report in epoch.reports if report.restored},
    )
