"""An application in a process of its own, to be killed: ``python -m tests.simulation.fault_child``.

It opens a world that its parent has made, and runs epochs until there is no more input, or until an armed
failpoint ends it. What must be true afterwards is known to the parent only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.simulation.fault_world import World

from millstream import failpoints
from millstream.durable import OS_FILES

__all__ = ["run"]


def run(
    folder: Path, name: str, backend: str, now: int, armed: str = "", snapshot_interval: int | None = None
) -> None:
    """Start a coordinator and run epochs; `armed` is as in ``MILLSTREAM_FAILPOINTS``."""
    with World(
        folder, name, backend, make_files=lambda _: OS_FILES, snapshot_interval=snapshot_interval
    ) as world:
        world.now = now
        failpoints.arm_from_environment(armed)
        while world.epoch() is not None:
            pass
        world.close()


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
