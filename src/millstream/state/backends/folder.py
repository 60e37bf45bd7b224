"""The folder of one store: what says which kind of store it holds, and who has it open.

Every store's folder has a readable file ``FORMAT``, written durably before anything else::

    {"backend": "lmdb", "format": 1, "kind": "store", "id": "2f0c..."}

so that a folder is never opened as what it is not. ``kind`` tells a store from a snapshot; ``id`` is new
whenever a store is made, so that a store that was removed and made again is another one. Folders have mode
0700 and files 0600.

What the backend keeps in the folder is not known here.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from weakref import WeakValueDictionary

import msgspec

from millstream.durable import ensure_private_folder, is_temporary, read_bounded, replace_durably, sync_folder
from millstream.durable.layer import FILE_MODE, FOLDER_MODE
from millstream.state.errors import DamagedStoreError, StoreFormatError, StoreInUseError

FORMAT_FILE: Final = "FORMAT"
_FORMAT_MAX_BYTES: Final = 4096
_PARTIAL: Final = ".partial"
_OTHERS: Final = 0o077


class Format(msgspec.Struct, frozen=True):
    """What the file ``FORMAT`` says."""

    backend: str
    format: int
    kind: Literal["store", "snapshot"]
    id: str

    def __str__(self) -> str:
        return f"a {self.kind} of backend {self.backend!r}, format {self.format}"


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """One store's folder, while a backend works in it. Without a path: a store that is nowhere on disk."""

    path: Path | None
    format: Format

    def __str__(self) -> str:
        return str(self.path or f"in {self.format.backend}")

    def opened_by(self, owner: object) -> None:
        """Note that ``owner`` has the store open, until it lets go or is garbage."""
        if self.path is not None:
            _refuse_if_open(self.path)
            _open_here[_identity(self.path)] = owner

    def closed(self) -> None:
        """Note that the store is closed."""
        if self.path is not None:
            _open_here.pop(_identity(self.path), None)
            with suppress(FileNotFoundError):  # removed while it was open
                make_private(self.path)

    def describe_snapshot(self, folder: Path) -> None:
        """Mark a folder as a snapshot of this store."""
        _write_format(folder, msgspec.structs.replace(self.format, kind="snapshot"))


_open_here: WeakValueDictionary[str, object] = WeakValueDictionary()
"""Who has which store open in this process. LMDB must not be opened twice in one; the others follow suit."""
# A forked child has the parent's objects but must not use them: it may open the stores itself.
os.register_at_fork(after_in_child=_open_here.clear)


def store_folder(path: Path, backend: str, version: int) -> StoreFolder:
    """Return the folder of a store, made if it is missing; refuse one that holds something else."""
    _refuse_if_open(path)
    ensure_private_folder(path)
    format_file = path / FORMAT_FILE
    if not format_file.exists():
        return StoreFolder(path, _describe_new(path, backend, version))
    found = _read_format(format_file)
    _check_format(found, Format(backend, version, "store", ""), path)
    return StoreFolder(path, found)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a name for a folder to be filled; on success it becomes ``path``, durably and at once.

    1. Remove what an earlier try has left behind.
    2. Let the caller make and fill the folder beside ``path``.
    3. Make it private and durable.
    4. Rename it to ``path``, and make the name durable.
    """
    refuse_if_not_empty(path)
    partial = path.with_name(path.name + _PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)  # 1
    ensure_private_folder(path.parent)
    try:
        yield partial  # 2
        make_private(partial)  # 3
        for file in partial.iterdir():
            _sync_file(file)
        sync_folder(partial)
        partial.rename(path)  # 4
        sync_folder(path.parent)
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def refuse_if_not_empty(path: Path) -> None:
    """Refuse to make a store or snapshot where something is already."""
    if path.exists() and any(path.iterdir()):
        raise StoreFormatError(
            f"{path} is not empty, so nothing is put there. Likely cause: a store or snapshot of that name "
            "exists already. Remedy: remove it first, or name another folder."
        )


def restored_folder(
    snapshot: Path, path: Path, backend: str, version: int, *, shareable: Callable[[Path], bool]
) -> None:
    """Make a store's folder from a snapshot's: hard links where files are ``shareable``, else copies."""
    check_snapshot(snapshot, backend, version)
    _refuse_if_open(path)
    with whole_folder(path) as partial:
        partial.mkdir(FOLDER_MODE)
        for file in snapshot.iterdir():
            if file.name != FORMAT_FILE:
                _link_or_copy(file, partial / file.name, share=shareable(file))
        _describe_new(partial, backend, version)


def check_snapshot(snapshot: Path, backend: str, version: int) -> None:
    """Refuse a folder that does not hold a snapshot of this kind of store."""
    format_file = snapshot / FORMAT_FILE
    if not format_file.exists():
        raise StoreFormatError(
            f"{snapshot} holds no snapshot: it has no file {FORMAT_FILE}. Likely cause: a wrong path, or a "
            "copy that was not finished. Remedy: name the folder that snapshot() wrote."
        )
    _check_format(_read_format(format_file), Format(backend, version, "snapshot", ""), snapshot)


def make_private(folder: Path) -> None:
    """Take other users' rights from a folder and its files. Some libraries give new files mode 0644."""
    folder.chmod(FOLDER_MODE)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mode & _OTHERS:
                Path(entry.path).chmod(FILE_MODE)


def _describe_new(path: Path, backend: str, version: int) -> Format:
    foreign = sorted(entry.name for entry in path.iterdir() if not is_temporary(entry.name))
    if foreign and not path.name.endswith(_PARTIAL):
        raise StoreFormatError(
            f"{path} holds no store: it has files ({', '.join(foreign[:5])}) but no file {FORMAT_FILE}. "
            f"Likely cause: the folder belongs to something else, or {FORMAT_FILE} was deleted. Remedy: name "
            "another folder, or remove this one; a store of ours is then restored from its changelog."
        )
    new = Format(backend, version, "store", secrets.token_hex(16))
    _write_format(path, new)
    return new


def _write_format(path: Path, content: Format) -> None:
    replace_durably(path / FORMAT_FILE, [msgspec.json.encode(content) + b"\n"])


def _read_format(file: Path) -> Format:
    try:
        return msgspec.json.decode(read_bounded(file, _FORMAT_MAX_BYTES), type=Format)
    except ValueError as error:
        raise DamagedStoreError(
            f"{file} does not say what the folder holds ({error}). Likely cause: a fault of the disk, or the "
            "file was edited. Remedy: remove the folder; the store is then restored from its changelog."
        ) from error


def _check_format(found: Format, wanted: Format, path: Path) -> None:
    if (found.backend, found.format, found.kind) != (wanted.backend, wanted.format, wanted.kind):
        raise StoreFormatError(
            f"{path} holds {found}, but {wanted} was asked for. Likely cause: the backend was changed in the "
            "configuration, the folder was copied, or another release of Millstream wrote it. Remedy: use "
            "that backend and release, or remove the folder; the store is then restored from its changelog."
        )


def _refuse_if_open(path: Path) -> None:
    if _identity(path) in _open_here:
        raise StoreInUseError(
            f"The store {path} is open already, in this process ({os.getpid()}). Likely cause: an earlier "
            "user did not close it, or two threads work on one task. Remedy: close it first; use it in a "
            "with block."
        )


def _identity(path: Path) -> str:
    return os.path.realpath(path)


def _link_or_copy(source: Path, target: Path, *, share: bool) -> None:
    if share:
        with suppress(OSError):  # another file system, or one without links
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def _sync_file(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
