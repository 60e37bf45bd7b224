"""Random faults in random order, each script from one seed; and the tester's own test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.testing.fault_programs import APPLICATIONS
from millstream.testing.fault_world import NoFaultError, World
from millstream.testing.faults import (
    EPOCH_POINTS,
    OPENING_POINTS,
    OPENING_STALL_SITES,
    RESTORE_POINTS,
    SEED_VARIABLE,
    SNAPSHOT_POINTS,
    STALL_SITES,
    UPKEEP_POINTS,
    Append,
    Crash,
    CrashInSnapshot,
    CrashInUpkeep,
    Epoch,
    LoseLocalState,
    PowerCut,
    Restart,
    RestoreFromSnapshots,
    Script,
    Stall,
    TakeSnapshots,
    Tend,
    TwoAttempts,
    Wake,
    Zombie,
    play,
    script,
    seeds,
)
from millstream.testing.oracle import InvariantBroken

COUNT = 20_000 if os.environ.get("MILLSTREAM_SOAK") else 300


@pytest.mark.parametrize("seed", seeds(COUNT))
def test_after_any_faults_the_application_is_the_fold_of_its_input(tmp_path: Path, seed: int) -> None:
    played = script(seed)
    print(played)

    verdict = play(played, tmp_path)

    assert verdict.records > 0
    assert verdict.outputs > 0


def test_the_scripts_have_every_kind_of_fault_at_every_place() -> None:
    scripts = [script(seed) for seed in range(300)]
    steps = [step for one in scripts for step in one.steps]
    crashes = [step for step in steps if isinstance(step, Crash)]
    stalls = [step for step in steps if isinstance(step, Stall)]

    assert {type(step) for step in steps} == {
        Append,
        Crash,
        CrashInSnapshot,
        CrashInUpkeep,
        Epoch,
        LoseLocalState,
        PowerCut,
        Restart,
        RestoreFromSnapshots,
        Stall,
        TakeSnapshots,
        Tend,
        TwoAttempts,
        Wake,
        Zombie,
    }
    assert {step.point for step in crashes if step.during == "epoch"} == set(EPOCH_POINTS)
    assert {step.point for step in crashes if step.during == "opening"} == set(OPENING_POINTS)
    in_snapshots = [step for step in steps if isinstance(step, CrashInSnapshot)]
    assert {step.point for step in in_snapshots} == {*SNAPSHOT_POINTS, *RESTORE_POINTS}
    in_upkeep = [step for step in steps if isinstance(step, CrashInUpkeep)]
    assert {step.point for step in in_upkeep} == set(UPKEEP_POINTS)
    assert {step.action for step in crashes} == {"raise", "torn-raise"}
    assert {step.then for step in crashes} == {"nothing", "look", "power cut"}
    assert {step.site for step in stalls if step.during == "epoch"} == set(STALL_SITES)
    assert {step.site for step in stalls if step.during == "opening"} == set(OPENING_STALL_SITES)
    assert {one.application for one in scripts} == set(APPLICATIONS)
    assert {one.backend for one in scripts} == {"memory", "lmdb", "rocksdb"}


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
