"""The lease: which coordinator may commit for an application.

A lease is a file per *term*, created exclusively, so two coordinators never hold one term. A coordinator
takes the next term if the last owner has let go, has died, or has not renewed in time. A coordinator that was
asleep and wakes up is not trusted to notice: whoever takes over claims the next manifest as its first act,
and manifests are created exclusively too (see commit.py). Clocks decide only how long to wait for an owner on
another machine, never who may commit.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

import msgspec

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.process import process_is_alive, process_started
from millstream.durable import (
    FrameKind,
    ensure_private_folder,
    publish_exclusive,
    read_bounded,
    replace_durably,
)
from millstream.errors import MillstreamError
from millstream.state.errors import StateInUseError
from millstream.state.local.directory import StateDirectory, boot_id, noted_log
from millstream.threads import Repeater
from millstream.types import Term

_CLAIM: Final = FrameKind(b"MSLC", version=1, max_bytes=4096)
_RENEWAL: Final = FrameKind(b"MSLR", version=1, max_bytes=4096)
_RENEWED: Final = ".renewed"
_RENEWALS_PER_TERM: Final = 4
_BEATS_PER_TTL: Final = 3


class LeaseHeldError(MillstreamError):
    """Another coordinator runs the application."""


class LeaseLostError(MillstreamError):
    """Another coordinator has taken the application over."""


class Owner(msgspec.Struct, frozen=True):
    """A coordinator process."""

    pid: int
    host: str
    boot: str
    started: str
    """When the process was started: a process id is used again, the pair is not."""
    id: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class _Renewal(msgspec.Struct, frozen=True):
    expires_ms: int


class Lease:
    """A term that this process holds."""

    def __init__(
        self,
        storage: ApplicationStorage,
        term: Term,
        owner: Owner,
        clock: Callable[[], int],
        ttl_ms: int,
        predecessor: Owner | None = None,
    ) -> None:
        self.term = term
        self.owner = owner
        self.predecessor = predecessor
        """Who held the term before and did not let go, if anybody."""
        self._storage = storage
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._renewed_ms = clock()
        self._heartbeat = Repeater(self._beat, ttl_ms / 1000 / _BEATS_PER_TTL, "millstream-heartbeat")

    def verify(self) -> None:
        """Raise if a later term exists."""
        last = _last_term(self._storage.leases)
        if last != self.term:
            owner = _read_claim(self._storage, last)
            raise LeaseLostError(
                f"This coordinator of application {self._storage.application_id!r} ({self.owner}, term "
                f"{self.term}) was overtaken by {owner} (term {last}). Nothing more is committed here. "
                "Likely cause: it was stopped or cut off for longer than its lease. Remedy: end it; the "
                "other one goes on."
            )

    def renew(self) -> None:
        """Say that the coordinator is alive, for another while."""
        now = self._clock()
        try:
            _write_renewal(self._storage, self.term, now + self._ttl_ms)
        except FileNotFoundError:
            self.verify()  # a later term has removed it
            raise
        self._renewed_ms = now

    def renew_if_due(self) -> None:
        """Renew, unless that was done lately: it costs two syncs, and an epoch may last milliseconds."""
        if self._clock() - self._renewed_ms >= self._ttl_ms // _RENEWALS_PER_TERM:
            self.renew()

    def kept_alive(self) -> AbstractContextManager[None]:
        """Renew it a few times per its length, for the length of a `with` block: a job may take longer.

        A renewal that fails is not an error here: whether the lease still holds is asked at the commit. The
        thread stays until the lease is released: an epoch may be shorter than the start of one.
        """
        return self._heartbeat

    def _beat(self) -> None:
        with suppress(OSError, MillstreamError):
            self.renew()

    def close(self) -> None:
        """End its thread, and say nothing: for who has deleted the application, leases and all."""
        self._heartbeat.close()

    def release(self) -> None:
        """Let go: the next coordinator need not wait."""
        self.close()
        _write_renewal(self._storage, self.term, 0)


def acquire(storage: ApplicationStorage, *, clock: Callable[[], int], ttl_ms: int) -> Lease:
    """Take the next term, or refuse and name the coordinator that holds the last one."""
    ensure_private_folder(storage.leases, files=storage.files)
    last = _last_term(storage.leases)
    predecessor = None
    if last:
        owner = lease_holder(storage, now_ms=clock())
        if owner is not None:
            raise _held(storage, owner)
        predecessor = _read_claim(storage, last) if _expiry(storage, last) else None
    term = Term(last + 1)
    owner = _this_process()
    try:
        # The renewal comes first, so that no claim is ever without one.
        _write_renewal(storage, term, clock() + ttl_ms)
        publish_exclusive(storage.leases / _name(term), [_CLAIM.encode(owner)], files=storage.files)
    except (FileExistsError, FileNotFoundError):  # another coordinator was first, or has even removed its own
        raise _held(storage, _read_claim(storage, _last_term(storage.leases))) from None
    _forget_before(storage, Term(term - 1))
    return Lease(storage, term, owner, clock, ttl_ms, predecessor)


def lease_holder(storage: ApplicationStorage, *, now_ms: int) -> Owner | None:
    """The coordinator that nobody may overtake now; None if a term can be had."""
    owner, expires_ms = _last_claim(storage)
    if owner is None or now_ms >= expires_ms or _has_ended(owner):
        return None
    return owner


def running_owner(storage: ApplicationStorage, *, now_ms: int) -> Owner | None:
    """The coordinator that has not let go and may be alive; None if there is none.

    One of this host may be late to renew its lease: it runs until its process ends.
    """
    owner, expires_ms = _last_claim(storage)
    if owner is None or not expires_ms or _has_ended(owner):
        return None
    return owner if _is_here(owner) or now_ms < expires_ms else None


def _last_claim(storage: ApplicationStorage) -> tuple[Owner | None, int]:
    """Who has claimed the last term, and when that ends: 0 if it was let go."""
    while last := _last_term(storage.leases) if storage.leases.is_dir() else Term(0):
        with suppress(FileNotFoundError):  # two later terms have begun since we looked
            return _read_claim(storage, last), _expiry(storage, last)
    return None, 0


def _has_ended(owner: Owner) -> bool:
    """Whether it is known that its process is gone."""
    return _is_here(owner) and not process_is_alive(owner.pid, owner.started)


def _is_here(owner: Owner) -> bool:
    return owner.host == socket.gethostname() and owner.boot == boot_id()


def _held(storage: ApplicationStorage, owner: Owner) -> LeaseHeldError:
    return LeaseHeldError(
        f"Application {storage.application_id!r} is run by {owner} already. Likely cause: it was started "
        "twice. Remedy: end the other coordinator, or give this program another app_id. The lease of a dead "
        "coordinator is taken over by itself."
    )


def _expiry(storage: ApplicationStorage, term: Term) -> int:
    path = storage.leases / (_name(term) + _RENEWED)
    try:
        data = read_bounded(path, _RENEWAL.max_bytes + 64, files=storage.files)
    except FileNotFoundError:
        return 0
    return _RENEWAL.decode(data, _Renewal, str(path)).expires_ms


def _write_renewal(storage: ApplicationStorage, term: Term, expires_ms: int) -> None:
    path = storage.leases / (_name(term) + _RENEWED)
    replace_durably(path, [_RENEWAL.encode(_Renewal(expires_ms))], files=storage.files)


def _read_claim(storage: ApplicationStorage, term: Term) -> Owner:
    path = storage.leases / _name(term)
    data = read_bounded(path, _CLAIM.max_bytes + 64, files=storage.files)
    return _CLAIM.decode(data, Owner, str(path))


def _last_term(leases: Path) -> Term:
    return Term(max((int(path.name) for path in leases.iterdir() if path.name.isdigit()), default=0))


def _forget_before(storage: ApplicationStorage, term: Term) -> None:
    """Old terms are garbage, also half written; the one before ours stays, for people who want to know."""
    for path in storage.leases.iterdir():
        number = path.name.removeprefix(".").partition(".")[0]
        if number.isdigit() and int(number) < term:
            with suppress(FileNotFoundError):  # two coordinators may remove them at once
                storage.files.unlink(path)


def _name(term: Term) -> str:
    return f"{term:020d}"


def _this_process() -> Owner:
    pid = os.getpid()
    return Owner(pid, socket.gethostname(), boot_id() or "", process_started(pid) or "", secrets.token_hex(8))


def check_not_run(
    directory: StateDirectory,
    app_id: str,
    *,
    now_ms: int,
    log_root: Path | None = None,
    us: Owner | None = None,
) -> None:
    """Refuse if a coordinator other than `us` runs it: on the log that the state notes, or on this one.

    A coordinator that starts just now is not seen, and need not be: it restores what is missing.
    """
    logs = (noted_log(directory, app_id), None if log_root is None else log_root.resolve())
    for root in filter(None, dict.fromkeys(logs)):
        coordinator = running_owner(ApplicationStorage(root, app_id), now_ms=now_ms)
        if coordinator is not None and coordinator != us:
            raise StateInUseError(
                f"The local state of application {app_id!r} in {directory.path} is in use: {coordinator} "
                f"runs the application, on the log {root}. Nothing was deleted. Remedy: close it there, or "
                "end that process. A coordinator on another host that was killed counts as running until its "
                "lease ends."
            )
