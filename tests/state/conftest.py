from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.state.one_task import APPLICATION, Listener, OneTask

from millstream.log import FileLog
from millstream.state.backends import NAMES
from millstream.state.local.directory import open_state_directory


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend in turn."""
    name: str = request.param
    return name


@pytest.fixture
def task(tmp_path: Path, backend: str) -> OneTask:
    """A task without stores, on each backend in turn."""
    tmp_path.chmod(0o700)
    directory = open_state_directory(tmp_path / "state").task(APPLICATION, "0_0")
    return OneTask(FileLog(tmp_path / "log"), directory, backend)


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where the system has such: for tests that start an application a thousand times."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="millstream-") as folder:
        yield Path(folder)
