"""What the coordinator makes of the tasks' reports: all there, consistent, and what is true after them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from millstream.commit.epoch_job import EpochJob, TaskReport, WrongInstance
from millstream.commit.manifest import TaskEntry
from millstream.commit.targets import Targets
from millstream.errors import MillstreamError, MixedTypesError
from millstream.state.changelog.source_changelog import StoreStart
from millstream.task.shuffle_block import ConsumedBlock
from millstream.topology.plan import Plan, SubTopology
from millstream.types import Offset, Partition

__all__ = [
    "EpochMismatchError",
    "WrongInstanceError",
    "advanced",
    "by_task",
    "check_consumed_is_named",
    "entries_after",
    "merged_types",
    "origins_of",
]


class EpochMismatchError(MillstreamError):
    """The reports of an epoch do not fit together: it has to run again."""


class WrongInstanceError(MillstreamError):
    """A task ran where its state is not, while its state is elsewhere: the epoch is planned anew."""


def by_task(job: EpochJob, reports: Iterable[TaskReport | WrongInstance]) -> dict[str, TaskReport]:
    """The reports by task: at most one of each planned task, and of no other; one of each that has input."""
    done: dict[str, TaskReport] = {}
    for report in reports:
        if isinstance(report, WrongInstance):
            message = (
                f"task {report.task_id} ran on instance {report.instance}, where its state is not; it is on "
                f"{report.expected_instance}"
            )
            raise WrongInstanceError(message)
        if report.task_id in done:
            message = f"epoch {job.epoch}: task {report.task_id} reported twice"
            raise EpochMismatchError(message)
        done[report.task_id] = report
    planned = {task.task_id for task in job.tasks}
    missing = sorted(task.task_id for task in job.tasks if task.has_input and task.task_id not in done)
    foreign = sorted(done.keys() - planned)
    if missing or foreign:
        message = f"epoch {job.epoch}: no report of {missing}, and unplanned reports of {foreign}"
        raise EpochMismatchError(message)
    return done


def check_consumed_is_named(plan: Plan, job: EpochJob, done: Mapping[str, TaskReport]) -> None:
    """What each task took in from a repartition is what the named attempts sent. Equal digests are equal.

    A task that was sent nothing need not have run.
    """
    targets = Targets(plan, job.tasks)
    expected: dict[str, list[ConsumedBlock]] = {}
    for sender, report in done.items():
        for topic, digest, partitions in report.sent:
            consumed = ConsumedBlock(topic, sender, digest)
            for partition in partitions:
                target = targets.at(topic, partition)
                if target is None:
                    message = (
                        f"epoch {job.epoch}: nobody takes what task {sender} sent to {topic}-{partition}"
                    )
                    raise EpochMismatchError(message)
                expected.setdefault(target.task_id, []).append(consumed)
    for task_id in {**done, **expected}:
        found, wanted = done[task_id].consumed if task_id in done else (), expected.get(task_id, ())
        if len(found) != len(wanted) or set(found) != set(wanted):
            message = (
                f"epoch {job.epoch}: task {task_id} consumed rows of another attempt than those that "
                "are named: the epoch has to run again"
            )
            raise EpochMismatchError(message)


def advanced(
    positions: Iterable[tuple[str, Partition, Offset]], job: EpochJob
) -> tuple[tuple[str, Partition, Offset], ...]:
    """How far the sources are read, the epoch included."""
    before = {(topic, partition): offset for topic, partition, offset in positions}
    after = dict(before)
    for topic, parts in job.cut.items():
        after.update(((topic, partition), end) for partition, (_, end) in parts.items())
    ordered = after.items() if len(after) == len(before) else sorted(after.items())
    return tuple((topic, partition, offset) for (topic, partition), offset in ordered)


def entries_after(plan: Plan, job: EpochJob, done: Mapping[str, TaskReport]) -> dict[str, TaskEntry]:
    """The entries of the tasks that sealed in the epoch."""
    subs = plan.by_number
    entries: dict[str, TaskEntry] = {}
    for task in job.tasks:
        report = done.get(task.task_id)
        if report is None or report.sealed is None:
            continue
        before = job.entries.get(task.task_id)
        positions, origins = _store_positions(subs[task.subtopology], task.partition, job, before, report)
        entries[task.task_id] = TaskEntry(
            version=job.epoch,
            file=report.sealed.path,
            digest=report.sealed.digest,
            sections=report.sealed.sections,
            changelogs=positions,
            stream_time=report.state.stream_time,
            partition_times=tuple(
                (topic, Partition(partition), time)
                for (topic, partition), time in sorted(report.state.partition_times.items())
            ),
            punctuations=tuple(
                (node, number, due) for (node, number), due in report.state.punctuations.items()
            ),
            repartitioned=tuple(
                (topic, partition, count)
                for (topic, partition), count in sorted(report.repartitioned.items())
            ),
            previous=(0, "") if before is None else (before.version, before.digest),
            origins=origins,
            part=report.sealed.part,
            operator_times=dict(report.state.operator_times) or msgspec.UNSET,
        )
    return entries


def _store_positions(
    sub: SubTopology, partition: Partition, job: EpochJob, before: TaskEntry | None, report: TaskReport
) -> tuple[dict[str, Offset], dict[str, StoreStart]]:
    """Where the stores of a task stand in their changelogs, or in the source topics that do for them.

    One that has had no records of its source topic stands nowhere yet.
    """
    start = {} if before is None else before.changelogs
    positions: dict[str, Offset] = {}
    origins: dict[str, StoreStart] = dict(origins_of(before))
    for name, spec in sub.stores.items():
        if spec.has_changelog:
            positions[name] = Offset(start.get(name, Offset(0)) + report.changelog_counts.get(name, 0))
        elif spec.source_topic is not None and partition in job.cut.get(spec.source_topic, ()):
            first, end = job.cut[spec.source_topic][partition]
            if name not in origins and first < end:
                origins[name] = StoreStart(first, job.compacted[spec.source_topic, partition])
            if name in origins:
                positions[name] = end
    return positions, origins


def origins_of(entry: TaskEntry | None) -> Mapping[str, StoreStart]:
    """Where the stores of a task began in the source topics that do for their changelogs."""
    return {} if entry is None else entry.origins


def merged_types(job: EpochJob, reports: Iterable[TaskReport]) -> tuple[tuple[str, str, str], ...]:
    """What automatic serdes know by now; refuse tasks that have inferred different types."""
    merged = {(name, part): kind for name, part, kind in job.inferred_types}
    for report in reports:
        for name, part, kind in report.inferred_types:
            known = merged.setdefault((name, part), kind)
            if known != kind:
                raise MixedTypesError(
                    f"serdes.auto: the {part}s of {name!r} are {known} in one task and {kind} in task "
                    f"{report.task_id}. Remedy: convert them to one type, or give {name!r} an explicit serde."
                )
    return tuple((name, part, kind) for (name, part), kind in sorted(merged.items()))
