"""What keeps state small, as things that happen to a :class:`~tests.simulation.fault_world.World`.

Compaction, expiry, clean-up and snapshots that are torn: each function makes it happen, and fails if it did
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from tests.simulation.fault_world import APPLICATION_ID, RECORDS_OF_AN_EPOCH, NoFaultError, World
from tests.simulation.oracle_programs import NOTE, first_live_segment

from millstream import failpoints
from millstream.log.api import TopicPartition
from millstream.maintenance.state_cleaner import clean_now_and_then
from millstream.state.local.cleaning import clean
from millstream.state.local.directory import open_state_directory
from millstream.state.snapshots.storage import FolderStorage
from millstream.types import Partition

__all__ = [
    "clean_up",
    "clean_up_elsewhere",
    "compact",
    "crash_in_clean_up",
    "expire",
    "restore_from_torn_manifests",
]

_ROUNDS: Final = 10
_LONG_MS: Final = 1_000
"""Longer than any window is kept."""


def compact(world: World) -> None:
    """Run epochs and tidy up, until a changelog is compacted further than it was.

    Of a topic that does for one, if there is such. That is compacted only as far as it was read.
    """
    topics = [*world.followed().values()] or [*world.changelogs().values()]
    while world.followed() and world.backlog() > RECORDS_OF_AN_EPOCH:
        world.epoch()

    def compacted() -> dict[TopicPartition, int]:
        log = world.log()
        return {
            place: log.compacted(place).to
            for topic in topics
            if topic in log.topics()
            for place in (TopicPartition(topic, Partition(n)) for n in range(log.config(topic).partitions))
        }

    before = compacted()
    world.append(RECORDS_OF_AN_EPOCH)
    for _ in range(_ROUNDS):
        world.append(2 * RECORDS_OF_AN_EPOCH)
        world.epoch()
        world.epoch()
        world.run_maintenance()
        if any(to > before.get(place, 0) for place, to in compacted().items()):
            world.count("compaction")
            return
    raise NoFaultError(f"nothing was compacted in {_ROUNDS} rounds")


def expire(world: World) -> None:
    """Let so much time go by that segments of every window store are dropped."""

    def first_live() -> list[int]:
        world.note()
        return [
            first_live_segment(next((value for key, value, _ in reversed(rows) if key == NOTE), None))
            for store in world.program().segmented
            for rows in world.chronicle.topics[world.changelogs()[store]]
        ]

    before = first_live()
    world.advance(_LONG_MS)
    world.append(2 * RECORDS_OF_AN_EPOCH)
    for _ in range(world.backlog()):
        world.epoch()
        if any(now > then for now, then in zip(first_live(), before or [0] * len(first_live()), strict=True)):
            break
    else:
        raise NoFaultError("nothing has expired")
    world.append(RECORDS_OF_AN_EPOCH)
    world.count("expiry")


def clean_up(world: World) -> None:
    """Delete the local state of all tasks, as somebody does by hand when nothing runs."""
    _ensure_local_state(world)
    if not clean(open_state_directory(world.state), APPLICATION_ID, unused_for_ms=0):
        raise NoFaultError("there was nothing to clean up")
    world.forget_local_state()
    world.count("clean-up")


def crash_in_clean_up(world: World) -> None:
    """The process ends when a task's folder is out of the way, and not deleted; then somebody tries again."""
    _ensure_local_state(world)
    with failpoints.armed("state.task_renamed", "raise"):
        try:
            clean(open_state_directory(world.state), APPLICATION_ID, unused_for_ms=0)
        except failpoints.InjectedCrash:
            world.die()
    if world.app is not None:
        raise NoFaultError("state.task_renamed ended nothing")
    world.forget_local_state()
    world.count("crash")
    world.check()
    world.epoch()
    clean_up(world)


def clean_up_elsewhere(world: World) -> None:
    """Tasks of another instance have moved here: that one deletes its copies, and this one nothing."""
    _ensure_local_state(world)
    while not _has_committed_tasks(world):
        world.epoch()  # what is here was made by an epoch that failed: there is nothing to follow
    world.append(2 * RECORDS_OF_AN_EPOCH)
    world.follow()
    while not list(world.standby.glob(f"{APPLICATION_ID}/*_*")):
        world.epoch()  # what is committed has no state yet: a line without words
        world.follow()
    here, there = open_state_directory(world.state), open_state_directory(world.standby)
    job = world.started[-1].job
    homes = tuple(replace(task, expected_instance=here.instance_id) for task in job.tasks)
    job = replace(job, tasks=homes)
    if clean_now_and_then(here, 0, job):
        raise NoFaultError("state that is in its place was deleted")
    if not clean_now_and_then(there, 0, job):
        raise NoFaultError("state of tasks that have moved was not deleted")
    world.count("clean-up")


def restore_from_torn_manifests(
    world: World, fates: Sequence[Literal["cut", "zeroed", "lost"]] = ("cut", "zeroed", "lost")
) -> None:
    """Lose the local disk, and a part of the newest manifest of every snapshot."""
    world.append(5 * RECORDS_OF_AN_EPOCH)
    for _ in range(2):
        world.epoch()
        world.take_snapshots()
    newest = {path.parent: path for path in sorted(world.snapshots.glob("*/*/*/*/manifests/[0-9]*"))}
    older = sum(len(list(folder.glob("[0-9]*"))) > 1 for folder in newest)
    storage = FolderStorage(world.snapshots, world.files)
    for path in newest.values():
        content, fate = path.read_bytes(), world.rng.choice(fates)
        name = path.relative_to(world.snapshots).as_posix()
        if fate == "lost":
            storage.delete(name)
        else:
            size = world.rng.randrange(len(content))
            world.torn[path] = content[:size] if fate == "cut" else bytes(len(content))
            storage.put(name, [world.torn[path]])
    if not newest:
        raise NoFaultError("there were no snapshots to tear")
    world.lose_local_state()
    if older:
        world.epochs_until_restored()
    else:
        world.epoch()
    world.append(RECORDS_OF_AN_EPOCH)
    world.count("torn snapshot manifest")


def _has_committed_tasks(world: World) -> bool:
    return world.app is not None and bool(world.app.coordinator.head.tasks)


def _ensure_local_state(world: World) -> None:
    world.append(3 * RECORDS_OF_AN_EPOCH)
    while not list(world.state.glob(f"{APPLICATION_ID}/*_*")) or not world.started:
        world.epoch()
    if world.app is None:
        world.open()
