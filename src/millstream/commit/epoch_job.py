"""What coordinator and tasks tell each other about an epoch. Plain data that travels between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from millstream.commit.manifest import TaskEntry
from millstream.commit.sealed_file import SealedFile
from millstream.small_pickles import pickled_as_call
from millstream.state.backends.api import NO_STATE, StoreSize
from millstream.task.shuffle_block import ConsumedBlock, SentBlock
from millstream.task.task import TaskState
from millstream.types import Attempt, Epoch, Offset, Partition, Term

Cut = Mapping[str, Mapping[Partition, tuple[Offset, Offset]]]
"""Per source topic and partition, the offsets from and to (exclusive) which an epoch reads."""


@pickled_as_call
@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task that may have to run in an epoch."""

    task_id: str
    subtopology: int
    partition: Partition
    level: int
    expected_instance: str | None = None
    """The instance that holds the task's state, if one is known to be alive."""
    caught_up: bool = True
    """No record that could reach the task waits in the log, left out of the cut: see `.caught_up`."""
    number: int = 0
    """Its place among all tasks of the application, planned or not: engines place tasks by it."""
    has_input: bool = True
    """It has something to do even if nobody sends it rows. If not, and nobody does, it need not run."""


@dataclass(frozen=True, slots=True)
class EpochJob:
    """An epoch as the coordinator planned it."""

    application_id: str
    epoch: Epoch
    term: Term
    clock_ms: int
    tick: bool
    """Wall-clock punctuators run."""
    cut: Cut
    tasks: tuple[PlannedTask, ...]
    """Those that may have something to do: see `.planned_tasks`."""
    entries: Mapping[str, TaskEntry]
    """Each planned task as the head names it, and those of global stores."""
    inferred_types: tuple[tuple[str, str, str], ...]
    partition_counts: Mapping[str, int]
    default_partitions: int
    """Of a topic that an extractor names and that does not exist yet."""
    compacted: Mapping[tuple[str, Partition], Offset] = field(default_factory=dict)
    """How far source topics were compacted before the epoch, where a store begins that follows them."""
    enforced: int = 0
    """Groups of partitions that meet and go on, though some of them have no records: see `.task_idling`."""
    task_counts: Mapping[int, int] = field(default_factory=dict)
    """How many tasks each sub-topology has, planned or not."""
    global_topics: frozenset[str] = frozenset()
    global_tasks: frozenset[str] = frozenset()
    """Of global stores: whoever runs a task may have to read all of them."""

    def has_task(self, task_id: str) -> bool:
        """Whether the application has such a task, planned or not."""
        number, partition = (int(part) for part in task_id.split("_"))
        return partition < self.task_counts.get(number, 0)

    def without_empty_ranges(self) -> EpochJob:
        """The same, for those who read only what there is to be read."""
        cut = {
            topic: {partition: bounds for partition, bounds in parts.items() if bounds[0] < bounds[1]}
            for topic, parts in self.cut.items()
        }
        return replace(self, cut=cut)

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has, or will have."""
        return self.partition_counts.get(topic, self.default_partitions)


@pickled_as_call
@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a task did in an epoch. `sealed` is None if it had nothing to do."""

    task_id: str
    attempt: Attempt
    instance: str
    sealed: SealedFile | None
    state: TaskState
    changelog_counts: Mapping[str, int]
    repartitioned: Mapping[tuple[str, Partition], int]
    sent: tuple[SentBlock, ...]
    consumed: tuple[ConsumedBlock, ...]
    """The blocks of others that had rows for it."""
    inferred_types: tuple[tuple[str, str, str], ...]
    records: int
    commit_requested: bool
    counters: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """What the task counted in this epoch, by node and counter."""
    wants_wall_clock: bool = False
    """A punctuator waits for the wall clock, so an idle application must tick."""
    state_size: StoreSize = NO_STATE
    """About how large its stores are where it ran: entries with this epoch's changes, bytes without."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """How many seconds each stage of its work took."""
    restored: int = 0
    """So many records of changelogs its stores had to read before it could run."""
    deleted: tuple[str, ...] = ()
    """Tasks whose local state was deleted on its instance after it ran: it belongs to others now."""


@dataclass(frozen=True, slots=True)
class WrongInstance:
    """A task found itself, cold, on another instance than the one that holds its state."""

    task_id: str
    instance: str
    expected_instance: str
