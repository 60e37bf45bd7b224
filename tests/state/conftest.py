from __future__ import annotations

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
