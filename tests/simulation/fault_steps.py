"""The steps of a fault script: each is data that says what happens, and lets it happen to a world."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

from tests.simulation import fault_housekeeping as housekeeping
from tests.simulation.fault_world import LostAttempt, World
from tests.simulation.stalls import Site

__all__ = [
    "Append",
    "CleanUp",
    "Compact",
    "Crash",
    "CrashBeside",
    "CrashInMaintenance",
    "CrashInSnapshot",
    "During",
    "Epoch",
    "Expire",
    "LoseLocalState",
    "Maintain",
    "PowerCut",
    "Restart",
    "RestoreFromSnapshots",
    "Stall",
    "StallInMaintenance",
    "Step",
    "TakeSnapshots",
    "TwoAttempts",
    "Wake",
    "Zombie",
]

SOME: Final = 12
"""More records than an epoch takes."""

During: TypeAlias = Literal["epoch", "opening"]


class Step(ABC):
    """Something that happens."""

    fault: ClassVar[str | None] = None
    """As what the world counts it."""

    @abstractmethod
    def do(self, world: World) -> None:
        """Let it happen."""


@dataclass(frozen=True, slots=True)
class Append(Step):
    """A producer writes records."""

    records: int

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.append(self.records)


@dataclass(frozen=True, slots=True)
class Epoch(Step):
    """An epoch, with or without step 10."""

    apply: bool

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.epoch(apply=self.apply)


@dataclass(frozen=True, slots=True)
class Restart(Step):
    """The coordinator ends in order, and another one starts."""

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.close()
        world.open()


@dataclass(frozen=True, slots=True)
class Crash(Step):
    """The process ends at a failpoint, perhaps in the middle of the write that follows it."""

    fault = "crash"

    during: During
    point: str
    action: Literal["raise", "torn-raise"]
    skip: int
    then: Literal["nothing", "look", "power cut"]
    """What comes before the next coordinator: a consumer reads the topics, or the power is cut, too."""

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        if self.during == "opening":
            world.die()
        world.crash(self.point, self.action, skip=self.skip)
        if self.then == "power cut":
            world.power_cut()


@dataclass(frozen=True, slots=True)
class PowerCut(Step):
    """The machine loses its power."""

    fault = "power cut"

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.append(SOME)
        world.power_cut()


@dataclass(frozen=True, slots=True)
class TwoAttempts(Step):
    """A task runs twice in an epoch; one of the two is lost."""

    fault = "lost attempt"

    task_id: str
    named: int
    heard: int

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.lose_attempt(LostAttempt(self.task_id, self.named, self.heard))


@dataclass(frozen=True, slots=True)
class Zombie(Step):
    """A task of the past wakes up: it runs and seals, or applies what is long gone."""

    fault = "zombie"

    age: int
    does: Literal["runs here", "runs elsewhere", "applies"]

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        while not (started := [task for task in world.started if task.has_past or self.does != "applies"]):
            world.append(SOME)
            world.epoch()
        world.append(SOME)
        task = started[self.age % len(started)]
        if self.does == "applies":
            world.late_apply(task)
        else:
            world.zombie(task, elsewhere=self.does == "runs elsewhere")


@dataclass(frozen=True, slots=True)
class Stall(Step):
    """A coordinator stands still in the middle of a step; another one takes over."""

    fault = "stalled coordinator"

    during: During
    site: Site

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.stall(self.site, opening=self.during == "opening")


@dataclass(frozen=True, slots=True)
class Wake(Step):
    """The coordinator that has stood still for longest goes on."""

    fault = "woken coordinator"

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.wake()


@dataclass(frozen=True, slots=True)
class LoseLocalState(Step):
    """The disk with the local stores of a task (None: of all) is gone."""

    fault = "lost local state"

    task_id: str | None

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.append(SOME)
        world.lose_local_state(self.task_id)


@dataclass(frozen=True, slots=True)
class TakeSnapshots(Step):
    """Every task gets a snapshot."""

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.take_snapshots()


@dataclass(frozen=True, slots=True)
class Maintain(Step):
    """Maintenance rewrites topics and collects files, between epochs or while one is under way."""

    beside_an_epoch: bool

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        if self.beside_an_epoch:
            world.tend_beside_an_epoch()
        else:
            world.run_maintenance()


@dataclass(frozen=True, slots=True)
class StallInMaintenance(Step):
    """A coordinator stands still while it tidies up; another one takes over."""

    fault = "stalled coordinator"

    site: Site

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.stall_in_maintenance(self.site)


@dataclass(frozen=True, slots=True)
class Compact(Step):
    """Changelogs lose what later records replace, and old tombstones."""

    fault = "compaction"

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        housekeeping.compact(world)


@dataclass(frozen=True, slots=True)
class Expire(Step):
    """Windows go, by whole segments. For applications that have any."""

    fault = "expiry"

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        housekeeping.expire(world)


@dataclass(frozen=True, slots=True)
class CleanUp(Step):
    """Local state is deleted: by hand, or because it is not used on that instance."""

    fault = "clean-up"

    how: Literal["by hand", "crash", "elsewhere"]

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        if self.how == "by hand":
            housekeeping.clean_up(world)
        elif self.how == "crash":
            housekeeping.crash_in_clean_up(world)
        else:
            housekeeping.clean_up_elsewhere(world)


@dataclass(frozen=True, slots=True)
class CrashBeside(Step):
    """The process ends in work that goes on beside the epochs."""

    fault = "crash"

    point: str
    action: Literal["raise", "torn-raise"]
    skip: int
    then: Literal["nothing", "power cut"]

    @abstractmethod
    def crash(self, world: World) -> None:
        """Let the work go on until the failpoint."""

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        self.crash(world)
        if self.then == "power cut":
            world.power_cut()


class CrashInSnapshot(CrashBeside):
    """The process ends while it takes a snapshot, or restores from one."""

    def crash(self, world: World) -> None:
        """See :meth:`CrashBeside.crash`."""
        world.crash_in_snapshot(self.point, self.action, skip=self.skip)


class CrashInMaintenance(CrashBeside):
    """The process ends while it tidies up."""

    def crash(self, world: World) -> None:
        """See :meth:`CrashBeside.crash`."""
        world.crash_in_maintenance(self.point, self.action, skip=self.skip)


@dataclass(frozen=True, slots=True)
class RestoreFromSnapshots(Step):
    """The local disk is gone after a snapshot; perhaps the snapshots have suffered, too."""

    fault = "lost local state"

    snapshots: Literal["whole", "harmed", "manifest torn"]

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        if self.snapshots == "whole":
            world.restore_from_snapshots()
        elif self.snapshots == "harmed":
            world.restore_from_harmed_snapshots()
        else:
            housekeeping.restore_from_torn_manifests(world)
