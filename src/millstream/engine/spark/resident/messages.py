"""What coordinator and slots say to each other. Plain data.

Whatever belongs to an epoch names its attempt: term, epoch and a number that the coordinator gives out once
per term. Whoever gets a message of another attempt, or of another incarnation of a slot, drops it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.manifest import TaskEntry
from millstream.commit.standby import StandbyPosition
from millstream.state.local.directory import Checkpoint
from millstream.types import Attempt, Epoch, Term


class EpochAttempt(NamedTuple):
    """One try of one epoch. A later one is greater."""

    term: Term
    attempt: Attempt
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Hello:
    """A slot is ready. The first message of a connection."""

    instance: str
    """The state directory that it works in: of its host, whatever the slot."""
    host: str
    boot: str
    pid: int
    started: str
    """When its process was started: a process id is used again, the pair is not."""
    flight: str
    """Where other slots put blocks."""
    held: Mapping[str, Checkpoint]
    """The tasks whose state is on its instance, and where their stores stand, as far as it is known."""
    node: str = ""
    """The host as standbys see it; that of `host` if empty. Tests have several hosts on one machine."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Where the host stands: see `StreamsConfig.rack_aware_assignment_tags`."""


@dataclass(frozen=True, slots=True)
class NotReady:
    """A slot could not load the program. The only message of a connection."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Peer:
    """A slot as others see it."""

    incarnation: str
    flight: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """Who runs what from now on. A slot is told when it changes, before the epochs that need it."""

    slot: int
    slots: Mapping[str, int]
    """The slot of every task, also of those that are idle."""
    peers: Mapping[int, Peer]
    """All slots, by number."""
    here: frozenset[str] = frozenset()
    """The tasks that the slot's instance runs, or keeps copies of: in whichever of its slots."""


@dataclass(frozen=True, slots=True)
class RunEpoch:
    """Run the tasks of a slot."""

    of: EpochAttempt
    job: EpochJob
    """The slot's share of it."""
    levels: Mapping[int, frozenset[int]]
    """At which levels each slot has tasks in this epoch."""
    is_ahead: bool = False
    """The epoch before it may not be published yet: a store that has to be restored waits for that."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Give up an attempt, and all before it: drop what it made."""

    of: EpochAttempt


@dataclass(frozen=True, slots=True)
class Committed:
    """An attempt was committed: stores may apply what they hold of it."""

    of: EpochAttempt
    tasks: tuple[tuple[PlannedTask, TaskEntry], ...]


@dataclass(frozen=True, slots=True)
class Follow:
    """Keep copies of tasks that run elsewhere, at what was committed."""

    keep: frozenset[str]
    """All tasks that the slot follows. Those of before that are not among them are let go."""
    tasks: tuple[tuple[PlannedTask, TaskEntry], ...]
    """Those of them that are new, or were committed since."""


@dataclass(frozen=True, slots=True)
class Followed:
    """How far the copies of a slot are."""

    tasks: Mapping[str, StandbyPosition]


NO_ANSWER: Final = 0
"""The number of calls whose answers nobody waits for."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """Local state of tasks that have left the slot's instance was deleted there."""

    tasks: frozenset[str]


@dataclass(frozen=True, slots=True)
class Call:
    """Do some work between the epochs, or beside them, and answer."""

    number: int
    work: Any
    """A function, called with the worker and the arguments. Travels by its name."""
    arguments: tuple[Any, ...]
    is_beside: bool
    """In a thread of its own; else by the thread of tasks, in its turn."""


@dataclass(frozen=True, slots=True)
class Ping:
    """The coordinator is alive."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End in order."""


@dataclass(frozen=True, slots=True)
class EpochDone:
    """All tasks of a slot are done."""

    of: EpochAttempt
    reports: tuple[TaskReport | WrongInstance, ...]


@dataclass(frozen=True, slots=True)
class EpochFailed:
    """A task of a slot has failed, or the slot could not reach another one."""

    of: EpochAttempt
    error: Exception


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a call: a value, or an error."""

    number: int
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """The slot is alive."""
