"""The process is killed before any one of its syncs, the next one goes on and commits; then the power fails.

What a dead process wrote and did not sync looks like everything else to the next one. So each durable step
must make durable what it builds on, whoever made it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulation.fault_world import World
from tests.simulation.faulty_files import FaultyFiles

from millstream.failpoints import InjectedCrash

SOAK = bool(os.environ.get("MILLSTREAM_SOAK"))
PARTS = 8


class EndingFiles(FaultyFiles):
    """Ends the process before one of its syncs."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.left = -1
        self.syncs = 0

    def fsync(self, fd: int) -> None:
        self._count()
        super().fsync(fd)

    def sync_folder(self, path: Path) -> None:
        self._count()
        super().sync_folder(path)

    def _count(self) -> None:
        self.syncs += 1
        if self.left >= 0:
            self.left -= 1
            if self.left < 0:
                raise InjectedCrash


def first_life(folder: Path, syncs: int) -> tuple[World, bool]:
    """A coordinator's first start and its first epoch, up to a sync; whether it got that far."""
    world = World(folder, "ledger", "memory", make_files=EndingFiles)
    world.create_topics()
    world.append(30)
    assert isinstance(world.files, EndingFiles)
    world.files.left = syncs
    try:
        world.epoch()
    except InjectedCrash:
        world.die()
    return world, world.files.left < 0


def lives(folder: Path, part: int) -> Iterator[World]:
    """One of the parts of all lives that end before a sync, each up to its end."""
    number = part
    while True:
        world, has_ended = first_life(folder / str(number), number)
        with world:
            if not has_ended:
                return
            yield world
        number += PARTS


@pytest.mark.parametrize("part", range(PARTS))
def test_what_the_next_process_commits_is_durable(tmp_path: Path, part: int) -> None:
    ended = 0
    for world in lives(tmp_path, part):
        world.epoch()
        assert isinstance(world.files, FaultyFiles)
        world.files.power_cut()
        world.die()
        world.check()
        world.check_to_the_end()
        ended += 1
    assert ended > 5
