"""Worlds with a little history."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.simulation.fault_world import World


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory, where there is such a place: thousands of syncs need no disk, and faults are simulated."""
    memory = Path("/dev/shm")  # noqa: S108 - only if it is there
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with TemporaryDirectory(prefix="millstream-tests-", dir=place) as folder:
        yield Path(folder)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An application of two levels, two partitions and four stores; its topics exist, nothing else."""
    with World(tmp_path, "ledger", "memory") as world:
        yield world.create_topics()


@pytest.fixture
def running(world: World) -> World:
    """The same after two epochs, with a coordinator that runs and input that is left."""
    world.append(18)
    world.epoch()
    world.epoch()
    world.check()
    return world
