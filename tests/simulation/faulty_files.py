"""A file layer that forgets: what a power cut, a torn write or a full disk leave behind.

:class:`FaultyFiles` does everything on the real file system, below one root folder, and keeps a second set of
books: which bytes were synced with their file, which names with their folder. :meth:`FaultyFiles.power_cut`
makes the real folder what the books say is durable::

    files = FaultyFiles(tmp_path)
    log = FileLog(tmp_path / "data", files=files)
    log.append(...)
    files.power_cut()  # or power_cut(random.Random(seed)): some of the unsynced survives
    log = FileLog(tmp_path / "data", files=files)

It is strict where file systems differ: the sync of a file does not make its name durable, and a name may
survive without its bytes. Overwriting within one sector of 512 bytes is atomic, as disks promise; any other
write can be torn anywhere. Renames are atomic, and the changes of one folder survive in their order (every
journaling file system promises that much). Files that others made behind the layer's back (locks, RocksDB)
count as durable. Objects that were open before the cut must not be used after it.
"""

# FileLayer describes the methods

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from millstream.durable.layer import FILE_MODE, FOLDER_MODE, OS_FILES, Chunk
from millstream.failpoints import InjectedCrash

__all__ = ["FaultyFiles"]

_SECTOR_BYTES = 512


@dataclass(eq=False, slots=True)
class _File:
    durable: bytes
    writes: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Unsynced writes (position, bytes) and cuts (length, None), in order."""

    def after_cut(self, rng: random.Random | None) -> bytes:
        if rng is None:
            return self.durable
        content = bytearray(self.durable)
        for position, data in self.writes:
            fate = rng.choice(
                ("kept", "lost") if self._is_atomic(position, data) else ("kept", "torn", "lost")
            )
            if fate == "lost":
                continue
            if data is None:
                del content[position:]
                continue
            kept = data if fate == "kept" else data[: rng.randrange(len(data))]
            content.extend(bytes(max(0, position - len(content))))
            content[position : position + len(kept)] = kept
        return bytes(content)

    def _is_atomic(self, position: int, data: bytes | None) -> bool:
        """Tell whether a write lies in one sector that was there before."""
        end = position + len(data or b"")
        return end <= len(self.durable) and position // _SECTOR_BYTES == (end - 1) // _SECTOR_BYTES


@dataclass(eq=False, slots=True)
class _Folder:
    durable: dict[str, _Node] = field(default_factory=dict)
    current: dict[str, _Node] = field(default_factory=dict)
    changes: list[dict[str, _Node | None]] = field(default_factory=list)
    """Unsynced changes of names, in order."""

    def change(self, names: dict[str, _Node | None]) -> None:
        self.changes.append(names)
        _apply(self.current, names)

    def after_cut(self, rng: random.Random | None) -> dict[str, _Node]:
        names = dict(self.durable)
        for change in self.changes[: rng.randint(0, len(self.changes)) if rng else 0]:
            _apply(names, change)
        return names


_Node = _File | _Folder


def _apply(names: dict[str, _Node], change: dict[str, _Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class FaultyFiles:
    """A :class:`~millstream.durable.FileLayer` over a real folder, with faults on demand.

    ``ignored`` names operations (``"fsync"``, ``"sync_folder"``) that report success and make nothing
    durable: the bug that a power-cut test must find.
    """

    def __init__(self, root: Path, *, ignored: frozenset[str] = frozenset()) -> None:
        self.root = root
        self.ignored = ignored
        self.operations: list[tuple[str, str]] = []
        self._tree = _Folder()
        self._open: dict[int, _File] = {}
        self._budget: int | None = None
        self._ending: Literal["full", "torn"] = "full"
        self._failing_syncs = 0

    # Faults on demand ---------------------------------------------------------------------------------

    def disk_full_after(self, free_bytes: int) -> None:
        """Let files grow by ``free_bytes`` more bytes, then raise ENOSPC; overwriting needs no space."""
        self._budget, self._ending = free_bytes, "full"

    def tear_after(self, written_bytes: int) -> None:
        """Let ``written_bytes`` more bytes be written, then raise InjectedCrash in the middle of a write."""
        self._budget, self._ending = written_bytes, "torn"

    def disk_has_space(self) -> None:
        """End :meth:`disk_full_after` or :meth:`tear_after`."""
        self._budget = None

    def fail_next_sync(self) -> None:
        """Let the next ``fsync`` fail with EIO."""
        self._failing_syncs += 1

    def power_cut(self, rng: random.Random | None = None) -> None:
        """Make the real folder what is durable. With ``rng``, some of what was not synced survives, too."""
        self._open.clear()
        old = self.root.with_name(self.root.name + ".before-cut")
        self.root.rename(old)
        self._tree = self._rebuild(self._tree, old, self.root, rng, {})
        shutil.rmtree(old)
        self.disk_has_space()

    # The layer ----------------------------------------------------------------------------------------

    def open(self, path: Path, flags: int) -> int:
        is_new = bool(flags & os.O_CREAT) and not path.exists()
        if flags & os.O_WRONLY:  # the books read what is written
            flags = flags & ~os.O_WRONLY | os.O_RDWR
        fd = OS_FILES.open(path, flags)
        if is_new:
            node = _File(b"")
            self._folder(path.parent).change({path.name: node})
        else:
            node = self._file(path)
        self._open[fd] = node
        self._note("open", path)
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        OS_FILES.close(fd)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        return OS_FILES.pread(fd, length, position)

    def pwrite(self, fd: int, data: Chunk, position: int) -> int:
        taken = bytes(data)
        if self._budget is not None:
            is_there = max(0, OS_FILES.size(fd) - position) if self._ending == "full" else 0
            taken = taken[: is_there + self._budget]
            self._budget -= max(0, len(taken) - is_there)
        if taken:
            OS_FILES.pwrite(fd, taken, position)
            self._open[fd].writes.append((position, taken))
        if len(taken) < len(data) and self._ending == "torn":
            raise InjectedCrash(f"torn after {len(taken)} of {len(data)} bytes")
        if len(data) and not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(taken)

    def truncate(self, fd: int, length: int) -> None:
        OS_FILES.truncate(fd, length)
        self._open[fd].writes.append((length, None))

    def fsync(self, fd: int) -> None:
        # The books are synced, the real file is not: nobody takes the real power away.
        if self._failing_syncs:
            self._failing_syncs -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if "fsync" not in self.ignored:
            node = self._open[fd]
            node.durable = OS_FILES.pread(fd, OS_FILES.size(fd), 0)
            node.writes.clear()
        self.operations.append(("fsync", str(fd)))

    def size(self, fd: int) -> int:
        return OS_FILES.size(fd)

    def link(self, source: Path, target: Path) -> None:
        node = self._file(source)
        OS_FILES.link(source, target)
        self._folder(target.parent).change({target.name: node})
        self._note("link", target)

    def rename(self, source: Path, target: Path) -> None:
        node = self._node(source)
        if target.exists():
            self._node(target)
        OS_FILES.rename(source, target)
        before, after = self._folder(source.parent), self._folder(target.parent)
        if before is after:
            after.change({source.name: None, target.name: node})
        else:
            after.change({target.name: node})
            before.change({source.name: None})
        self._note("rename", target)

    def unlink(self, path: Path) -> None:
        self._node(path)
        OS_FILES.unlink(path)
        self._folder(path.parent).change({path.name: None})
        self._note("unlink", path)

    def rmdir(self, path: Path) -> None:
        self._node(path)
        OS_FILES.rmdir(path)
        self._folder(path.parent).change({path.name: None})
        self._note("rmdir", path)

    def mkdir(self, path: Path) -> None:
        OS_FILES.mkdir(path)
        self._folder(path.parent).change({path.name: _Folder()})
        self._note("mkdir", path)

    def sync_folder(self, path: Path) -> None:
        if "sync_folder" not in self.ignored:
            folder = self._folder(path)
            folder.durable = dict(folder.current)
            folder.changes.clear()
        self._note("sync_folder", path)

    def whole_sync(self, fds: Sequence[int]) -> Callable[[], bool] | None:
        """Never: each file is to be synced by itself, or its bytes are lost."""
        del fds
        return None

    def begin(self, works: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """One after the other, in any order: whoever dies, dies with some of them done."""
        failures: list[Exception] = []
        for work in random.Random(len(self.operations)).sample(works, len(works)):
            try:
                work()
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)

        def wait() -> None:
            if failures:
                raise failures[0]

        return wait

    # The books ----------------------------------------------------------------------------------------

    def _note(self, operation: str, path: Path) -> None:
        self.operations.append((operation, "/".join(self._names(path)) or "."))

    def _names(self, path: Path) -> tuple[str, ...]:
        """The path from the root. Every operation asks, so nothing of `pathlib` that is slow is used."""
        parts, root = path.parts, self.root.parts
        if parts[: len(root)] != root:
            raise ValueError(f"{path} is not in {self.root}")
        return parts[len(root) :]

    def _node(self, path: Path) -> _Node:
        node: _Node = self._tree
        names = self._names(path)
        for depth, name in enumerate(names, start=1):
            if not isinstance(node, _Folder):
                raise NotADirectoryError(path)
            child = node.current.get(name)
            if child is None:  # made behind our back or before us: durable
                there = self.root.joinpath(*names[:depth])
                child = _Folder() if there.is_dir() else _File(there.read_bytes())
                node.current[name] = node.durable[name] = child
            node = child
        return node

    def _file(self, path: Path) -> _File:
        node = self._node(path)
        if not isinstance(node, _File):
            raise IsADirectoryError(path)
        return node

    def _folder(self, path: Path) -> _Folder:
        node = self._node(path)
        if not isinstance(node, _Folder):
            raise NotADirectoryError(path)
        return node

    def _rebuild(
        self,
        node: _Folder,
        old: Path | None,
        new: Path,
        rng: random.Random | None,
        done: dict[_File, tuple[Path, _File]],
    ) -> _Folder:
        """Make ``new`` the durable form of ``node``, whose real content is in ``old``; return its books."""
        new.mkdir(FOLDER_MODE)
        books = _Folder()
        for name, child in sorted(node.after_cut(rng).items()):
            if isinstance(child, _Folder):
                at = _find(old, node, child)
                books.durable[name] = self._rebuild(child, at, new / name, rng, done)
            elif child in done:
                other_name, books.durable[name] = done[child]
                os.link(other_name, new / name)
            else:
                survivor = _File(child.after_cut(rng))
                (new / name).write_bytes(survivor.durable)
                (new / name).chmod(FILE_MODE)
                done[child] = (new / name, survivor)
                books.durable[name] = survivor
        self._keep_strangers(node, old, new)
        books.current = dict(books.durable)
        return books

    def _keep_strangers(self, node: _Folder, old: Path | None, new: Path) -> None:
        if old is None or not old.is_dir():
            return
        for entry in old.iterdir():
            if entry.name not in node.current and not (new / entry.name).exists():
                shutil.move(entry, new / entry.name)


def _find(old: Path | None, parent: _Folder, child: _Folder) -> Path | None:
    """Return where a folder really is now: under one of its parent's current names, or nowhere."""
    for name, node in parent.current.items():
        if node is child and old is not None:
            return old / name
    return None
