"""Random faults of slots, bundles and commits: every update once and in order, and stores like changelogs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.engine.faulty_slots import Faults
from tests.engine.test_resident_slots import Application
from tests.spark.lab import Lab
from tests.spark.programs import COUNTING, check_exact, every_update, words

from millstream import failpoints
from millstream.engine.api import DurableEpoch
from millstream.engine.spark.resident.slot_tasks import SlotTasks
from millstream.failpoints import InjectedCrash
from millstream.state.backends import supplier
from millstream.state.changelog.follow import position_of

SEEDS = 300 if os.environ.get("MILLSTREAM_SOAK") == "1" else 4
PARTITIONS = 4
STEPS = ("commit.checked", "commit.manifest_written", "commit.published", "commit.ended")
CRASHES = {"": 12, **dict.fromkeys(STEPS, 1)}
"""Where the coordinator breaks off, and is opened again under a new term; its slots stay."""


PROGRAMS = {"every_update": every_update, "three_levels": COUNTING["three_levels"]}
"""One with a processor, which might want the clock to tick, and one whose epochs may begin ahead."""


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_faults_of_slots_and_bundles_lose_and_repeat_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, program: str
) -> None:
    print("seed", seed)
    begin_next, begun = SlotTasks.begin_next, list[bool]()

    def noted(tasks: SlotTasks, epoch: DurableEpoch, plan: Any) -> Any:
        made = begin_next(tasks, epoch, plan)
        begun.append(made is not None)
        return made

    monkeypatch.setattr(SlotTasks, "begin_next", noted)
    faults = Faults(seed)
    faults.plant(monkeypatch)
    monkeypatch.setattr("tests.engine.slots_in_threads.MAX_RUNS", 100)
    lab = Lab(tmp_path / "lab", None)
    lab.topic("in", parts := words(300, seed=seed, partitions=PARTITIONS))
    settings = {"max_records_per_epoch": 20, "timeout_s": 1.0}
    while lab.committed() < 300:  # lives of an application, each with slots of its own
        app = Application(lab, PROGRAMS[program](), 3, **settings)
        faults.pools.append(app.engine.pool)
        app.loop.open()
        try:
            for _ in range(6):
                run_epoch(app, faults)
        finally:
            app.loop.close()
    faults.end()
    print(faults.counts, begun)
    assert faults.counts.total() > 10, "nothing has happened"
    assert any(begun) == (program == "three_levels")
    check_exact(lab, program, parts)
    check_stores(lab)


def run_epoch(app: Application, faults: Faults) -> None:
    """Perhaps the commit breaks off at a step."""
    app.loop.goes_on = True
    crash = faults.draw(CRASHES)
    if not crash:
        app.loop.run_epoch(tick=False)
        return
    try:
        with failpoints.armed(crash):
            app.loop.run_epoch(tick=False)
    except InjectedCrash:
        app.loop.release()
        app.loop.open()


def check_stores(lab: Lab) -> None:
    """What lies on disk is what the changelog says up to where the store stands, and nothing else."""
    stores = [*(lab.state_dir / "app").glob("*_*/lmdb/*")]
    assert len(stores) > PARTITIONS
    for folder in stores:
        partition = int(folder.parents[1].name.split("_")[1])
        with supplier("lmdb").open(folder) as backend:
            found, end = dict(backend.scan()), position_of(backend, folder.name).offset
        expected: dict[bytes | None, bytes | None] = {}
        for row in lab.rows(f"app-{folder.name}-changelog"):
            if row.partition == partition and row.offset < end:
                expected[row.key] = row.value
        assert found == {key: value for key, value in expected.items() if value is not None}, folder
