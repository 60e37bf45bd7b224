"""Worlds with a little history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulation.fault_world import World


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
