"""Lives that a failpoint ends: in this process by an exception, in a child by SIGKILL."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable

from tests.simulation import fault_child
from tests.simulation.fault_world import LEASE_TTL_MS, World

from millstream import failpoints

CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload([fault_child.__name__])


_TOGETHER = 3


def kinds_and_steps(kinds: Iterable[str], steps: Iterable[str]) -> list[tuple[str, str]]:
    """Every step with some kinds, and every kind with some steps; each with each in the soak.

    >>> kinds_and_steps("ab", ["read", "seal", "commit", "show"])
    [('a', 'read'), ('a', 'show'), ('b', 'commit')]
    """
    is_soak = bool(os.environ.get("MILLSTREAM_SOAK"))
    order = [*steps]
    return [
        (kind, step)
        for number, kind in enumerate(kinds)
        for at, step in enumerate(order)
        if is_soak or (number + at) % _TOGETHER == 0
    ]


def crash_in_a_life(
    world: World, live: Callable[[World], None], point: str, action: failpoints.Action, skip: int
) -> None:
    """Let the world live until the failpoint ends it."""
    with failpoints.armed(point, action, skip=skip) as armed:
        try:
            live(world)
            world.epoch()  # what is torn comes after the point: after the last one, here
        except failpoints.InjectedCrash:
            world.die()
    assert armed.fired
    assert world.app is None, "nothing was torn"


def kill_a_child(world: World, armed: str) -> None:
    """Let a process of its own live in the world until the failpoint kills it."""
    child = CHILDREN.Process(
        target=fault_child.run,
        args=(world.folder, world.name, world.backend, world.now, armed, world.snapshot_interval),
    )
    child.start()
    child.join(60)
    assert child.exitcode == -9
    world.now -= LEASE_TTL_MS  # the lease has not run out: its owner is dead, and that is enough
