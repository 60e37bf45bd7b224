"""Where faults strike: the failpoints that each piece of work passes, and where a driver can stand still."""

from __future__ import annotations

from typing import Final

from millstream.testing.stalls import Site

__all__ = [
    "EPOCH_POINTS",
    "LMDB_POINTS",
    "OPENING_POINTS",
    "OPENING_STALL_SITES",
    "RESTORE_POINTS",
    "SNAPSHOT_POINTS",
    "STALL_SITES",
    "UPKEEP_POINTS",
    "UPKEEP_STALL_SITES",
]

EPOCH_POINTS: Final = (
    "durable.file_written",
    "durable.file_synced",
    "durable.linked",
    "durable.replaced",
    "durable.folder_synced",
    "log.locked",
    "log.frame_written",
    "log.frame_synced",
    "log.watermark_written",
    "commit.planned",
    "commit.opened",
    "commit.processed",
    "commit.sealing",
    "commit.sealed",
    "commit.reported",
    "commit.checked",
    "commit.manifest_written",
    "commit.witness_written",
    "commit.published",
    "commit.ended",
    "commit.store_applied",
    "commit.applied",
    "follow.batch_applied",
)
"""Failpoints that every epoch with input passes."""

LMDB_POINTS: Final = ("state.step_written",)
"""Failpoints that most of them pass besides, with stores on LMDB."""

OPENING_POINTS: Final = (
    "durable.file_written",
    "durable.file_synced",
    "durable.linked",
    "durable.replaced",
    "durable.folder_synced",
    "commit.leased",
    "commit.manifest_written",
    "commit.witness_written",
    "commit.fenced",
    "commit.published",
)
"""Failpoints that every start of a driver passes."""

SNAPSHOT_POINTS: Final = (
    "snapshot.copied",
    "snapshot.file_stored",
    "snapshot.written",
    "snapshot.dropped",
    "snapshot.file_deleted",
)
"""Failpoints that a snapshot passes that replaces another one."""

RESTORE_POINTS: Final = ("snapshot.fetched", "snapshot.restored")
"""Failpoints that a restore from a snapshot passes."""

UPKEEP_POINTS: Final = (
    "log.rewritten_named",
    "log.replaced_removed",
    "log.start_moved",
    "upkeep.manifest_removed",
    "upkeep.file_collected",
)
"""Failpoints that upkeep passes when it rewrites topics, applies retention and collects files."""

STALL_SITES: Final[tuple[Site, ...]] = (
    ("commit.planned",),
    ("commit.sealing", "durable.file_written"),
    ("commit.sealed",),
    ("commit.reported",),
    ("commit.checked",),
    ("commit.checked", "durable.file_synced"),
    ("commit.checked", "durable.linked"),
    ("commit.manifest_written",),
    ("commit.manifest_written", "durable.file_synced"),
    ("commit.witness_written",),
    ("commit.published",),
    ("commit.ended",),
    ("commit.applied",),
)
"""Where a driver can stand still in an epoch without holding a lock that others would wait for."""

OPENING_STALL_SITES: Final[tuple[Site, ...]] = (
    ("durable.file_written",),
    ("durable.linked",),
    ("commit.leased",),
    ("commit.manifest_written",),
    ("commit.fenced",),
)
"""The same in a driver's start."""

UPKEEP_STALL_SITES: Final[tuple[Site, ...]] = (("upkeep.manifest_removed",), ("upkeep.file_collected",))
"""The same in upkeep."""
