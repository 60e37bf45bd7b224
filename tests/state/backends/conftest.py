from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.state.backends import NAMES, Backend, BackendSupplier, supplier


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> BackendSupplier:
    """Each backend in turn."""
    return supplier(request.param)


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder whose syncs cost nothing, where there is one."""
    memory = Path("/dev/shm")  # noqa: S108
    if memory.is_dir() and shutil.disk_usage(memory).free > 1 << 30:
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            yield Path(folder)
    else:
        yield tmp_path


@pytest.fixture
def store(backend: BackendSupplier, tmp_path: Path) -> Iterator[Backend]:
    """An empty store of each backend in turn."""
    with backend.open(tmp_path / "store") as opened:
        yield opened
