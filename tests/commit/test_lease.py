"""Leases: who may commit, and how that changes hands."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from millstream.commit import lease
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.lease import (
    Lease,
    LeaseHeldError,
    LeaseLostError,
    Owner,
    acquire,
    lease_holder,
    running_owner,
)
from millstream.commit.process import process_started
from millstream.durable import DamagedFileError
from millstream.state.local.directory import boot_id
from millstream.types import Term

TTL_MS = 30_000


@dataclass
class Clock:
    now: int = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> ApplicationStorage:
    folder = ApplicationStorage(tmp_path, "orders")
    folder.ensure()
    return folder


def take(folder: ApplicationStorage, clock: Callable[[], int]) -> Lease:
    return acquire(folder, clock=clock, ttl_ms=TTL_MS)


def replace_owner(folder: ApplicationStorage, held: Lease, **changes: object) -> Owner:
    """Let somebody else have taken the lease."""
    owner = msgspec.structs.replace(held.owner, **changes)
    path = folder.leases / f"{held.term:020d}"
    path.write_bytes(lease._CLAIM.encode(owner))
    return owner


def test_a_second_coordinator_is_refused_and_told_who_the_first_is(
    folder: ApplicationStorage, clock: Clock
) -> None:
    first = take(folder, clock)

    with pytest.raises(LeaseHeldError) as caught:
        take(folder, clock)

    assert str(caught.value) == (
        f"Application 'orders' is run by process {os.getpid()} on {socket.gethostname()} already. Likely "
        "cause: it was started twice. Remedy: end the other coordinator, or give this program another "
        "app_id. The lease of a dead coordinator is taken over by itself."
    )
    first.verify()


def test_a_lease_that_was_let_go_is_free_at_once(folder: ApplicationStorage, clock: Clock) -> None:
    take(folder, clock).release()

    assert take(folder, clock).term == 2


def test_a_lease_that_is_renewed_does_not_run_out(folder: ApplicationStorage, clock: Clock) -> None:
    held = take(folder, clock)
    clock.now += TTL_MS - 1
    held.renew()
    clock.now += TTL_MS - 1

    with pytest.raises(LeaseHeldError):
        take(folder, clock)


def test_a_lease_is_renewed_only_now_and_then(folder: ApplicationStorage, clock: Clock) -> None:
    held = take(folder, clock)
    (renewal,) = folder.leases.glob("*.renewed")
    first = renewal.read_bytes()
    clock.now += TTL_MS // 4 - 1
    held.renew_if_due()
    assert renewal.read_bytes() == first

    clock.now += 1
    held.renew_if_due()
    assert renewal.read_bytes() != first
    clock.now += TTL_MS - 1
    with pytest.raises(LeaseHeldError):
        take(folder, clock)


def test_a_lease_that_has_run_out_is_taken_over_and_its_owner_is_told(
    folder: ApplicationStorage, clock: Clock
) -> None:
    first = take(folder, clock)
    clock.now += TTL_MS
    second = take(folder, clock)

    with pytest.raises(LeaseLostError) as caught:
        first.verify()

    here = f"process {os.getpid()} on {socket.gethostname()}"
    assert second.term == 2
    assert str(caught.value) == (
        f"This coordinator of application 'orders' ({here}, term 1) was overtaken by {here} (term 2). "
        "Nothing more is committed here. Likely cause: it was stopped or cut off for longer than its lease. "
        "Remedy: end it; the other one goes on."
    )
    second.verify()


def test_a_coordinator_that_was_overtaken_takes_nothing_back(
    folder: ApplicationStorage, clock: Clock
) -> None:
    first = take(folder, clock)
    clock.now += TTL_MS
    second = take(folder, clock)

    first.renew()
    first.release()

    second.verify()
    with pytest.raises(LeaseHeldError):
        take(folder, clock)


def test_the_lease_of_another_host_is_waited_for(folder: ApplicationStorage, clock: Clock) -> None:
    replace_owner(folder, take(folder, clock), host="elsewhere", pid=17)
    clock.now += TTL_MS - 1

    with pytest.raises(LeaseHeldError) as caught:
        take(folder, clock)
    assert "is run by process 17 on elsewhere already" in str(caught.value)

    clock.now += 1
    assert take(folder, clock).term == 2


def test_a_process_id_that_is_used_again_does_not_keep_a_lease(
    folder: ApplicationStorage, clock: Clock
) -> None:
    replace_owner(folder, take(folder, clock), started="long ago")

    assert take(folder, clock).term == 2


def test_a_lease_without_a_renewal_has_run_out(folder: ApplicationStorage, clock: Clock) -> None:
    take(folder, clock)
    for path in folder.leases.glob("*.renewed"):
        path.unlink()

    assert take(folder, clock).term == 2


def test_a_damaged_lease_is_named(folder: ApplicationStorage, clock: Clock) -> None:
    take(folder, clock)
    claim = folder.leases / f"{1:020d}"
    claim.write_bytes(claim.read_bytes()[:-1])

    with pytest.raises(DamagedFileError) as caught:
        take(folder, clock)

    assert str(claim) in str(caught.value)


def test_only_the_last_two_terms_are_kept(folder: ApplicationStorage, clock: Clock) -> None:
    for _ in range(5):
        take(folder, clock).release()

    assert {path.name.removesuffix(".renewed") for path in folder.leases.iterdir()} == {
        f"{term:020d}" for term in (4, 5)
    }


def test_old_terms_may_be_forgotten_by_two_at_once(
    folder: ApplicationStorage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        take(folder, clock).release()
    held = take(folder, clock)
    everything = list(folder.leases.iterdir())
    held.release()
    take(folder, clock).release()
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(everything))

    lease._forget_before(folder, Term(9))

    monkeypatch.undo()
    assert {path.name[:20] for path in folder.leases.iterdir()} == {f"{4:020d}"}


def test_who_runs_an_application_is_known_until_it_lets_go(folder: ApplicationStorage, clock: Clock) -> None:
    assert running_owner(ApplicationStorage(folder.root, "never-run"), now_ms=clock()) is None
    assert running_owner(folder, now_ms=clock()) is None
    held = take(folder, clock)
    assert running_owner(folder, now_ms=clock()) == held.owner
    assert running_owner(folder, now_ms=clock() + TTL_MS) == held.owner, "late, but its process is there"
    held.release()
    assert running_owner(folder, now_ms=clock()) is None


def test_whoever_waits_may_overtake_a_coordinator_whose_lease_has_ended(
    folder: ApplicationStorage, clock: Clock
) -> None:
    """Though its process is there: it may stand still for ever."""
    assert lease_holder(folder, now_ms=clock()) is None
    held = take(folder, clock)
    assert lease_holder(folder, now_ms=clock() + TTL_MS - 1) == held.owner
    assert lease_holder(folder, now_ms=clock() + TTL_MS) is None
    replace_owner(folder, held, started="long ago")
    assert lease_holder(folder, now_ms=clock()) is None


def test_a_coordinator_elsewhere_runs_an_application_until_its_lease_ends(
    folder: ApplicationStorage, clock: Clock
) -> None:
    owner = replace_owner(folder, take(folder, clock), host="elsewhere")
    assert running_owner(folder, now_ms=clock() + TTL_MS - 1) == owner
    assert running_owner(folder, now_ms=clock() + TTL_MS) is None


def test_a_dead_coordinator_runs_nothing(folder: ApplicationStorage, clock: Clock) -> None:
    replace_owner(folder, take(folder, clock), started="long ago")
    assert running_owner(folder, now_ms=clock()) is None


def test_who_runs_an_application_is_found_while_it_changes_hands(
    folder: ApplicationStorage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(folder, clock).release()
    read = lease._read_claim
    last: list[Lease] = []

    def others_come_first(folder: ApplicationStorage, term: Term) -> Owner:
        monkeypatch.undo()
        for _ in range(2):
            take(folder, clock).release()
        last.append(take(folder, clock))
        return read(folder, term)

    monkeypatch.setattr(lease, "_read_claim", others_come_first)
    assert running_owner(folder, now_ms=clock()) == last[0].owner


DRIVER = """
import os, pathlib, sys
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.lease import LeaseHeldError, acquire
print("ready", flush=True)
for line in sys.stdin:
    folder = ApplicationStorage(pathlib.Path(sys.argv[1]), line.strip())
    try:
        print("won", acquire(folder, clock=lambda: 1_000_000, ttl_ms=30_000).term, flush=True)
    except LeaseHeldError as error:
        print(error, flush=True)
"""


@contextmanager
def coordinator(folder: ApplicationStorage) -> Iterator[subprocess.Popen[str]]:
    """A process that takes the lease of each application that it is told of."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", DRIVER, str(folder.root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert answer(process) == "ready"
        yield process
        process.kill()


def tell(process: subprocess.Popen[str], application: str) -> None:
    assert process.stdin is not None
    process.stdin.write(application + "\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_lease_of_a_killed_coordinator_is_taken_over_at_once(
    folder: ApplicationStorage, clock: Clock
) -> None:
    with coordinator(folder) as other:
        tell(other, "orders")
        assert answer(other) == "won 1"
        with pytest.raises(LeaseHeldError) as caught:
            take(folder, clock)
    assert f"is run by process {other.pid} on" in str(caught.value)

    assert take(folder, clock).term == 2


def test_of_two_coordinators_that_race_for_a_term_one_wins(folder: ApplicationStorage) -> None:
    wins: set[int] = set()
    with coordinator(folder) as one, coordinator(folder) as two:
        for number in range(20):
            application = f"orders-{number}"
            ApplicationStorage(folder.root, application).ensure()
            for process in (one, two):
                tell(process, application)
            answers = {process.pid: answer(process) for process in (one, two)}
            (winner,) = (pid for pid, text in answers.items() if text == "won 1")
            (loser,) = (text for text in answers.values() if text != "won 1")
            assert f"Application '{application}' is run by process {winner} on" in loser
            wins.add(winner)
    assert wins <= {one.pid, two.pid}


def test_an_owner_is_known_by_process_and_start(folder: ApplicationStorage, clock: Clock) -> None:
    owner = take(folder, clock).owner

    assert (owner.pid, owner.host) == (os.getpid(), socket.gethostname())
    assert (owner.boot, owner.started) == (boot_id(), process_started(os.getpid()))


def heartbeats() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "millstream-heartbeat"}


def test_one_thread_keeps_it_alive_through_all_epochs_until_it_is_released(
    folder: ApplicationStorage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed, before = threading.Event(), heartbeats()  # of others, who may end meanwhile
    monkeypatch.setattr(Lease, "renew", lambda _: renewed.set())
    held = acquire(folder, clock=clock, ttl_ms=3)
    for _ in range(3):
        with held.kept_alive():
            assert renewed.wait(60)
            assert len(heartbeats() - before) == 1
        renewed.clear()
    held.release()
    assert heartbeats() <= before
