"""Where the Spark of this process puts what it needs for the moment: shuffle files, sockets, libraries.

Spark removes that when it ends in order, and leaves it behind when it is killed. So each process has a folder
of its own in the system's folder for temporary files, and holds a lock on it; the next process that starts a
Spark removes the folders whose locks are free. An owner that was killed can't be mistaken for one at work.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from millstream.durable import LockTimeoutError, ensure_private_folder, held_lock

_LOCK = "lock"
_PATIENCE_MS = 30_000
_LONGEST_SOCKET_FOLDER = 60
"""A socket's path has 103 bytes at most on some systems, and Spark's names for them have 42."""

_held = ExitStack()
_own: dict[int, Path] = {}
"""By process: one that was forked is another one."""


def scratch_folder() -> Path:
    """This process's folder. Made when first asked for; then those of dead processes are removed."""
    if os.getpid() not in _own:
        root = Path(tempfile.gettempdir()) / f"millstream-spark-{os.geteuid()}"
        ensure_private_folder(root)
        with held_lock(root / _LOCK, timeout_ms=_PATIENCE_MS):
            _remove_abandoned(root)
            own = Path(tempfile.mkdtemp(prefix="", dir=root))
            _held.enter_context(held_lock(own / _LOCK, timeout_ms=_PATIENCE_MS))
        _own[os.getpid()] = own
    return _own[os.getpid()]


def scratch_settings() -> dict[str, str]:
    """Settings that make Spark use it."""
    folder = scratch_folder()
    settings = {"spark.local.dir": str(folder)}
    for sockets in (folder, Path(tempfile.gettempdir())):
        if len(os.fsencode(sockets)) <= _LONGEST_SOCKET_FOLDER:
            return {**settings, "spark.python.unix.domain.socket.dir": str(sockets)}
    return {**settings, "spark.python.unix.domain.socket.enabled": "false"}


def java_options() -> str:
    """Options that make Spark's JVM use it, too."""
    return f'"-Djava.io.tmpdir={scratch_folder()}"'


def _remove_abandoned(root: Path) -> None:
    for folder in root.iterdir():
        if folder.is_dir() and not folder.is_symlink():
            with suppress(LockTimeoutError), held_lock(folder / _LOCK, timeout_ms=0):
                shutil.rmtree(folder, ignore_errors=True)
