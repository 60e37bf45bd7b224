"""What can go wrong with local state. Every error here is a StoreError.

A local store is a copy of what the changelog holds, and a snapshot is a copy of a store. So the remedy for a
damaged one is never repair: remove it, and it is restored.
"""

from __future__ import annotations

from pathlib import Path

from millstream.durable import DiskFullError, LockTimeoutError
from millstream.errors import StoreError


class StoreClosedError(StoreError):
    """A store, or an open scan of it, was used after the store was closed."""


class UnsortedKeysError(StoreError):
    """Keys were not strictly ascending: out of order, or one of them twice."""


class ScanInvalidatedError(StoreError):
    """The store was written while a scan of it was open. What the scan would give next is not defined."""


class StoreNotHereError(StoreError):
    """A process that was asked for state does not have it, or not as it is wanted: it is asked elsewhere."""


class PinLostError(StoreError):
    """A store can't be read any more as it was when it was pinned: the read begins anew."""


class StoreInUseError(StoreError):
    """The store is open already, in this process or in another one."""


class StoreFormatError(StoreError):
    """The folder holds something else than the store that was asked for: the message names both."""


class DamagedStoreError(StoreError):
    """Bytes on disk are not what was written. The store must be removed and restored from its changelog."""


class StoreAheadError(StoreError):
    """A store holds a version that was never committed, or whose commit was lost: the message names both."""


class ChangelogGapError(StoreError):
    """The changelog does not hold all records between where a store stands and where it has to get to."""


class ChangelogCompactedError(StoreError):
    """The changelog was compacted beyond the version that was asked for: a later one can be had."""


class UnpublishedVersionError(StoreError):
    """The version that a store has to get to is committed, and the changelog is yet to show all of it."""


class ZombieTaskError(StoreError):
    """An attempt of the past came late: its task has committed since, and what it would need is collected."""


class StoreDiskFullError(StoreError, DiskFullError):
    """No space or quota left. The write that failed is not visible."""


class StateDirectoryError(StoreError):
    """The state directory, or a name inside it, cannot be used as asked."""


class StateInUseError(StateDirectoryError):
    """The application runs, or another process runs it: its local state is not deleted."""


class TaskLockedError(StoreError, LockTimeoutError):
    """Another process, named in the message, held the task's directory for longer than we would wait."""


class SnapshotStorageError(StoreError):
    """The storage of snapshots did not do what it was asked; the message names the place."""


class DamagedSnapshotError(StoreError):
    """A snapshot is not what was written, or a file of it is missing; the message names the file."""


class SnapshotFormatError(DamagedSnapshotError):
    """A snapshot is intact, but another release of Millstream wrote it: it is left alone."""


def damaged_store(path: Path, how: str) -> DamagedStoreError:
    """The error for a store on disk that can't be read."""
    return DamagedStoreError(
        f"The store {path} is damaged ({how}). Likely cause: its files were changed, cut or removed, or a "
        "fault of the disk. Remedy: remove the folder; the store is then restored from its changelog."
    )


def disk_full(path: Path, what: str) -> StoreDiskFullError:
    """The error for a write that found no space."""
    return StoreDiskFullError(
        f"The disk is full: the store {path} could not be written ({what}). The write is not visible. Likely "
        "cause: the volume or the user's quota has no space left. Remedy: free space or move the state "
        "directory to a larger volume, then start again; no repair is needed."
    )


def unexplained(library: str, path: Path, text: str) -> StoreError:
    """The error for what a backend's library says and we don't know."""
    return StoreError(
        f"{library} could not work on the store {path}: {text}. Remedy: if it says no more to you than to "
        "us, remove the folder; the store is then restored from its changelog."
    )
