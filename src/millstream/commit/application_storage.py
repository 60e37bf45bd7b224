"""Where an application keeps its truth: manifests, lease and sealed files.

That is apart from where its topics are. With the embedded log it is the log's own folder, so that topics can
point into sealed files::

    <root>/applications/<app_id>/
      leases/00000000000000000002       who may commit (see lease.py)
      manifests/00000000000000000812    one per epoch: the commits (see manifest.py)
      HEAD                              a witness of the last commit
    <root>/sealed/<app_id>/<epoch>/<task>...   what tasks sealed, many in one file; topics point into them

Only paths here. Folders have mode 0700.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.durable import (
    OS_FILES,
    FileLayer,
    check_private_folder,
    ensure_private_folder,
    is_temporary,
    sync_folder,
)
from millstream.types import Attempt, Epoch, Term

_APPLICATIONS: Final = "applications"


def application_ids(root: Path) -> list[str]:
    """The applications that have run on the log of a folder."""
    folder = root / _APPLICATIONS
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@dataclass(frozen=True, slots=True)
class ApplicationStorage:
    """The folders of one application."""

    root: Path
    application_id: str
    files: FileLayer = OS_FILES

    @property
    def path(self) -> Path:
        """The application's own folder."""
        return self.root / _APPLICATIONS / self.application_id

    @property
    def leases(self) -> Path:
        """One file per term."""
        return self.path / "leases"

    @property
    def manifests(self) -> Path:
        """One file per epoch."""
        return self.path / "manifests"

    @property
    def witness(self) -> Path:
        """Which manifest was the last."""
        return self.path / "HEAD"

    def sealed_file(self, epoch: Epoch, task_id: str, level: int, term: Term, attempt: Attempt) -> Path:
        """The file that one attempt of a task seals. Another attempt has another name."""
        name = f"{task_id}.s{level}-t{term}-a{attempt}"
        return self.root / f"sealed/{self.application_id}/{epoch:020d}/{name}"

    def relative(self, path: Path) -> str:
        """A path as the log and the manifest name it."""
        root, text = self.root.as_posix(), path.as_posix()
        if not text.startswith(f"{root}/"):
            return path.relative_to(self.root).as_posix()
        return text[len(root) + 1 :]

    def ensure(self) -> None:
        """Make the folders, with durable names: who made them first may have died before its sync."""
        sealed = self.root / "sealed"
        for folder in (self.leases, self.manifests, sealed / self.application_id):
            ensure_private_folder(folder, files=self.files)
        for folder in (self.root, self.path.parent, self.path, sealed):
            sync_folder(folder, files=self.files)

    def ensure_epochs(self, first: Epoch, count: int) -> None:
        """Make the folders that the tasks of some epochs seal in, with durable names."""
        for number in range(first, first + count):
            folder = self._epoch(Epoch(number))
            with suppress(FileExistsError):
                self.files.mkdir(folder)
            check_private_folder(folder)
        sync_folder(self.root / "sealed" / self.application_id, files=self.files)

    def remove_unfinished(self) -> None:
        """Delete the manifests and witnesses that coordinators were just writing when they were killed."""
        for folder in (self.path, self.manifests):
            for path in folder.iterdir():
                if is_temporary(path.name):
                    with suppress(FileNotFoundError):
                        self.files.unlink(path)

    def epoch_folders(self) -> list[tuple[Epoch, Path]]:
        """The folders that tasks have sealed in, by epoch."""
        folder = self.root / "sealed" / self.application_id
        return sorted((Epoch(int(path.name)), path) for path in folder.iterdir() if path.name.isdigit())

    def _epoch(self, epoch: Epoch) -> Path:
        return self.root / f"sealed/{self.application_id}/{epoch:020d}"
