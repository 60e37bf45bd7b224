"""A store is opened and closed every epoch, for years: nothing may pile up."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from millstream.state.backends import BackendSupplier

CYCLES: Final = 2000


@dataclass(frozen=True, slots=True)
class Usage:
    files: int
    descriptors: int
    disk_kb: int
    open_s: float


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")
def test_files_descriptors_disk_and_open_time_stay_flat(backend: BackendSupplier, quick_path: Path) -> None:
    used = [_one_cycle(backend, quick_path / "store", number) for number in range(CYCLES)]
    quarter = len(used) // 4
    early, late = used[quarter : 2 * quarter], used[-quarter:]
    assert max(u.files for u in late) <= max(u.files for u in early) + 2
    assert max(u.descriptors for u in late) <= max(u.descriptors for u in early)
    assert max(u.disk_kb for u in late) <= max(u.disk_kb for u in early) + 64
    assert statistics.median(u.open_s for u in late) <= 3 * statistics.median(u.open_s for u in early) + 0.005
    assert max(u.files for u in late) <= 40


def _one_cycle(backend: BackendSupplier, path: Path, number: int) -> Usage:
    started = time.perf_counter()
    with backend.open(path) as store:
        opened = time.perf_counter() - started
        assert store.marker() == (b"%d" % (number - 1) if number else None)
        store.write([(b"%03d" % n, b"%d" % number * 10) for n in range(100)], marker=b"%d" % number)
        assert len(list(store.scan(b"010", b"020"))) == 10
    files = list(path.iterdir())
    disk_kb = sum(file.stat().st_blocks for file in files) // 2
    return Usage(len(files), len(list(Path("/proc/self/fd").iterdir())), disk_kb, opened)
