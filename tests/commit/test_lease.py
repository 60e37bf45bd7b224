"""Leases: who may commit, and how that changes hands."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import msgspec
import pytest

from millstream.durable import DamagedFileError
from millstream.runtime import lease
from millstream.runtime.application_folder import ApplicationFolder
from millstream.runtime.lease import Lease, LeaseHeldError, LeaseLostError, Owner, acquire
from millstream.runtime.process import boot_id, process_started
from millstream.types import Term

TTL_MS = 30_000
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload([lease.__name__])


@dataclass
class Clock:
    now: int = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> ApplicationFolder:
    folder = ApplicationFolder(tmp_path, "orders")
    folder.ensure()
    return folder


def take(folder: ApplicationFolder, clock: Callable[[], int]) -> Lease:
    return acquire(folder, clock=clock, ttl_ms=TTL_MS)


def replace_owner(folder: ApplicationFolder, held: Lease, **changes: object) -> Owner:
    """Let somebody else have taken the lease."""
    owner = msgspec.structs.replace(held.owner, **changes)
    path = folder.leases / f"{held.term:020d}"
    path.write_bytes(lease._CLAIM.encode(owner))
    return owner


def test_a_second_driver_is_refused_and_told_who_the_first_is(
    folder: ApplicationFolder, clock: Clock
) -> None:
    first = take(folder, clock)

    with pytest.raises(LeaseHeldError) as caught:
        take(folder, clock)

    assert str(caught.value) == (
        f"Application 'orders' is run by process {os.getpid()} on {socket.gethostname()} already. Likely cause: "
        "it was started twice. Remedy: end the other driver, or give this program another app_id. The lease of "
        "a dead driver is taken over by itself."
    )
    first.verify()


def test_a_lease_that_was_let_go_is_free_at_once(folder: ApplicationFolder, clock: Clock) -> None:
    take(folder, clock).release()

    assert take(folder, clock).term == 2


def test_a_lease_that_is_renewed_does_not_run_out(folder: ApplicationFolder, clock: Clock) -> None:
    held = take(folder, clock)
    clock.now += TTL_MS - 1
    held.renew()
    clock.now += TTL_MS - 1

    with pytest.raises(LeaseHeldError):
        take(folder, clock)


def test_a_lease_that_has_run_out_is_taken_over_and_its_owner_is_told(
    folder: ApplicationFolder, clock: Clock
) -> None:
    first = take(folder, clock)
    clock.now += TTL_MS
    second = take(folder, clock)

    with pytest.raises(LeaseLostError) as caught:
        first.verify()

    here = f"process {os.getpid()} on {socket.gethostname()}"
    assert second.term == 2
    assert str(caught.value) == (
        f"This driver of application 'orders' ({here}, term 1) was overtaken by {here} (term 2). Nothing more "
        "is committed here. Likely cause: it was stopped or cut off for longer than its lease. Remedy: end it; "
        "the other one goes on."
    )
    second.verify()


def test_a_driver_that_was_overtaken_takes_nothing_back(folder: ApplicationFolder, clock: Clock) -> None:
    first = take(folder, clock)
    clock.now += TTL_MS
    second = take(folder, clock)

    first.renew()
    first.release()

    second.verify()
    with pytest.raises(LeaseHeldError):
        take(folder, clock)


def test_the_lease_of_another_host_is_waited_for(folder: ApplicationFolder, clock: Clock) -> None:
    replace_owner(folder, take(folder, clock), host="elsewhere", pid=17)
    clock.now += TTL_MS - 1

    with pytest.raises(LeaseHeldError) as caught:
        take(folder, clock)
    assert "is run by process 17 on elsewhere already" in str(caught.value)

    clock.now += 1
    assert take(folder, clock).term == 2


def test_a_process_id_that_is_used_again_does_not_keep_a_lease(
    folder: ApplicationFolder, clock: Clock
) -> None:
    replace_owner(folder, take(folder, clock), started="long ago")

    assert take(folder, clock).term == 2


def test_a_lease_without_a_renewal_has_run_out(folder: ApplicationFolder, clock: Clock) -> None:
    take(folder, clock)
    for path in folder.leases.glob("*.renewed"):
        path.unlink()

    assert take(folder, clock).term == 2


def test_a_damaged_lease_is_named(folder: ApplicationFolder, clock: Clock) -> None:
    take(folder, clock)
    claim = folder.leases / f"{1:020d}"
    claim.write_bytes(claim.read_bytes()[:-1])

    with pytest.raises(DamagedFileError) as caught:
        take(folder, clock)

    assert str(claim) in str(caught.value)


def test_only_the_last_two_terms_are_kept(folder: ApplicationFolder, clock: Clock) -> None:
    for _ in range(5):
        take(folder, clock).release()

    assert {path.name.removesuffix(".renewed") for path in folder.leases.iterdir()} == {
        f"{term:020d}" for term in (4, 5)
    }


def test_old_terms_may_be_forgotten_by_two_at_once(
    folder: ApplicationFolder, clock: Clock, monkeypatch: pytest.MonkeyPatch
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


def die_with_the_lease(root: Path) -> None:
    take(ApplicationFolder(root, "orders"), Clock())
    os._exit(9)


def test_the_lease_of_a_dead_driver_is_taken_over_at_once(folder: ApplicationFolder, clock: Clock) -> None:
    child = CHILDREN.Process(target=die_with_the_lease, args=(folder.log_root,))
    child.start()
    child.join(60)
    assert child.exitcode == 9
    assert (folder.leases / f"{1:020d}").exists()

    assert take(folder, clock).term == 2


def race(root: Path, start: Barrier, result: Connection) -> None:
    folder = ApplicationFolder(root, "orders")
    start.wait(60)
    try:
        result.send((os.getpid(), take(folder, Clock()).term, ""))
    except LeaseHeldError as error:
        result.send((os.getpid(), None, str(error)))
    start.wait(60)  # a winner that has ended would be taken over


@pytest.mark.parametrize("attempt", range(5))
def test_of_drivers_that_race_for_a_term_one_wins(folder: ApplicationFolder, attempt: int) -> None:
    racers = 4
    start = CHILDREN.Barrier(racers)
    pipes = [CHILDREN.Pipe(duplex=False) for _ in range(racers)]
    children = [CHILDREN.Process(target=race, args=(folder.log_root, start, sender)) for _, sender in pipes]
    for child in children:
        child.start()
    results = [receiver.recv() for receiver, _ in pipes]
    for child in children:
        child.join(60)
        assert child.exitcode == 0

    winners = [pid for pid, term, _ in results if term is not None]
    assert [term for _, term, _ in results if term is not None] == [1]
    for _, term, message in results:
        assert term == 1 or f"is run by process {winners[0]} on" in message


def test_an_owner_is_known_by_process_and_start(folder: ApplicationFolder, clock: Clock) -> None:
    owner = take(folder, clock).owner

    assert (owner.pid, owner.host) == (os.getpid(), socket.gethostname())
    assert (owner.boot, owner.started) == (boot_id(), process_started(os.getpid()))
