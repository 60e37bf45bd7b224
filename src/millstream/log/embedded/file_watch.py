"""Being told by the operating system that files were written to, instead of looking at each of them.

Linux's inotify, which tells of every write on this machine before the write returns. It does not tell of
writes by other hosts to a shared file system, so there is no watch there, nor on other systems: who watches
has to look now and then in any case. One descriptor, however many files.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import weakref
from collections.abc import Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_EVENT: Final = struct.Struct("iIII")
_IN_MODIFY: Final = 0x2
_IN_DELETE_SELF: Final = 0x400
_IN_MOVE_SELF: Final = 0x800
_IN_Q_OVERFLOW: Final = 0x4000
_IN_IGNORED: Final = 0x8000
_READ_BYTES: Final = 64 << 10
_LOCAL: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
)


class FileWatch(Generic[K]):
    """Knows which of some files were written to since the last question."""

    def __init__(self, fd: int, files: Mapping[K, Path]) -> None:
        self._fd = fd
        self._close = weakref.finalize(self, os.close, fd)  # also if somebody forgets it
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._keys: dict[int, K] = {}
        self._is_whole = True
        try:
            for key, path in files.items():
                self._keys[_add_watch(fd, path)] = key
        except OSError:
            self.close()
            raise

    @classmethod
    def of(cls, files: Mapping[K, Path]) -> FileWatch[K] | None:
        """Watch some files, each with a key; None if nobody tells of writes to them."""
        if sys.platform != "linux" or not all(
            map(_is_local, {path.parent.parent for path in files.values()})
        ):
            return None
        try:
            return cls(_init(), files)
        except OSError:  # no such file any more, or the system's limit of watches
            return None

    def changed(self) -> set[K] | None:
        """The keys of the files that were written to since the last question; None if nobody can tell."""
        changed: set[K] = set()
        while self._poll.poll(0):
            data = os.read(self._fd, _READ_BYTES)
            at = 0
            while at < len(data):
                number, mask, _, name_bytes = _EVENT.unpack_from(data, at)
                at += _EVENT.size + name_bytes
                if mask & (_IN_Q_OVERFLOW | _IN_IGNORED | _IN_DELETE_SELF | _IN_MOVE_SELF):
                    self._is_whole = False  # from now on somebody has to look
                elif number in self._keys:
                    changed.add(self._keys[number])
        return changed if self._is_whole else None

    def wait(self, timeout_s: float) -> bool:
        """Wait until a file was written to since the last question; False if none was in time."""
        return bool(self._poll.poll(max(0.0, timeout_s) * 1000))

    def close(self) -> None:
        """Let go of the descriptor."""
        self._close()


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _init() -> int:
    return _checked(_libc().inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), "inotify_init1")


def _add_watch(fd: int, path: Path) -> int:
    mask = _IN_MODIFY | _IN_DELETE_SELF | _IN_MOVE_SELF
    return _checked(_libc().inotify_add_watch(fd, os.fsencode(path), mask), str(path))


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return int(result)


def _is_local(folder: Path) -> bool:
    """Whether all who write to a folder do so on this machine, as far as its file system says."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    found, kind = -1, ""
    real = folder.resolve()
    for line in mounts.splitlines():
        _, point, name, *_ = line.split(" ")
        mounted = Path(point.encode().decode("unicode_escape"))
        if len(mounted.parts) >= found and real.is_relative_to(mounted):
            found, kind = len(mounted.parts), name  # of several at one place the last one counts
    return kind in _LOCAL
