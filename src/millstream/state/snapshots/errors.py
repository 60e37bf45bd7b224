"""What can go wrong with snapshots. None of it harms state: the changelog is what is needed."""

from __future__ import annotations

from millstream.errors import StoreError

__all__ = ["DamagedSnapshotError", "SnapshotFormatError", "SnapshotStorageError"]


class SnapshotStorageError(StoreError):
    """The storage of snapshots did not do what it was asked; the message names the place."""


class DamagedSnapshotError(StoreError):
    """A snapshot is not what was written, or a file of it is missing; the message names the file."""


class SnapshotFormatError(DamagedSnapshotError):
    """A snapshot is intact, but another release of Millstream wrote it: it is left alone."""
