"""One store of a task on disk: how it is opened, removed, made from a snapshot, and made small again.

A store whose files are mostly free is made small when it is opened. One that can is told to compact itself;
others are **rewritten**:

1. Write a copy with nothing but what is in use to ``.rewritten/``, whole or not at all.
2. Remove the store.
3. Make the store from the copy, as from a snapshot.
4. Remove the folder of the copy.

Files are never replaced in a folder: somebody may still read the old ones (a snapshot that is being taken),
and LMDB's lock file must not meet another data file than its own. After a crash the next to open the store
finds it, and then drops the copy, or finds only the copy, and goes on with step 3. So nothing is lost that
has no changelog, either.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from millstream import failpoints
from millstream.durable import DiskFullError
from millstream.state.backends.api import Adopting, Backend, BackendSupplier
from millstream.state.backends.base import closed_on_error
from millstream.state.local.directory import REWRITTEN_FOLDER, TaskDirectory

_LOGGER = logging.getLogger("millstream")


@dataclass(frozen=True, slots=True)
class StoreOnDisk:
    """Where a store is, and what opens it there. Needs the task's lock."""

    directory: TaskDirectory
    supplier: BackendSupplier
    name: str
    segment_bytes: int = 0

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.directory.store_path(self.supplier.name, self.name)

    @property
    def is_there(self) -> bool:
        """Whether there is anything to open."""
        return self.path.is_dir() or self._copy.is_dir()

    def open(self) -> Backend:
        """Open it, or make it if it is not there. If it is mostly free, make it small."""
        if self._copy.is_dir():  # left by a process that was killed
            if not self.path.is_dir():
                return self._made_from_copy()
            shutil.rmtree(self._copy)
        with closed_on_error(self._opened()) as backend:
            if not backend.is_mostly_free() or backend.compact():
                return backend
        return self._rewritten(backend)

    def remove(self) -> None:
        """Delete it, if it is there."""
        shutil.rmtree(self._copy, ignore_errors=True)
        self.directory.remove_store(self.supplier.name, self.name)

    def made_from(self, snapshot: Path) -> Backend:
        """Make it from the folder of a snapshot that is for nothing else, and open it."""
        make = self.supplier.adopt if isinstance(self.supplier, Adopting) else self.supplier.restore
        return make(snapshot, self.path, segment_bytes=self.segment_bytes)

    @property
    def _copy(self) -> Path:
        return self.directory.path / REWRITTEN_FOLDER / self.supplier.name / self.name

    def _opened(self) -> Backend:
        return self.supplier.open(self.path, segment_bytes=self.segment_bytes)

    def _rewritten(self, large: Backend) -> Backend:
        # 1.
        try:
            with large:
                large.snapshot(self._copy)
        except (DiskFullError, OSError) as error:
            _LOGGER.warning(
                "The store %s is mostly free space, but can't be made smaller: %s It goes on as it is.",
                self.path,
                error,
            )
            return self._opened()
        failpoints.hit("state.rewrite_copied")
        # 2.
        self.directory.remove_store(self.supplier.name, self.name)
        failpoints.hit("state.rewrite_removed")
        return self._made_from_copy()

    def _made_from_copy(self) -> Backend:
        # 3.
        with closed_on_error(self.made_from(self._copy)) as backend:
            failpoints.hit("state.rewrite_placed")
            # 4.
            shutil.rmtree(self._copy)
        return backend
