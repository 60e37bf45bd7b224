"""An application is killed with its whole process tree, and goes on without losing or repeating anything."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.spark.join_program import OUTPUTS, fill, outputs, unharmed
from tests.spark.judge import Trial
from tests.spark.lab import Lab
from tests.spark.processes import Child, alive, descendants, until
from tests.spark.programs import check_exact, words

pytestmark = pytest.mark.xdist_group("spark")

SOAK = os.environ.get("MILLSTREAM_SOAK") == "1"
KILLED = -9
LONG_LEASE_MS = 600_000
LONGEST_START_S = 8.0

# The ten steps of the commit, and how many hits pass before the kill: so that every run gets further.
STEPS = {
    "commit.fenced": 0,  # 1
    "commit.planned": 1,  # 2
    "commit.opened": 2,  # 3
    "commit.processed": 2,  # 4
    "commit.sealed": 2,  # 5
    "commit.reported": 2,  # 6
    "commit.manifest_written": 2,  # 7
    "commit.published": 2,  # 8
    "commit.ended": 1,  # 9
    "commit.store_applied": 2,  # 10: when the next epoch opens the stores
}
FEW_STEPS = (
    "commit.opened",
    "commit.sealed",
    "commit.manifest_written",
    "commit.published",
    "commit.store_applied",
)
"""Those between which something becomes durable. In one process all are tried in tests/commit."""
MORE_STEPS = {"commit.leased": 0, "commit.checked": 1, "commit.witness_written": 2}
WORKER_STEPS = {
    "commit.opened",
    "commit.processed",
    "commit.sealed",
    "commit.reported",
    "commit.store_applied",
}


@pytest.mark.parametrize("name", ["ledger", "stock", "word count"] if SOAK else ["ledger"])
def test_the_whole_tree_killed_at_each_step_of_the_commit_is_resumed_exactly(
    bare_lab: Lab, name: str
) -> None:
    """Judged by the oracle after each kill, and at the end: everything once, in order, and nothing else."""
    trial = Trial(bare_lab, name, records=500, seed=1)
    settings: dict[str, Any] = {"max_records_per_epoch": 12, "lease_ttl_ms": LONG_LEASE_MS}
    progress = []
    steps = {**STEPS, **MORE_STEPS} if SOAK else {step: STEPS[step] for step in FEW_STEPS}
    for step, skip in steps.items():
        _kill_tree_at(step, skip, bare_lab, name, settings)
        progress.append(trial.check(settled=False).records)
    assert progress == sorted(progress)
    assert 0 < progress[-1] < trial.records, "the input was finished before the last kill"
    with Child(bare_lab, name, lease_ttl_ms=LONG_LEASE_MS) as child:
        assert child.wait() == 0, child.said()
    trial.check_all()


def _kill_tree_at(step: str, skip: int, lab: Lab, name: str, settings: dict[str, Any]) -> None:
    """Driver, JVM, daemon and workers. A driver ends itself at the step; a worker stands still and waits."""
    if step in WORKER_STEPS:
        with Child(lab, name, worker_failpoints=f"{step}=stop@{skip}", **settings) as child:
            child.wait_for_a_stopped_worker()
            child.kill()
    else:
        with Child(lab, name, failpoints=f"{step}=kill@{skip}", **settings) as child:
            assert child.wait() == KILLED, f"{step} was not reached:\n{child.said()}"


@pytest.mark.parametrize("program", ["one_level", "three_levels"] if SOAK else ["three_levels"])
def test_kills_at_random_times_lose_and_repeat_nothing(bare_lab: Lab, program: str) -> None:
    chosen, seed = _chosen()
    records, kills = (1_000_000, 100) if SOAK else (40_000, 2)
    parts = words(records, seed=seed)
    bare_lab.topic("in", parts)
    settings: dict[str, Any] = {
        "max_records_per_epoch": records // (10 * kills),
        "lease_ttl_ms": LONG_LEASE_MS,
    }
    _kill_at_random(bare_lab, program, records, kills, chosen, settings)
    with Child(bare_lab, program, lease_ttl_ms=LONG_LEASE_MS) as child:
        assert child.wait() == 0, child.said()
    check_exact(bare_lab, program, parts)


@pytest.mark.parametrize("engine", ["jobs", "resident"] if SOAK else ["resident"])
def test_workers_and_trees_killed_at_random_times_lose_and_repeat_no_update(
    bare_lab: Lab, engine: str
) -> None:
    """Every update of every key, in order: of a table, of a table of it, and of a processor with a store.

    One kill in four is of everything; half of these of the driver alone, and the others end by themselves.
    """
    chosen, seed = _chosen()
    records, worker_kills, tree_kills = (500_000, 30, 10) if SOAK else (20_000, 3, 1)
    kills = ["worker"] * worker_kills + ["tree", "driver"] * (tree_kills // 2) + ["driver"] * (tree_kills % 2)
    chosen.shuffle(kills)
    parts = words(records, seed=seed)
    bare_lab.topic("in", parts)
    settings: dict[str, Any] = {
        "engine": engine,
        "max_records_per_epoch": records // (40 * len(kills)),
        "lease_ttl_ms": LONG_LEASE_MS,
    }
    child, tries = Child(bare_lab, "every_update", **settings), 1
    for number, kill in enumerate(kills):
        goal = int(records * (number + chosen.uniform(0, 0.5))) // (len(kills) + 1)
        with ExitStack() as on_failure:
            on_failure.callback(child.kill)
            child.wait_for(lambda goal=goal: bare_lab.committed() > goal, f"{goal} are committed")  # type: ignore[misc]
            time.sleep(chosen.uniform(0, 0.1))
            assert bare_lab.committed() < records, "the input was finished before the kill"
            if kill == "worker":
                child.wait_for(lambda: bool(child.workers()), "there are workers")  # noqa: B023
                with suppress(AssertionError, ProcessLookupError):  # it may have ended by itself
                    child.kill_one(chosen.choice(child.workers()))
                on_failure.pop_all()
                continue
            family = descendants(child.pid)
            if kill == "driver":
                child.signal(signal.SIGKILL)
                until(lambda: not alive(family), "all that the driver has started has ended")  # noqa: B023
            child.kill()
            on_failure.pop_all()
        child, tries = Child(bare_lab, "every_update", **settings), tries + 1
    with child:
        assert child.wait() == 0, child.said()
    print(f"{engine}: {worker_kills} workers and {tree_kills} trees killed, {tries} applications")
    check_exact(bare_lab, "every_update", parts)


def test_joins_of_every_kind_killed_at_random_times_give_what_they_give_unharmed(
    bare_lab: Lab, tmp_path: Path
) -> None:
    """Row by row, in all topics and changelogs: every pair once, and every record without a partner once."""
    chosen, seed = _chosen()
    records, kills = (300_000, 30) if SOAK else (50_000, 2)
    settings: dict[str, Any] = {
        "max_records_per_epoch": records // (10 * kills),
        "lease_ttl_ms": LONG_LEASE_MS,
    }
    quiet = Lab(tmp_path / "unharmed", None)
    fill(quiet, records, seed=seed)
    fill(bare_lab, records, seed=seed)
    _kill_at_random(bare_lab, "one_of_each_join", records, kills, chosen, settings)
    with Child(bare_lab, "one_of_each_join", **settings) as child:
        assert child.wait() == 0, child.said()
    expected = unharmed(quiet, **settings)
    assert {topic: len(expected[topic]) > records // 100 for topic in OUTPUTS} == dict.fromkeys(OUTPUTS, True)
    assert outputs(bare_lab) == expected


def _chosen() -> tuple[random.Random, int]:
    """Draws from a seed that a failed test shows."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed), seed


def _kill_at_random(
    lab: Lab, program: str, records: int, kills: int, chosen: random.Random, settings: dict[str, Any]
) -> None:
    for number in range(kills):
        share = records // (kills + 2)  # enough is left after the last one
        share_end = share * (number + 1)
        target = chosen.randrange(share * number, share_end)
        with Child(lab, program, **settings) as child:
            longest_s = LONGEST_START_S
            if not number % 2:
                child.wait_for(lambda goal=target: lab.committed() > goal, f"{target} are committed")  # type: ignore[misc]
                longest_s = 0.5
            end = time.monotonic() + chosen.uniform(0, longest_s)
            while time.monotonic() < end and lab.committed() < share_end:  # else the next comes too late
                time.sleep(0.02)
            assert child.is_running(), child.said()
            child.kill()
        assert lab.committed() < records, "the input was finished before the kill"
