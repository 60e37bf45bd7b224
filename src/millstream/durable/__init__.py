"""The one place for files that must survive a crash.

Use :func:`create_exclusive`, :func:`publish_exclusive` or :func:`replace_durably` for whole files (or a
:class:`SyncGroup` for many),
:func:`held_lock` to exclude other processes, :func:`ensure_private_folder` for folders and
:class:`FrameKind` for what stands in the files. All take ``files=``, a :class:`FileLayer`, so that a test can
take the power away.
"""

from __future__ import annotations

from millstream.durable.actions import (
    access_denied,
    create_exclusive,
    disk_errors_named,
    is_temporary,
    opened,
    publish_by_link,
    publish_exclusive,
    raise_named,
    read_bounded,
    replace_durably,
    sync_folder,
    synced_meanwhile,
    temporary_name,
    write_all,
)
from millstream.durable.errors import (
    AccessDeniedError,
    DamagedFileError,
    DiskFullError,
    DurableFileError,
    FormatVersionError,
    LockTimeoutError,
    UnsafeFolderError,
    UnsuitableStorageError,
)
from millstream.durable.file_system_sync import MANY_FILES
from millstream.durable.folders import (
    check_place,
    check_private_folder,
    check_storage,
    ensure_private_folder,
)
from millstream.durable.framing import FRAME_HEADER_BYTES, FrameKind, TruncatedFrameError, checksum
from millstream.durable.layer import OS_FILES, Chunk, FileLayer
from millstream.durable.locks import held_lock
from millstream.durable.removing import remove_in_steps, remove_tree_in_steps
from millstream.durable.sync_group import SyncGroup

__all__ = [
    "FRAME_HEADER_BYTES",
    "MANY_FILES",
    "OS_FILES",
    "AccessDeniedError",
    "Chunk",
    "DamagedFileError",
    "DiskFullError",
    "DurableFileError",
    "FileLayer",
    "FormatVersionError",
    "FrameKind",
    "LockTimeoutError",
    "SyncGroup",
    "TruncatedFrameError",
    "UnsafeFolderError",
    "UnsuitableStorageError",
    "access_denied",
    "check_place",
    "check_private_folder",
    "check_storage",
    "checksum",
    "create_exclusive",
    "disk_errors_named",
    "ensure_private_folder",
    "held_lock",
    "is_temporary",
    "opened",
    "publish_by_link",
    "publish_exclusive",
    "raise_named",
    "read_bounded",
    "remove_in_steps",
    "remove_tree_in_steps",
    "replace_durably",
    "sync_folder",
    "synced_meanwhile",
    "temporary_name",
    "write_all",
]
