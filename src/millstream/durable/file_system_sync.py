"""One sync for many files: all that was ever written to their file system becomes durable at once.

A sync of a file waits for a flush of the disk, so a thousand of them wait a thousand times, or a few hundred
times if several threads share it. Linux can also sync a file system as a whole (``syncfs``), with "the same
guarantees as fsync() called on every file" of it (its manual), in one flush. It is not used where that is not
known to hold, or costs more: see :func:`whole_sync`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

__all__ = ["MANY_FILES", "whole_sync"]

MANY_FILES: Final = 16
"""So many files are worth it; fewer take no longer one by one."""
_TYPES: Final = frozenset({"ext4", "xfs"})
"""Those that flush the disk at the end. Others, as those behind FUSE, may only hand the bytes on."""
_REPORTS_ERRORS_SINCE: Final = (5, 17)
"""Earlier kernels do not tell of bytes that could not be written (5.8), or of a flush that failed."""
DIRTY_BYTES_PER_FILE: Final = 128 << 10
"""What the disk writes in about the time that the sync of one file would take."""
_DIRTY: Final = re.compile(rb"^(?:Dirty|Writeback):\s+(\d+) kB", re.MULTILINE)
_MEMORY: Final = Path("/proc/meminfo")
_MOUNTS: Final = Path("/proc/self/mountinfo")


def whole_sync(fds: Sequence[int]) -> Callable[[], bool] | None:
    """What makes everything durable that was written to the file system of open files; None: sync each.

    That is so on other systems than Linux, on kernels and file systems whose promise is not known, if the
    files are on several, and if others have written so much that the syncs of these files will take less
    time. It answers whether it has succeeded: if not, the sync of each file tells which can't be written.
    """
    call = _syncfs()
    if call is None:
        return None
    device, *others = {os.fstat(fd).st_dev for fd in fds}
    if others or not _is_known(device) or _dirty_bytes() > len(fds) * DIRTY_BYTES_PER_FILE:
        return None
    return lambda: bool(call(fds[0]) == 0)


@cache
def _syncfs() -> Any:
    """The call of the C library; None if there is none that tells of errors."""
    if sys.platform != "linux":
        return None
    version = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
    if version < _REPORTS_ERRORS_SINCE:
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


@cache
def _is_known(device: int) -> bool:
    """Whether a device is mounted as one of the file systems that are known."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return False
    kinds = {line.split(" - ", 1)[1].split()[0] for line in lines if line.split()[2] == wanted}
    return bool(kinds) and kinds <= _TYPES


def _dirty_bytes() -> int:
    """How many bytes wait to be written, to whatever disk."""
    try:
        return 1024 * sum(map(int, _DIRTY.findall(_MEMORY.read_bytes())))
    except OSError:
        return sys.maxsize
