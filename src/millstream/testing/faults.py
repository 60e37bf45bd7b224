"""Fault scripts: what happens to an application, as data. One integer makes a whole script.

A script is a row of steps; :func:`play` plays it in a :class:`~millstream.testing.fault_world.World` and asks
the oracle after every step. The planned faults must really happen, and before the input ends, or the script
fails: a test that shows nothing is no test. A failed script carries its seed, its steps and the command that
plays it again.
"""

from __future__ import annotations

import os
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeAlias

from millstream.testing import fault_housekeeping as housekeeping
from millstream.testing.fault_programs import APPLICATIONS
from millstream.testing.fault_world import LostAttempt, NoFaultError, World
from millstream.testing.oracle import PROGRAMS, Verdict
from millstream.testing.stalls import Site

__all__ = [
    "EPOCH_POINTS",
    "OPENING_POINTS",
    "RESTORE_POINTS",
    "SEED_VARIABLE",
    "SNAPSHOT_POINTS",
    "STALL_SITES",
    "UPKEEP_POINTS",
    "UPKEEP_STALL_SITES",
    "Script",
    "play",
    "script",
    "scripted_world",
    "seeds",
]

SEED_VARIABLE: Final = "MILLSTREAM_SEED"
SOME: Final = 12
"""More records than an epoch takes."""
_RETENTION_BYTES: Final = 400
"""Of each partition of an output: a few segments."""
_NEVER_BY_ITSELF: Final = 1_000_000
"""Snapshots are steps of a script."""

During: TypeAlias = Literal["epoch", "opening"]

EPOCH_POINTS: Final = (
    "durable.file_written",
    "durable.file_synced",
    "durable.linked",
    "durable.replaced",
    "durable.folder_synced",
    "log.locked",
    "log.frame_written",
    "log.frame_synced",
    "log.watermark_written",
    "commit.planned",
    "commit.opened",
    "commit.processed",
    "commit.sealing",
    "commit.sealed",
    "commit.reported",
    "commit.checked",
    "commit.manifest_written",
    "commit.witness_written",
    "commit.published",
    "commit.ended",
    "commit.store_applied",
    "commit.applied",
    "follow.batch_applied",
)
"""Failpoints that every epoch with input passes."""

OPENING_POINTS: Final = (
    "durable.file_written",
    "durable.file_synced",
    "durable.linked",
    "durable.replaced",
    "durable.folder_synced",
    "commit.leased",
    "commit.manifest_written",
    "commit.witness_written",
    "commit.fenced",
    "commit.published",
)
"""Failpoints that every start of a driver passes."""

SNAPSHOT_POINTS: Final = (
    "snapshot.copied",
    "snapshot.file_stored",
    "snapshot.written",
    "snapshot.dropped",
    "snapshot.file_deleted",
)
"""Failpoints that a snapshot passes that replaces another one."""

RESTORE_POINTS: Final = ("snapshot.fetched", "snapshot.restored")
"""Failpoints that a restore from a snapshot passes."""

UPKEEP_POINTS: Final = (
    "log.rewritten_named",
    "log.replaced_removed",
    "log.start_moved",
    "upkeep.manifest_removed",
    "upkeep.file_collected",
)
"""Failpoints that upkeep passes when it rewrites topics, applies retention and collects files."""

STALL_SITES: Final[tuple[Site, ...]] = (
    ("commit.planned",),
    ("commit.sealing", "durable.file_written"),
    ("commit.sealed",),
    ("commit.reported",),
    ("commit.checked",),
    ("commit.checked", "durable.file_synced"),
    ("commit.checked", "durable.linked"),
    ("commit.manifest_written",),
    ("commit.manifest_written", "durable.file_synced"),
    ("commit.witness_written",),
    ("commit.published",),
    ("commit.ended",),
    ("commit.applied",),
)
"""Where a driver can stand still in an epoch without holding a lock that others would wait for."""

OPENING_STALL_SITES: Final[tuple[Site, ...]] = (
    ("durable.file_written",),
    ("durable.linked",),
    ("commit.leased",),
    ("commit.manifest_written",),
    ("commit.fenced",),
)
"""The same in a driver's start."""

UPKEEP_STALL_SITES: Final[tuple[Site, ...]] = (("upkeep.manifest_removed",), ("upkeep.file_collected",))
"""The same in upkeep."""


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
    """The driver ends in order, and another one starts."""

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
    """What comes before the next driver: a consumer reads the topics, or the machine loses its power, too."""

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
    """A driver stands still in the middle of a step; another one takes over."""

    fault = "stalled driver"

    during: During
    site: Site

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.stall(self.site, opening=self.during == "opening")


@dataclass(frozen=True, slots=True)
class Wake(Step):
    """The driver that has stood still for longest goes on."""

    fault = "woken driver"

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
class Tend(Step):
    """Upkeep rewrites topics and collects files, between epochs or while one is under way."""

    beside_an_epoch: bool

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        if self.beside_an_epoch:
            world.tend_beside_an_epoch()
        else:
            world.tend()


@dataclass(frozen=True, slots=True)
class StallInUpkeep(Step):
    """A driver stands still while it tidies up; another one takes over."""

    fault = "stalled driver"

    site: Site

    def do(self, world: World) -> None:
        """See :meth:`Step.do`."""
        world.stall_in_upkeep(self.site)


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


class CrashInUpkeep(CrashBeside):
    """The process ends while it tidies up."""

    def crash(self, world: World) -> None:
        """See :meth:`CrashBeside.crash`."""
        world.crash_in_upkeep(self.point, self.action, skip=self.skip)


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


@dataclass(frozen=True, slots=True)
class Script:
    """An application, a backend, how much is kept, and what happens."""

    seed: int
    application: str
    backend: str
    steps: tuple[Step, ...]
    retained_manifests: int = 3
    snapshots_retained: int = 1
    sorted_rows: int | None = None

    def __str__(self) -> str:
        kept = f"{self.retained_manifests} manifests and {self.snapshots_retained} snapshots retained"
        if self.sorted_rows is not None:
            kept += f", restores of {self.sorted_rows} rows by key"
        steps = "\n".join(f"  {number:2} {step}" for number, step in enumerate(self.steps))
        return f"seed {self.seed}: {self.application} on {self.backend}, {kept}\n{steps}"


def seeds(count: int) -> Sequence[int]:
    """The seeds to play: the first `count`, or the one that the environment names."""
    chosen = os.environ.get(SEED_VARIABLE)
    return range(count) if chosen is None else [int(chosen)]


def script(seed: int) -> Script:
    """The script of a seed.

    >>> script(7) == script(7)
    True
    """
    rng = random.Random(seed)  # noqa: S311 - not a secret
    application = rng.choice(sorted(APPLICATIONS))
    # To open RocksDB takes longer than all the rest.
    backend = "rocksdb" if seed % 100 == 0 else rng.choice(("memory", "lmdb"))
    steps: list[Step] = [Append(rng.randint(1, 12))]
    stalled = 0
    for _ in range(rng.randint(5, 8)):
        step = _step(rng, stalled, has_windows=bool(PROGRAMS[application].segmented))
        steps.append(step)
        if isinstance(step, Stall | StallInUpkeep):
            stalled += 1
            # Somebody must take over, else it is only a slow driver.
            steps.append(rng.choice((Epoch(apply=True), Restart())))
        elif isinstance(step, Wake):
            stalled -= 1
        elif isinstance(step, PowerCut) or _ends_in_a_power_cut(step):
            stalled = 0
    kept = rng.choice((2, 3, 4)), rng.choice((1, 2, 3))
    sorted_rows = rng.choice((None, 1, 5, 12))
    return Script(seed, application, backend, (*steps, *([Wake()] * stalled)), *kept, sorted_rows)


def _ends_in_a_power_cut(step: Step) -> bool:
    return isinstance(step, Crash | CrashBeside) and step.then == "power cut"


def _step(rng: random.Random, stalled: int, *, has_windows: bool) -> Step:
    task = rng.choice(("0_0", "0_1", "1_0", "1_1"))
    during: During = rng.choice(("epoch", "epoch", "opening"))
    points, sites = (
        (EPOCH_POINTS, STALL_SITES) if during == "epoch" else (OPENING_POINTS, OPENING_STALL_SITES)
    )
    crash = Crash(
        during=during,
        point=rng.choice(points),
        action=rng.choice(("raise", "torn-raise")),
        skip=rng.choice((0, 0, 0, 1, 2)) if during == "epoch" else 0,
        then=rng.choice(("nothing", "look", "power cut")),
    )
    snapshot_crash = CrashInSnapshot(
        point=rng.choice((*SNAPSHOT_POINTS, *RESTORE_POINTS)),
        action=rng.choice(("raise", "torn-raise")),
        skip=rng.choice((0, 0, 1)),
        then=rng.choice(("nothing", "power cut")),
    )
    upkeep_crash = CrashInUpkeep(
        point=rng.choice(UPKEEP_POINTS),
        action=rng.choice(("raise", "torn-raise")),
        skip=rng.choice((0, 0, 1)),
        then=rng.choice(("nothing", "power cut")),
    )
    choices: list[tuple[int, Step]] = [
        (3, Epoch(apply=rng.random() < 0.7)),  # noqa: PLR2004
        (1, Append(rng.randint(1, 9))),
        (1, Restart()),
        (6, crash),
        (1, PowerCut()),
        (2, TwoAttempts(task, rng.randrange(2), rng.randrange(2))),
        (2, Zombie(rng.randrange(1000), rng.choice(("runs here", "runs elsewhere", "applies")))),
        (3 if stalled < 2 else 0, Stall(during, rng.choice(sites))),  # noqa: PLR2004
        (1 if stalled < 2 else 0, StallInUpkeep(rng.choice(UPKEEP_STALL_SITES))),  # noqa: PLR2004
        (3 if stalled else 0, Wake()),
        (1, LoseLocalState(rng.choice((task, None)))),
        (1, TakeSnapshots()),
        (2, snapshot_crash),
        (2, Tend(beside_an_epoch=rng.random() < 0.5)),  # noqa: PLR2004
        (2, upkeep_crash),
        (1, Compact()),
        (3 if has_windows else 0, Expire()),
        (1, CleanUp(rng.choice(("by hand", "crash", "elsewhere")))),
        (2, RestoreFromSnapshots(rng.choice(("whole", "harmed", "manifest torn")))),
    ]
    return rng.choices([step for _, step in choices], [weight for weight, _ in choices])[0]


def play(script: Script, folder: Path) -> Verdict:
    """Play a script, with the oracle after every step, then run the application to the end of its input.

    A failure says how to see it again.
    """
    try:
        with scripted_world(script, folder) as world:
            world.create_topics()
            for step in script.steps:
                step.do(world)
                _look(world, step)
            verdict = world.check_to_the_end()
            world.check_snapshots()
            _check_all_happened(script, world.happened)
        world.remove()
    except BaseException as error:
        error.add_note(
            f"{script}\nagain: {SEED_VARIABLE}={script.seed} pytest tests/commit/test_fault_scripts.py"
        )
        raise
    return verdict


def scripted_world(script: Script, folder: Path) -> World:
    """The world of a script. It keeps little, so that there is always something to remove."""
    return World(
        folder,
        script.application,
        script.backend,
        script.seed,
        snapshot_interval=_NEVER_BY_ITSELF,
        snapshots_retained=script.snapshots_retained,
        retained_manifests=script.retained_manifests,
        delete_retention_ms=0,
        retention_bytes=_RETENTION_BYTES,
        sorted_rows=script.sorted_rows,
    )


def _look(world: World, step: Step) -> None:
    is_secret = isinstance(step, Crash | CrashInSnapshot) and step.then == "nothing"
    if world.app is None and is_secret:
        world.check_versions()
    else:
        world.check()


def _check_all_happened(script: Script, happened: Counter[str]) -> None:
    planned = Counter(step.fault for step in script.steps if step.fault is not None)
    planned["power cut"] += sum(_ends_in_a_power_cut(step) for step in script.steps)
    missing = planned - happened
    if missing:
        raise NoFaultError(f"planned and not seen: {dict(missing)}")
