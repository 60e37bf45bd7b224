"""Where faults strike: the failpoints that each piece of work passes, and where a coordinator can stall."""

from __future__ import annotations

from typing import Final

from tests.simulation.stalls import Site

__all__ = [
    "EPOCH_POINTS",
    "LMDB_POINTS",
    "MAINTENANCE_POINTS",
    "MAINTENANCE_STALL_SITES",
    "OPENING_POINTS",
    "OPENING_STALL_SITES",
    "RESTORE_POINTS",
    "SNAPSHOT_POINTS",
    "STALL_SITES",
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
"""Failpoints that every start of a coordinator passes."""

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

MAINTENANCE_POINTS: Final = (
    "log.rewritten_named",
    "log.replaced_removed",
    "log.start_moved",
    "maintenance.manifest_removed",
    "maintenance.file_collected",
)
"""Failpoints that maintenance passes when it rewrites topics, applies retention and collects files."""

STALL_SITES: Final[tuple[Site, ...]] = (
    ("commit.planned",),
    ("commit.sealing", "durable.file_written"),
    ("commit.sealed",),
    ("commit.reported",),
    ("commit.checked",),
    ("commit.checked", "durable.file_synced"),
    ("commit.checked", "durable.linked"),
    ("commit.manifest_written",),
    ("commit.published",),
    ("commit.published", "durable.file_synced"),
    ("commit.witness_written",),
    ("commit.ended",),
    ("commit.applied",),
)
"""Where a coordinator can stand still in an epoch without holding a lock that others would wait for."""

OPENING_STALL_SITES: Final[tuple[Site, ...]] = (
    ("durable.file_written",),
    ("durable.linked",),
    ("commit.leased",),
    ("commit.manifest_written",),
    ("commit.fenced",),
)
"""The same in a coordinator's start."""

MAINTENANCE_STALL_SITES: Final[tuple[Site, ...]] = (
    ("maintenance.manifest_removed",),
    ("maintenance.file_collected",),
)
"""The same in maintenance."""
