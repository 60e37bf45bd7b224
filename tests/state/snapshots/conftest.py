from __future__ import annotations

from pathlib import Path

import pytest
from tests.state.one_task import OneTask

from millstream.state.snapshots.storage import FolderStorage


@pytest.fixture
def storage(tmp_path: Path) -> FolderStorage:
    """A folder for snapshots."""
    return FolderStorage(tmp_path / "snapshots")


@pytest.fixture
def kept(task: OneTask, storage: FolderStorage) -> OneTask:
    """A task with one logged store, at version 1, and nothing in its storage of snapshots."""
    task.snapshots = storage
    task.history = "a"
    task.add_store("counts")
    task.commit(counts={b"%03d" % number: b"first" for number in range(200)})
    with task.opened():
        pass
    return task
