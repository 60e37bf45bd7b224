"""Where local state is on disk, who may touch it, and what outlived the last boot.

::

    <state_dir>/.instance                    which instance this is; found again after a restart
    <state_dir>/<app_id>/.log                where its log is, and so its lease
    <state_dir>/<app_id>/<task>/.lock        held by whoever works on the task
    <state_dir>/<app_id>/<task>/.checkpoint  readable: version and changelog positions (no authority)
    <state_dir>/<app_id>/<task>/.unsynced    in which boot the stores were written without a sync
    <state_dir>/<app_id>/<task>/.restoring/  files of a snapshot, while a store is made from them
    <state_dir>/<app_id>/<task>/.sorting/    rows of a changelog, while a store is restored by key
    <state_dir>/<app_id>/<task>/.rewritten/  small copies of stores, while they take the place of large ones
    <state_dir>/<app_id>/<task>/.snapshots/  copies of stores, while snapshots are taken; has its own lock
    <state_dir>/<app_id>/<task>/<backend>/<store>/

as Kafka Streams has it. Folders have mode 0700 and files 0600; a folder that somebody else owns or may write
into is refused. Only folders below a state directory that carries our ``.instance`` are ever deleted.

What a store holds, and which version it ought to have, is not known here.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from millstream.durable import (
    DamagedFileError,
    check_private_folder,
    ensure_private_folder,
    is_temporary,
    publish_exclusive,
    read_bounded,
    replace_durably,
)
from millstream.durable.layer import FILE_MODE
from millstream.errors import StoreError
from millstream.state.errors import StateDirectoryError, TaskLockedError
from millstream.types import Offset, Version

_INSTANCE_FILE: Final = ".instance"
_LOG_FILE: Final = ".log"
LOCK_FILE: Final = ".lock"
CHECKPOINT_FILE: Final = ".checkpoint"
_UNSYNCED_FILE: Final = ".unsynced"
REMOVED: Final = ".removed-"
RESTORING_FOLDER: Final = ".restoring"
REWRITTEN_FOLDER: Final = ".rewritten"
SORTING_FOLDER: Final = ".sorting"
SNAPSHOTS_FOLDER: Final = ".snapshots"
_SMALL_FILE_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}")
_TASK: Final = re.compile(r"[0-9]+_[0-9]+")
_FIRST_WAIT_S: Final = 0.0005
_LONGEST_WAIT_S: Final = 0.02


class Checkpoint(msgspec.Struct, frozen=True):
    """What the local stores of a task hold: their version, and per store the next changelog offset."""

    version: Version
    positions: Mapping[str, Offset]


class LockOwner(msgspec.Struct, frozen=True):
    """Who holds a task's lock, or held it last."""

    pid: int
    host: str
    started: str
    """When that process was started: a process id is used again, the pair is not."""
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (started {self.started}, working here since {self.since})"


class _Instance(msgspec.Struct, frozen=True):
    format: int
    instance_id: str


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """One host's state directory, claimed for an instance."""

    path: Path
    instance_id: str

    def applications(self) -> list[str]:
        """List the applications that have a directory here."""
        return sorted(
            entry.name for entry in self.path.iterdir() if entry.is_dir() and _NAME.fullmatch(entry.name)
        )

    def task(self, app_id: str, task: str) -> TaskDirectory:
        """Return the directory of a task, for example ``1_3``; made if it is missing."""
        _check_name(app_id, "application id", _NAME)
        _check_name(task, "task", _TASK)
        path = self.path / app_id / task
        ensure_private_folder(path)
        check_private_folder(path.parent)
        return TaskDirectory(path)

    def tasks(self, app_id: str) -> list[str]:
        """List the tasks of an application that have a directory here."""
        folder = self.path / _check_name(app_id, "application id", _NAME)
        if not folder.is_dir():
            return []
        names = [entry.name for entry in folder.iterdir() if entry.is_dir() and _TASK.fullmatch(entry.name)]
        return sorted(names, key=lambda name: [int(part) for part in name.split("_")])


def existing_state_directory(path: Path) -> StateDirectory:
    """The state directory at a path, which must be one already: nothing is made or claimed."""
    instance_file = path / _INSTANCE_FILE
    if not instance_file.is_file():
        raise StateDirectoryError(
            f"{path} is not a state directory of Millstream: it carries no mark of ours, so nothing in it is "
            "touched. Likely cause: the path of another folder. Remedy: give the application's state_dir."
        )
    check_private_folder(path)
    return StateDirectory(path, _read_instance(instance_file).instance_id)


def open_state_directory(path: Path) -> StateDirectory:
    """Claim a state directory, or find it claimed: then its instance id is the one it had.

    A folder that is neither empty nor ours is refused, because clearing state deletes folders.
    """
    try:
        ensure_private_folder(path)
    except OSError as error:
        raise StateDirectoryError(
            f"{path} cannot become a state directory: {error}. Likely cause: this user may not make folders "
            "there. Remedy: name a folder that it may make and write into."
        ) from error
    instance_file = path / _INSTANCE_FILE
    if not instance_file.exists():
        foreign = [e.name for e in path.iterdir() if e.name != "lost+found" and not is_temporary(e.name)]
        if foreign and not instance_file.exists():
            raise StateDirectoryError(
                f"{path} cannot become a state directory: it holds other things "
                f"({', '.join(sorted(foreign)[:5])}) and no file {_INSTANCE_FILE}. Likely cause: the path of "
                "another folder was given. Remedy: name an empty folder, or one that does not exist yet."
            )
        new = _Instance(1, secrets.token_hex(8))
        with suppress(FileExistsError):  # another process of this host was faster: it is the same instance
            publish_exclusive(instance_file, [msgspec.json.encode(new) + b"\n"])
    return StateDirectory(path, _read_instance(instance_file).instance_id)


def note_log(directory: StateDirectory, app_id: str, log_root: Path) -> StateDirectory:
    """Note where the log is, before the application works here. Gives the directory."""
    if noted_log(directory, app_id) != log_root.resolve():
        note = directory.path / app_id / _LOG_FILE
        ensure_private_folder(note.parent)
        replace_durably(note, [os.fsencode(log_root.resolve())])
    return directory


def noted_log(directory: StateDirectory, app_id: str) -> Path | None:
    """Where the log of an application is; None if nobody has noted it.

    Whoever is to delete the state finds there whether a coordinator runs the application: between epochs no
    task is locked.
    """
    try:
        noted = read_bounded(directory.path / app_id / _LOG_FILE, _SMALL_FILE_BYTES)
    except FileNotFoundError:
        return None
    return Path(os.fsdecode(noted)) if noted else None


@dataclass(frozen=True, slots=True)
class TaskDirectory:
    """The directory of one task. Hold :meth:`lock` while working in it."""

    path: Path

    def store_path(self, backend: str, store: str) -> Path:
        """Return where a store is, or will be when a backend opens it."""
        return self.path / _check_name(backend, "backend", _NAME) / _check_name(store, "store", _NAME)

    def remove_store(self, backend: str, store: str) -> None:
        """Delete a store, if it is there. Needs the lock, and the store closed.

        It is renamed first, so that a crash leaves garbage and never half a store; the next call deletes
        that.
        """
        path = self.store_path(backend, store)
        if not path.parent.is_dir():
            return
        if path.is_dir():
            path.rename(path.with_name(f"{REMOVED}{secrets.token_hex(4)}"))
        for garbage in path.parent.glob(f"{REMOVED}*"):
            shutil.rmtree(garbage)

    def remains(self) -> list[Path]:
        """Return the folders that somebody who works here makes and removes: there, if they were killed."""
        remains = [self.path / name for name in (RESTORING_FOLDER, SORTING_FOLDER)]
        return [*filter(Path.is_dir, remains), *self.path.glob(f"*/{REMOVED}*")]

    def remains_of_snapshots(self) -> list[Path]:
        """Return the same of somebody who takes snapshots: under the lock in the folder of snapshots."""
        return [path for path in (self.path / SNAPSHOTS_FOLDER).glob("*") if path.is_dir()]

    @contextmanager
    def lock(self, *, timeout_ms: int) -> Iterator[LockOwner | None]:
        """Keep other processes, and other threads, out of the directory for the length of a ``with`` block.

        The kernel lets go of a dead owner's lock. Gives the owner that ended without letting go, or None.
        """
        descriptor = _locked(self.path / LOCK_FILE, timeout_ms)
        try:
            died = _read_owner(os.pread(descriptor, _SMALL_FILE_BYTES, 0))
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(_this_process()), 0)
            try:
                yield died
            finally:
                os.ftruncate(descriptor, 0)
                # Not left to close(): a child forked meanwhile shares the descriptor and would keep the lock.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    @contextmanager
    def shared_lock(self, *, timeout_ms: int) -> Iterator[None]:
        """Keep those out who would change the directory, but not those who read it as well."""
        descriptor = _locked(self.path / LOCK_FILE, timeout_ms, fcntl.LOCK_SH)
        try:
            os.utime(descriptor)  # whoever cleans up asks when it was used last
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Export what the stores hold, for people and tools. Nobody decides by it, so it is not synced.

        Written in place: a file system may sync a file that replaces another one, and this is called often.
        """
        content = {"version": checkpoint.version, "positions": dict(sorted(checkpoint.positions.items()))}
        data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
        descriptor = os.open(
            f"{self.path}/{CHECKPOINT_FILE}",
            os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            FILE_MODE,
        )
        try:
            os.write(descriptor, data)  # torn is harmless, see read_checkpoint
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)

    def read_checkpoint(self) -> Checkpoint | None:
        """Return the last export; None if it is missing or torn, which is harmless."""
        try:
            return msgspec.json.decode(self._small_file(CHECKPOINT_FILE), type=Checkpoint)
        except ValueError:
            return None

    def note_unsynced_writes(self) -> None:
        """Call before stores are written without a sync. It syncs once per boot; then it costs a read."""
        boot = boot_id()
        if boot is None:
            raise StoreError(
                f"Stores in {self.path} cannot be written without a sync: this system does not say which "
                "boot it is in, so a power cut could not be noticed. Remedy: sync the stores after each "
                "write."
            )
        if self.lost_in_a_power_cut():
            raise StoreError(
                f"Stores in {self.path} were written without a sync in an earlier boot and may be torn. "
                "Remedy: remove them and call note_synced(), then restore them."
            )
        if not (self.path / _UNSYNCED_FILE).exists():
            replace_durably(self.path / _UNSYNCED_FILE, [boot.encode()])

    def note_synced(self) -> None:
        """Call when all stores of the task were synced, or removed, and before they are written again."""
        (self.path / _UNSYNCED_FILE).unlink(missing_ok=True)

    def lost_in_a_power_cut(self) -> bool:
        """Tell whether the stores were written without a sync in another boot: they must not be trusted.

        A machine that was shut down in order loses nothing, but that cannot be told from a power cut.
        """
        file = self.path / _UNSYNCED_FILE
        return file.exists() and self._small_file(_UNSYNCED_FILE).decode(errors="replace") != boot_id()

    def _small_file(self, name: str) -> bytes:
        try:
            return read_bounded(self.path / name, _SMALL_FILE_BYTES)
        except (FileNotFoundError, DamagedFileError):
            return b""


@lru_cache(maxsize=1)
def boot_id() -> str | None:
    """Return what names the running boot of this machine; None where the system does not tell."""
    if sys.platform == "darwin":
        found = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False
        )
        return found.stdout.strip() or None
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def _check_name(name: str, what: str, allowed: re.Pattern[str]) -> str:
    if not allowed.fullmatch(name):
        shape = "1 to 249 letters, digits, '.', '_' and '-', not beginning with a '.'."
        raise StateDirectoryError(
            f"{name!r} cannot be the name of a {what} on disk. Remedy: use "
            + ("a number, '_' and a number." if allowed is _TASK else shape)
        )
    return name


def _read_instance(instance_file: Path) -> _Instance:
    try:
        return msgspec.json.decode(read_bounded(instance_file, _SMALL_FILE_BYTES), type=_Instance)
    except ValueError as error:
        raise StateDirectoryError(
            f"{instance_file} does not say which instance this is ({error}). Likely cause: it was edited, or "
            "a fault of the disk. Remedy: delete the state directory; the state is then restored from its "
            "changelogs."
        ) from error


def _locked(path: Path, timeout_ms: int, kind: int = fcntl.LOCK_EX) -> int:
    """Return a descriptor that holds the lock."""
    deadline = time.monotonic() + timeout_ms / 1000
    wait = _FIRST_WAIT_S
    while (descriptor := _try_lock(path, kind)) is None:
        if time.monotonic() >= deadline:
            raise TaskLockedError(
                f"The task directory {path.parent} is locked by {_owner_named_in(path)} and was not released "
                f"within {timeout_ms} ms. Likely cause: that process still works on the task, or is stopped. "
                "Remedy: wait for it or end it; a lock needs no clean-up, it is free when its owner is gone."
            )
        time.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT_S)
    return descriptor


def _try_lock(path: Path, kind: int) -> int | None:
    """Lock the file that has the name now: a directory may be cleaned up, and made again, while we wait."""
    ensure_private_folder(path.parent)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except FileNotFoundError:
        return None
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if _still_named(descriptor, path):
            return descriptor
    os.close(descriptor)
    return None


def _still_named(descriptor: int, path: Path) -> bool:
    try:
        named, locked = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (locked.st_dev, locked.st_ino)


def _read_owner(content: bytes) -> LockOwner | None:
    try:
        return msgspec.json.decode(content, type=LockOwner)
    except ValueError:  # empty: let go in order; torn: being written right now
        return None


def _owner_named_in(path: Path) -> str:
    owner = _read_owner(path.read_bytes()) if path.exists() else None
    return str(owner or "processes that read it, or one that has not said its name yet")


def _this_process() -> LockOwner:
    pid = os.getpid()
    return LockOwner(pid, socket.gethostname(), _utc(_process_start(pid)), _utc(time.time()))


@lru_cache(maxsize=1)
def _process_start(pid: int) -> float:
    """When this process was started, in seconds since 1970; where the system does not say, now.

    Asked once, and again in a process that was forked: the answer does not change, and costs a little.
    """
    del pid
    try:
        ticks = int(
            Path("/proc/self/stat")
            .read_text(encoding="ascii", errors="replace")
            .rsplit(")", 1)[1]
            .split()[19]
        )
        running = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return time.time()
    return time.time() - running


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
