"""Who may run an application: one coordinator at a time, and one that was overtaken changes nothing."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.fault_programs import APPLICATIONS
from tests.spark.judge import Trial
from tests.spark.lab import Lab, about_jobs
from tests.spark.processes import Child, is_stopped, processes, until
from tests.spark.programs import check_exact, one_level, two_levels, words

from millstream import State, StreamsBuilder, serdes
from millstream.commit.lease import LeaseHeldError
from millstream.log.embedded.partition import LOCK

pytestmark = pytest.mark.xdist_group("spark")

ROUNDS = 10 if os.environ.get("MILLSTREAM_SOAK") == "1" else 1


def test_a_second_coordinator_is_refused_and_told_who_the_first_is(lab: Lab) -> None:
    lab.topic("in", words(20, seed=5))
    with lab.app(one_level()) as first:
        first.run(until="caught-up")
        with lab.app(one_level()) as second:
            with pytest.raises(LeaseHeldError) as refusal:
                second.run(until="caught-up")
            assert f"is run by process {os.getpid()} on " in str(refusal.value)
            assert second.state is State.ERROR
        assert first.state is State.RUNNING
        first.run(until="caught-up")


def test_a_coordinator_that_closed_is_followed_at_once(lab: Lab) -> None:
    lab.topic("in", parts := words(20, seed=6))
    lab.run(one_level(), lease_ttl_ms=600_000)
    lab.run(one_level(), lease_ttl_ms=600_000)
    check_exact(lab, "one_level", parts)


def test_a_killed_coordinator_is_followed_by_the_process_that_waits(bare_lab: Lab) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    chance, parts = random.Random(seed), words(1_000 * (ROUNDS + 1), seed=seed)
    bare_lab.topic("in", [[] for _ in parts])
    fed = [0 for _ in parts]

    def feed(count: int) -> int:
        for number, part in enumerate(parts):
            more = part[fed[number] : fed[number] + count]
            bare_lab.append("in", more, partition=number)
            fed[number] += len(more)
        return sum(fed)

    settings: dict[str, Any] = {"engine": "resident", "max_records_per_epoch": 20, "until_caught_up": False}
    with ExitStack() as processes:
        running = processes.enter_context(Child(bare_lab, "two_levels", **settings))
        for _ in range(ROUNDS):
            goal = feed(200)
            wait_for_commit(bare_lab, running, goal)
            waiting = processes.enter_context(Child(bare_lab, "two_levels", standby=True, **settings))
            wait_until_said(waiting, "created -> rebalancing")
            before, goal = goal + chance.randrange(200), feed(200)
            wait_for_commit(bare_lab, running, before)
            running.signal(signal.SIGKILL)
            assert "-> running" not in waiting.said(), "the first one lived"
            running.wait()
            wait_for_commit(bare_lab, waiting, goal)
            wait_until_said(waiting, "rebalancing -> running")
            running = waiting
        check_exact(bare_lab, "two_levels", [part[:count] for part, count in zip(parts, fed, strict=True)])


def wait_for_commit(lab: Lab, child: Child, records: int) -> None:
    child.wait_for(lambda: lab.committed() >= records, f"{records} records are committed")


def wait_until_said(child: Child, words: str) -> None:
    child.wait_for(lambda: words in child.said(), words)


def test_a_coordinator_that_was_stopped_and_overtaken_changes_nothing_and_says_so(lab: Lab) -> None:
    parts = words(2_000, seed=7)
    lab.topic("in", parts)
    with Child(lab, "two_levels", max_records_per_epoch=50, lease_ttl_ms=1_000) as first:
        first.wait_for(lambda: lab.committed() > 100, "some records are committed")
        until(lambda: _stops_without_locks(lab, first), "it stands still and holds nobody up")
        assert lab.committed() < 2_000, "the input was finished before the stop"
        until(lambda: _takes_over(lab), "the lease runs out")
        check_exact(lab, "two_levels", parts)
        before = lab.everything()
        first.signal(signal.SIGCONT)
        assert first.wait() != 0
        assert "was overtaken by process" in first.said()
        assert lab.everything() == before


@about_jobs  # a slot ends with its parent, so none is left over
def test_a_worker_that_was_stopped_in_its_seal_and_overtaken_changes_nothing(lab: Lab) -> None:
    """Its driver and its JVM are dead; the tasks of its epoch are run by others; then it wakes up."""
    trial = Trial(lab, "ledger", records=500, seed=8)
    settings: dict[str, Any] = {"max_records_per_epoch": 12, "lease_ttl_ms": 600_000}
    files_of_new_stores = 16  # at most; from then on a worker writes sealed files only
    steps = ("durable.file_written", "durable.file_synced")
    stops = ",".join(f"{step}=stop@{files_of_new_stores}" for step in steps)
    with Child(lab, "ledger", worker_failpoints=stops, **settings) as first:
        worker = first.wait_for_a_stopped_worker()
        sealing = _open_below(lab.folder / "log", worker)
        assert len(sealing) == 1, "it does not stand in its seal"
        first.kill_all_but(worker)
        assert lab.committed() < trial.records, "the input was finished before the stop"
        lab.run(APPLICATIONS["ledger"].build(), **settings)
        trial.check_all()
        before, files = lab.everything(), lab.files()
        assert is_stopped(worker)
        os.kill(worker, signal.SIGCONT)
        until(lambda: is_stopped(worker) and not _open_below(lab.folder / "log", worker), "the seal is whole")
        os.kill(worker, signal.SIGCONT)
        until(lambda: worker not in processes(), "the end of the worker")
    trial.check_all()
    assert lab.everything() == before
    after = lab.files()
    assert {path: after.get(path) for path in files} == files
    garbage = {*sealing, *(after.keys() - files.keys())}
    assert all(path.startswith("sealed/") for path in garbage)
    assert not garbage & set(lab.log.references())


def _open_below(folder: Path, pid: int) -> list[str]:
    """The files in a folder that a process has open."""
    links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    return [path.relative_to(folder).as_posix() for path in links if path.is_relative_to(folder)]


def _stops_without_locks(lab: Lab, child: Child) -> bool:
    """Stop a process; not while it has a partition locked, for that keeps everybody from it."""
    child.signal(signal.SIGSTOP)
    until(lambda: is_stopped(child.pid), "it stands still")
    if any(Path(file).name == LOCK for file in _open_below(lab.folder / "log", child.pid)):
        child.signal(signal.SIGCONT)
        return False
    return True


def _takes_over(lab: Lab) -> bool:
    try:
        lab.run(two_levels(), lease_ttl_ms=1_000)
    except LeaseHeldError:
        time.sleep(0.1)
        return False
    return True


def test_an_epoch_may_take_longer_than_the_lease_lasts(lab: Lab) -> None:
    lab.topic("in", [[("a", "x")]])
    folder = lab.folder

    def wait(value: str) -> str:
        until((folder / "go").exists, "the test says go")
        return value

    builder = StreamsBuilder()
    builder.stream("in", value=serdes.string).map_values(wait).to("out")
    with lab.app(builder.build(), lease_ttl_ms=3_000) as first:
        first.start()
        until(lambda: first.state is State.RUNNING, "the first runs")
        lease, began = first._loop.coordinator.lease, time.monotonic()
        until(lambda: time.monotonic() > began + 1.5 * 3.0, "the lease would have run out")
        with lab.app(builder.build()) as second, pytest.raises(LeaseHeldError):
            second.run(until="caught-up")
        (folder / "go").touch()
        until(lambda: len(lab.rows("out")) == 1, "the epoch is published")
        lease.verify()
    assert first.error is None
