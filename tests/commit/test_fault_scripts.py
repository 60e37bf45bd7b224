"""Random faults in random order, each script from one seed; and the tester's own test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
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
    CrashInMaintenance,
    CrashInSnapshot,
    Epoch,
    Expire,
    LoseLocalState,
    Maintain,
    PowerCut,
    Restart,
    RestoreFromSnapshots,
    Stall,
    StallInMaintenance,
    TakeSnapshots,
    TwoAttempts,
    Wake,
    Zombie,
)
from tests.simulation.fault_world import NoFaultError, World
from tests.simulation.faults import SEED_VARIABLE, Script, play, script, scripted_world, seeds
from tests.simulation.oracle import InvariantBroken

COUNT = 20_000 if os.environ.get("MILLSTREAM_SOAK") else 100


@pytest.mark.parametrize("seed", seeds(COUNT))
def test_after_any_faults_the_application_is_the_fold_of_its_input(tmp_path: Path, seed: int) -> None:
    played = script(seed)
    print(played)

    verdict = play(played, tmp_path)

    assert verdict.records > 0
    assert verdict.outputs > 0


@pytest.mark.parametrize("seed", [1469, 1530, 700_021])
def test_scripts_that_once_failed_pass(tmp_path: Path, seed: int) -> None:
    """The first two: a changelog's entry of which everything had expired was compacted again.

    The third: local state was there to clean up, but no task had committed, so nobody followed any.
    """
    play(script(seed), tmp_path)


def test_the_scripts_have_every_kind_of_fault_at_every_place() -> None:
    scripts = [script(seed) for seed in range(300)]
    steps = [step for one in scripts for step in one.steps]
    crashes = [step for step in steps if isinstance(step, Crash)]
    stalls = [step for step in steps if isinstance(step, Stall)]

    assert {type(step) for step in steps} == {
        Append,
        CleanUp,
        Compact,
        Crash,
        CrashInSnapshot,
        CrashInMaintenance,
        Epoch,
        Expire,
        LoseLocalState,
        PowerCut,
        Restart,
        RestoreFromSnapshots,
        Stall,
        StallInMaintenance,
        TakeSnapshots,
        Maintain,
        TwoAttempts,
        Wake,
        Zombie,
    }
    assert {step.point for step in crashes if step.during == "epoch"} == {*EPOCH_POINTS, *LMDB_POINTS}
    assert {step.point for step in crashes if step.during == "opening"} == set(OPENING_POINTS)
    in_snapshots = [step for step in steps if isinstance(step, CrashInSnapshot)]
    assert {step.point for step in in_snapshots} == {*SNAPSHOT_POINTS, *RESTORE_POINTS}
    in_maintenance = [step for step in steps if isinstance(step, CrashInMaintenance)]
    assert {step.point for step in in_maintenance} == set(MAINTENANCE_POINTS)
    in_maintenance_stalls = [step for step in steps if isinstance(step, StallInMaintenance)]
    assert {step.site for step in in_maintenance_stalls} == set(MAINTENANCE_STALL_SITES)
    restores = [step for step in steps if isinstance(step, RestoreFromSnapshots)]
    assert {step.snapshots for step in restores} == {"whole", "harmed", "manifest torn"}
    clean_ups = [step for step in steps if isinstance(step, CleanUp)]
    assert {step.how for step in clean_ups} == {"by hand", "crash", "elsewhere"}
    assert {step.beside_an_epoch for step in steps if isinstance(step, Maintain)} == {True, False}
    assert {step.action for step in crashes} == {"raise", "torn-raise"}
    assert {step.then for step in crashes} == {"nothing", "look", "power cut"}
    assert {step.site for step in stalls if step.during == "epoch"} == set(STALL_SITES)
    assert {step.site for step in stalls if step.during == "opening"} == set(OPENING_STALL_SITES)
    assert {one.application for one in scripts} == set(APPLICATIONS)
    assert {one.backend for one in scripts} == {"memory", "lmdb", "rocksdb"}
    by_key = [one for one in scripts if one.sorted_rows is not None]
    assert {one.application for one in by_key} == set(APPLICATIONS)
    assert 0 < len(by_key) < len(scripts)


@pytest.mark.parametrize("application", APPLICATIONS)
def test_what_keeps_state_small_really_removes_things(tmp_path: Path, application: str) -> None:
    with scripted_world(Script(1, application, "memory", ()), tmp_path).create_topics() as world:
        for _ in range(2):
            Compact().do(world)
            if world.program().segmented:
                Expire().do(world)
        facts = world.facts()
        world.check_to_the_end()

    assert facts.kept is not None
    assert len(facts.kept) < len(facts.manifests)
    named = {entry["file"] for manifest in facts.manifests for entry in manifest["tasks"].values()}
    assert named - facts.sealed.keys()
    assert any(held.start for partitions in facts.outputs_now.values() for held in partitions)
    gone = [
        row
        for store, partitions in facts.changelogs_now.items()
        for number, held in enumerate(partitions)
        for offset, row in enumerate(facts.changelogs[store][number])
        if offset not in held.rows
    ]
    assert gone
    if application in ("stock", "inventory"):
        assert any(value is None for _, value, _ in gone), "tombstones"
    if application == "inventory":
        held = facts.changelogs_now["items"]
        assert any(len(held[n].rows) < len(rows) for n, rows in enumerate(facts.changelogs["items"]))


def test_a_seed_always_gives_the_same_script() -> None:
    assert [script(seed) for seed in range(50)] == [script(seed) for seed in range(50)]


def test_the_environment_names_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEED_VARIABLE, raising=False)
    assert list(seeds(3)) == [0, 1, 2]

    monkeypatch.setenv(SEED_VARIABLE, "41")
    assert list(seeds(3)) == [41]


def test_a_script_that_fails_says_how_to_play_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: World) -> None:
        raise InvariantBroken("I1: all is lost")

    monkeypatch.setattr(World, "check", broken)

    with pytest.raises(InvariantBroken) as caught:
        play(script(17), tmp_path)

    (note,) = caught.value.__notes__
    assert note.startswith("seed 17: ")
    assert note.endswith("again: MILLSTREAM_SEED=17 pytest tests/commit/test_fault_scripts.py")


def test_a_fault_that_does_not_happen_fails_the_script(tmp_path: Path) -> None:
    never = Script(
        seed=1,
        application="ledger",
        backend="memory",
        steps=(Crash("epoch", "log.start_moved", "raise", skip=0, then="nothing"),),
    )

    with pytest.raises(NoFaultError) as caught:
        play(never, tmp_path)

    assert str(caught.value) == "log.start_moved ended nothing in 2 epochs"


def test_a_fault_after_the_end_of_the_input_fails_the_script(world: World) -> None:
    world.append(3)
    world.finish()

    with pytest.raises(NoFaultError) as caught:
        world.lose_local_state()

    assert str(caught.value) == "all input was committed before the fault (lost local state)"
