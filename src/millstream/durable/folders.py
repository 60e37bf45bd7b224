"""Folders that only we may write into, on storage that can do what we need.

Records on disk are checksummed against accidents, not against people. So a folder of ours has mode 0700, and
a folder that somebody else owns or may write into is refused rather than mended: who knows what they wrote.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from millstream.durable.actions import disk_errors_named, opened, sync_folder, temporary_name
from millstream.durable.errors import UnsafeFolderError, UnsuitableStorageError
from millstream.durable.layer import OS_FILES, FileLayer


def ensure_private_folder(folder: Path, *, files: FileLayer = OS_FILES) -> None:
    """Make ``folder`` and its missing parents, durably and with mode 0700; refuse an unsafe one."""
    with disk_errors_named(folder):
        is_there = folder.is_dir()
    if not is_there:
        if not folder.parent.is_dir():
            ensure_private_folder(folder.parent, files=files)
        with suppress(FileExistsError), disk_errors_named(folder):
            files.mkdir(folder)
        sync_folder(folder.parent, files=files)
    check_private_folder(folder)


def check_place(folder: Path) -> None:
    """Refuse a place where a folder of ours can't be, or can't be made. Makes nothing.

    >>> check_place(Path("/proc/version/state"))
    Traceback (most recent call last):
    millstream.durable.errors.AccessDeniedError: /proc/version can't be used: Not a directory. ...
    """
    nearest = folder.absolute()
    with disk_errors_named(nearest):
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(nearest))
        effective = os.access in os.supports_effective_ids
        if not os.access(nearest, os.W_OK | os.X_OK, effective_ids=effective):
            writable = os.statvfs(nearest).f_flag & os.ST_RDONLY == 0
            number = errno.EACCES if writable else errno.EROFS
            raise OSError(number, os.strerror(number), str(nearest))
    if nearest == folder.absolute():
        check_private_folder(folder)


def check_private_folder(folder: Path) -> None:
    """Refuse a folder that is not ours or that others may write into."""
    with disk_errors_named(folder):
        status = folder.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeFolderError(
            f"{folder} is not a folder. Remedy: name another place, or move the file away."
        )
    if status.st_uid != os.geteuid():
        raise UnsafeFolderError(
            f"{folder} belongs to user {status.st_uid}, but this process runs as user {os.geteuid()}. Likely "
            "cause: it was created by another account, or by root in a container. Remedy: run as its owner, "
            f"name another folder, or give it to this user (chown -R {os.geteuid()} {folder})."
        )
    writable = stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    if writable:
        raise UnsafeFolderError(
            f"{folder} has mode {stat.S_IMODE(status.st_mode):04o}: other users may write into it, and what "
            "is in it would be read as ours. Likely cause: a shared or temporary folder. Remedy: name "
            f"another folder, or, if nobody has written into it, chmod 700 {folder}."
        )


def check_storage(folder: Path, *, files: FileLayer = OS_FILES) -> None:
    """Refuse storage that cannot create exclusively or cannot hard-link.

    The commit and the log rest on both: two processes that want the same name must not both get it.
    """
    probe, second = temporary_name(folder / "probe"), temporary_name(folder / "probe")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with disk_errors_named(probe), opened(probe, flags, files=files):
            pass
        _must_be_taken(lambda: files.close(files.open(probe, flags)), folder, "create files exclusively")
        try:
            files.link(probe, second)
        except OSError as error:
            raise _unsuitable(folder, f"make hard links ({error.strerror})") from error
        _must_be_taken(
            lambda: files.link(probe, second), folder, "refuse a hard link to a name that is taken"
        )
    finally:
        for path in (probe, second):
            with suppress(OSError):
                files.unlink(path)


def _must_be_taken(action: Callable[[], None], folder: Path, ability: str) -> None:
    try:
        action()
    except FileExistsError:
        return
    except OSError as error:
        raise _unsuitable(folder, f"{ability} ({error.strerror})") from error
    raise _unsuitable(folder, ability)


def _unsuitable(folder: Path, ability: str) -> UnsuitableStorageError:
    return UnsuitableStorageError(
        f"The storage of {folder} cannot {ability}. Without that two processes could both believe that they "
        "own a name. Likely cause: an object store mounted as a folder, or a network share with links "
        "switched off. Remedy: put the folder on a local disk or on a file system with POSIX semantics "
        "(ext4, XFS, NFSv4)."
    )
