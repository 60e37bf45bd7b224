"""Fault scripts: what happens to an application, as data. One integer makes a whole script.

A script is a row of steps; :func:`play` plays it in a :class:`~tests.simulation.fault_world.World` and asks
the oracle after every step. The planned faults must really happen, and before the input ends, or the script
fails: a test that shows nothing is no test. A failed script carries its seed, its steps and the command that
plays it again.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.simulation.fault_points import (
    EPOCH_POINTS,
    LMDB_POINTS,
    MAINTENANCE_POINTS,
    MAINTENANCE_STALL_SITES,
    OPENING_POINTS,
    OPENING_STALL_SITES,
    RESTORE_POINTS,
    SNAPSHOT_POINTS,
    STALL_SITES,
)
from tests.simulation.fault_programs import APPLICATIONS
from tests.simulation.fault_steps import (
    Append,
    CleanUp,
    Compact,
    Crash,
    CrashBeside,
    CrashInMaintenance,
    CrashInSnapshot,
    During,
    Epoch,
    Expire,
    LoseLocalState,
    Maintain,
    PowerCut,
    Restart,
    RestoreFromSnapshots,
    Stall,
    StallInMaintenance,
    Step,
    TakeSnapshots,
    TwoAttempts,
    Wake,
    Zombie,
)
from tests.simulation.fault_world import NoFaultError, World
from tests.simulation.oracle import PROGRAMS, Verdict

__all__ = ["SEED_VARIABLE", "Script", "play", "script", "scripted_world", "seeds"]

SEED_VARIABLE: Final = "MILLSTREAM_SEED"
_RETENTION_BYTES: Final = 400
"""Of each partition of an output: a few segments."""
_NEVER_BY_ITSELF: Final = 1_000_000
"""Snapshots are steps of a script."""


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
    rng = random.Random(seed)
    application = rng.choice(sorted(APPLICATIONS))
    # To open RocksDB takes longer than all the rest.
    backend = "rocksdb" if seed % 100 == 0 else rng.choice(("memory", "lmdb"))
    steps: list[Step] = [Append(rng.randint(1, 12))]
    stalled = 0
    for _ in range(rng.randint(5, 8)):
        step = _step(rng, stalled, backend, has_windows=bool(PROGRAMS[application].segmented))
        steps.append(step)
        if isinstance(step, Stall | StallInMaintenance):
            stalled += 1
            # Somebody must take over, else it is only a slow coordinator.
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


def _step(rng: random.Random, stalled: int, backend: str, *, has_windows: bool) -> Step:
    task = rng.choice(("0_0", "0_1", "1_0", "1_1"))
    during: During = rng.choice(("epoch", "epoch", "opening"))
    of_an_epoch = (*EPOCH_POINTS, *LMDB_POINTS) if backend == "lmdb" else EPOCH_POINTS
    points, sites = (of_an_epoch, STALL_SITES) if during == "epoch" else (OPENING_POINTS, OPENING_STALL_SITES)
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
    maintenance_crash = CrashInMaintenance(
        point=rng.choice(MAINTENANCE_POINTS),
        action=rng.choice(("raise", "torn-raise")),
        skip=rng.choice((0, 0, 1)),
        then=rng.choice(("nothing", "power cut")),
    )
    choices: list[tuple[int, Step]] = [
        (3, Epoch(apply=rng.random() < 0.7)),
        (1, Append(rng.randint(1, 9))),
        (1, Restart()),
        (6, crash),
        (1, PowerCut()),
        (2, TwoAttempts(task, rng.randrange(2), rng.randrange(2))),
        (2, Zombie(rng.randrange(1000), rng.choice(("runs here", "runs elsewhere", "applies")))),
        (3 if stalled < 2 else 0, Stall(during, rng.choice(sites))),
        (1 if stalled < 2 else 0, StallInMaintenance(rng.choice(MAINTENANCE_STALL_SITES))),
        (3 if stalled else 0, Wake()),
        (1, LoseLocalState(rng.choice((task, None)))),
        (1, TakeSnapshots()),
        (2, snapshot_crash),
        (2, Maintain(beside_an_epoch=rng.random() < 0.5)),
        (2, maintenance_crash),
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
