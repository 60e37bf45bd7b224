"""Many epochs with many partitions: processes, their descriptors and the files on disk do not grow."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.memory import megabytes_held
from tests.spark.lab import Lab
from tests.spark.processes import descendants
from tests.spark.programs import check_exact, two_levels, words

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(os.environ.get("MILLSTREAM_SOAK") != "1", reason="takes many minutes"),
]

EPOCHS: Final = 1_500
PARTITIONS: Final = 8
RECORDS: Final = 3
"""Per epoch and partition."""
LOOK_EVERY: Final = 11
"""Epochs. Out of step with maintenance."""
MAINTAIN_EVERY: Final = 50
GROWTH: Final = 1.15


@pytest.mark.parametrize("engine", ["jobs", "resident"])
def test_1500_epochs_leave_everything_as_it_was(lab: Lab, engine: str) -> None:
    """Compared are the most of the third quarter and of the last one: until then caches fill.

    Of a whole quarter, because there is a file per epoch until maintenance comes, which may be at work still.
    """
    parts = words(2 * EPOCHS * RECORDS * PARTITIONS, seed=71, partitions=PARTITIONS)
    parts = [part[: EPOCHS * RECORDS] for part in parts]
    lab.topic("in", [[] for _ in parts])
    held: dict[int, dict[str, float]] = {}
    settings: dict[str, Any] = {
        "engine": engine,
        "default_partitions": PARTITIONS,
        "maintenance_interval_epochs": MAINTAIN_EVERY,
    }
    with lab.app(two_levels(), **settings) as app:
        for number in range(EPOCHS):
            for partition, part in enumerate(parts):
                lab.append("in", part[number * RECORDS :][:RECORDS], partition=partition)
            app.run(until="caught-up")
            if number % LOOK_EVERY == 0:
                held[number] = _held(lab)
                print(engine, number, held[number])
    check_exact(lab, "two_levels", parts)
    quarters = [[some for number, some in held.items() if 4 * number // EPOCHS == at] for at in (2, 3)]
    middle, end = ({what: max(some[what] for some in each) for what in each[0]} for each in quarters)
    print(engine, middle, end)
    bounds = {what: GROWTH * value + 5 for what, value in middle.items()}
    bounds["files of the application"] += 2 * MAINTAIN_EVERY
    assert {what: (middle[what], value) for what, value in end.items() if value > bounds[what]} == {}


def _held(lab: Lab) -> dict[str, float]:
    """Megabytes, descriptors and files; those of topics hold what was written, and are not counted."""
    state = sum(1 for path in lab.state_dir.rglob("*") if path.is_file())
    applications = sum(1 for path in (lab.folder / "log" / "applications").rglob("*") if path.is_file())
    family = [os.getpid(), *descendants(os.getpid())]
    return {
        **megabytes_held(),
        "descriptors": sum(map(_descriptors, family)),
        "processes": len(family),
        "files of state": state,
        "files of the application": applications,
    }


def _descriptors(pid: int) -> int:
    with suppress(OSError):
        return len([*Path(f"/proc/{pid}/fd").iterdir()])
    return 0
