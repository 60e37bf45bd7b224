"""Which local state is on a host, and taking away what nobody uses there any more.

Only folders below a state directory that carries our mark are ever deleted, and only under their lock: a
task's folder is renamed first, so that whoever waits for it makes a new one, and a crash leaves garbage that
the next clean-up takes.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millstream import failpoints
from millstream.durable import LockTimeoutError, held_lock
from millstream.state.errors import TaskLockedError
from millstream.state.local.directory import (
    CHECKPOINT_FILE,
    LOCK_FILE,
    REMOVED,
    SNAPSHOTS_FOLDER,
    Checkpoint,
    StateDirectory,
    TaskDirectory,
)


@dataclass(frozen=True, slots=True)
class LocalTask:
    """A task that has a folder here."""

    app_id: str
    task: str
    path: Path
    stores: tuple[tuple[str, str], ...]
    """Backend and name of each store."""
    bytes: int
    checkpoint: Checkpoint | None
    last_used_s: float
    """When somebody worked on it last, in seconds since 1970."""


def local_tasks(directory: StateDirectory, app_id: str | None = None) -> list[LocalTask]:
    """All tasks that have a folder here, or those of one application."""
    return [
        _described(name, task, directory.path / name / task)
        for name in ([app_id] if app_id is not None else directory.applications())
        for task in directory.tasks(name)
    ]


def clean(
    directory: StateDirectory,
    app_id: str,
    *,
    unused_for_ms: int,
    may_go: Callable[[str], bool] = lambda _task: True,
    now_s: float | None = None,
) -> list[str]:
    """Remove the folders of tasks that nobody works on, or has worked on for so long. Which they were.

    1. Rename the task's folder, under its lock. From here on the task has none.
    2. Delete what was renamed, now or before a crash.
    """
    now = time.time() if now_s is None else now_s
    folder = directory.path / app_id
    removed: list[str] = []
    for task in directory.tasks(app_id):
        path = folder / task
        used = _last_used(path)
        if (now - used) * 1000 < unused_for_ms or not may_go(task):
            continue
        with suppress(TaskLockedError), TaskDirectory(path).lock(timeout_ms=0):
            if _time(path / CHECKPOINT_FILE) <= used:  # nobody was at it since we looked
                # 1.
                path.rename(folder / f"{REMOVED}{secrets.token_hex(4)}")
                failpoints.hit("state.task_renamed")
                removed.append(task)
    # 2.
    _remove(folder.glob(f"{REMOVED}*"))
    return removed


def remove_remains(directory: StateDirectory, app_id: str) -> None:
    """Delete what killed processes left in the folders of tasks: half a restore, copies for a snapshot.

    The next restore or snapshot would, too; but there may be none. What somebody is at is locked, and stays.
    """
    for name in directory.tasks(app_id):
        task = TaskDirectory(directory.path / app_id / name)
        if task.remains():
            with suppress(TaskLockedError), task.lock(timeout_ms=0):
                _remove(task.remains())
        if task.remains_of_snapshots():
            lock = task.path / SNAPSHOTS_FOLDER / LOCK_FILE
            with suppress(LockTimeoutError), held_lock(lock, timeout_ms=0):
                _remove(task.remains_of_snapshots())


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _described(app_id: str, task: str, path: Path) -> LocalTask:
    stores = sorted(
        (store.parent.name, store.name)
        for store in path.glob("*/*")
        if store.is_dir() and not store.name.startswith(".") and not store.parent.name.startswith(".")
    )
    size = sum(_size(file) for file in path.rglob("*"))
    return LocalTask(
        app_id, task, path, tuple(stores), size, TaskDirectory(path).read_checkpoint(), _last_used(path)
    )


def _size(file: Path) -> int:
    with suppress(FileNotFoundError):  # stores come and go while we look
        status = file.stat()
        return status.st_blocks * 512 if file.is_file() else 0
    return 0


def _last_used(path: Path) -> float:
    return max(_time(path / LOCK_FILE), _time(path / CHECKPOINT_FILE))


def _time(file: Path) -> float:
    """When a file was written last; 0 if it is not there."""
    with suppress(FileNotFoundError):
        return file.stat().st_mtime
    return 0.0
