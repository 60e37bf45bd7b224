"""The file of an LMDB store: opened, mapped, checked for its length, and its errors named as ours.

The map (what LMDB may address, not what it takes on disk) starts small, because a process may be limited in
address space, and grows by doubling when a write does not fit. Other processes may have the store open: they
learn of the growth at their next transaction.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

import lmdb

from millstream.durable.layer import FILE_MODE
from millstream.errors import StoreError
from millstream.state.errors import StoreInUseError, damaged_store, disk_full, unexplained

DATA_FILE: Final = "data.mdb"
_DAMAGE: Final = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.NotFoundError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)
_TOO_SMALL: Final = (lmdb.MapFullError, lmdb.MapResizedError)


def open_environment(path: Path, *, map_bytes: int, most_tables: int) -> lmdb.Environment:
    """Open or make the file; clear the reader slots of processes that were killed."""
    file = path / DATA_FILE
    used = file.stat().st_size if file.exists() else 0
    env = lmdb.open(
        str(path), map_size=max(map_bytes, used + used // 2), max_dbs=most_tables, sync=False, mode=FILE_MODE
    )
    env.reader_check()
    return env


def begin(env: lmdb.Environment, *, write: bool) -> lmdb.Transaction[bytes]:
    """Begin a transaction, in a map that may have grown."""
    try:
        return env.begin(write=write)
    except lmdb.MapResizedError:
        env.set_mapsize(0)  # another process has made it larger: take what it says
        return env.begin(write=write)


def room(env: lmdb.Environment) -> int:
    """How many bytes of the map no page has ever taken."""
    return int(env.info()["map_size"]) - _bytes_of_pages(env)


def grow(env: lmdb.Environment, path: Path) -> None:
    """Make the map twice as large."""
    larger = 2 * int(env.info()["map_size"])
    try:
        env.set_mapsize(larger)
    except (lmdb.Error, MemoryError, OverflowError) as error:
        raise StoreError(
            f"The store {path} needs a map of {larger} bytes and cannot get it ({error}). Likely "
            "cause: the process is limited in address space (ulimit -v, spark.executor.pyspark.memory). "
            "Remedy: raise that limit, or use the rocksdb backend."
        ) from error


def check_whole(env: lmdb.Environment, path: Path) -> None:
    """Refuse a file that is shorter than it says: to read behind its end would kill the process (SIGBUS)."""
    size, expected = file_bytes(path), _bytes_of_pages(env)
    if size < expected:
        raise damaged_store(path, f"the file has {size} of {expected} bytes")


def write_to_the_end(env: lmdb.Environment, path: Path) -> None:
    """Make the file as long as it says it is.

    A transaction that needs new pages and frees the last of them again counts them, but does not write
    them: nobody will read them before somebody has written them. Only :func:`check_whole` can't know.
    """
    expected = _bytes_of_pages(env)
    if file_bytes(path) < expected:
        os.truncate(path / DATA_FILE, expected)


def file_bytes(path: Path) -> int:
    """How long the file is."""
    return os.stat(f"{path}/{DATA_FILE}").st_size  # noqa: PTH116 - several times per epoch and task


def _bytes_of_pages(env: lmdb.Environment) -> int:
    return (int(env.info()["last_pgno"]) + 1) * int(env.stat()["psize"])


class errors_named:  # noqa: N801 - a function to whoever uses it
    """Turn LMDB's errors into ours, except those by which a map tells that it is too small.

    A class: a generator would take as long as a small transaction.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, lmdb.Error) and not isinstance(error, _TOO_SMALL):
            raise _named(self._path, error) from error


def _named(path: Path, error: lmdb.Error) -> StoreError:
    if any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT)):
        return disk_full(path, str(error))
    if "already open in this process" in str(error):
        return StoreInUseError(f"The store {path} is open already in this process. Remedy: close it first.")
    if isinstance(error, _DAMAGE):
        return damaged_store(path, str(error))
    return unexplained("LMDB", path, str(error))
