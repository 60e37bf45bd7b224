"""Locks between processes that a dead owner can't keep.

A lock is ``flock`` on a file that is never deleted: the kernel releases it when its owner dies, however it
dies, so a dead owner's lock is free at once. The file holds the owner's process id, for messages only.
Waiting is bounded, and whoever waits in vain is told who holds the lock. Two threads of one process exclude
each other, too.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

from millstream.durable.actions import raise_named
from millstream.durable.errors import LockTimeoutError, UnsuitableStorageError
from millstream.durable.layer import FILE_MODE

_FIRST_WAIT_S: Final = 0.0005
_LONGEST_WAIT_S: Final = 0.02
_OWNER_BYTES: Final = 32


class held_lock:  # noqa: N801 - a function to whoever uses it
    """Hold the lock file ``path`` (created if missing) for the length of a ``with`` block."""

    __slots__ = ("_fd", "_path", "_timeout_ms")

    def __init__(self, path: Path, *, timeout_ms: int) -> None:
        self._path = path
        self._timeout_ms = timeout_ms
        self._fd = -1

    def __enter__(self) -> None:
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise_named(self._path, error)
            raise
        try:
            _acquire(fd, self._path, self._timeout_ms)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        try:
            owner = b"%-*d" % (_OWNER_BYTES, os.getpid())
            # Written only if it is not there yet: else each lock that is taken would be a page to be synced.
            if os.pread(fd, _OWNER_BYTES, 0) != owner:
                os.pwrite(fd, owner, 0)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            # Not left to close(): a child forked meanwhile shares the descriptor and would keep the lock.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            os.close(self._fd)


def _acquire(fd: int, path: Path, timeout_ms: int) -> None:
    deadline: float | None = None
    wait = _FIRST_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            deadline = now + timeout_ms / 1000 if deadline is None else deadline
            if now >= deadline:
                raise LockTimeoutError(_still_held(fd, path, timeout_ms)) from None
        except OSError as error:
            raise UnsuitableStorageError(
                f"The storage of {path} cannot lock files ({error.strerror}). Likely cause: a network share "
                "with locks switched off. Remedy: put the folder on a local disk, or switch locks on."
            ) from error
        else:
            return
        time.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT_S)


def _still_held(fd: int, path: Path, timeout_ms: int) -> str:
    owner = os.pread(fd, _OWNER_BYTES, 0).decode(errors="replace").strip() or "unknown"
    return (
        f"{path} is locked by process {owner} and was not released within {timeout_ms} ms. Likely cause: "
        "that process is stopped, or works on a very slow disk. Remedy: wait for it or end it; a lock needs "
        "no clean-up, it is free as soon as its owner is gone."
    )
