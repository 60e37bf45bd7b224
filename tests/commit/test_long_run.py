"""Many small epochs, with crashes: what an application holds on to does not grow.

1,500 epochs in the ordinary run, 5,000 with MILLSTREAM_SOAK=1.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.state.small_app import FastFiles, SmallApp

from millstream.testing.executor import InProcessExecutor

EPOCHS = 5_000 if os.environ.get("MILLSTREAM_SOAK") else 1_500
WORDS = [f"word-{number}" for number in range(200)]
LARGEST = 3
"""Disk, in multiples of the live state."""


def files_below(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def held(app: SmallApp) -> dict[str, int]:
    """What may not grow: files and bytes that the application keeps beside its input and output."""
    kept = files_below(app.application_folder, app.log_root / "sealed", app.state)
    changelog = files_below(app.log_root / "topics/app-counts-changelog")
    return {
        "files": len(files_below(app.log_root)),
        "bytes beside topics": sum(path.stat().st_size for path in kept),
        "bytes of the changelog": sum(path.stat().st_size for path in changelog),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - not a folder of files
    }


def live_bytes(app: SmallApp) -> int:
    """Keys, values and timestamps of the store, as its changelog writes them."""
    return sum(len(word) + 16 + 8 for word in set(app.words))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")
@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_files_disk_and_descriptors_stay_flat_over_many_epochs_with_crashes(
    tmp_path: Path, backend: str
) -> None:
    rng = random.Random(7)
    app = SmallApp(tmp_path / "app", backend, files=FastFiles(), retained_manifests=20)
    app.create()
    app.append(*WORDS)
    executor: InProcessExecutor = app.start()
    seen: list[dict[str, int]] = []
    epochs = EPOCHS if backend == "lmdb" else EPOCHS // 5
    for number in range(1, epochs + 1):
        app.append(*rng.choices(WORDS, k=3))
        executor.run_epoch()
        if number % 40 == 0:
            executor.tend(min_entries=32)
            seen.append(held(app))
        if rng.random() < 0.01:
            executor = app.start()  # the other one is never heard of again
    half = len(seen) // 2
    for what in seen[0]:
        early, late = (max(one[what] for one in part) for part in (seen[:half], seen[half:]))
        assert late <= 1.3 * early + 100, (what, early, late)
    executor.tend(min_entries=1)
    changelog = held(app)["bytes of the changelog"]
    assert changelog <= LARGEST * live_bytes(app) + 20_000, "what the last 20 epochs wrote is kept as it is"
    executor.close()
    found, expected = app.run(), app.expected()
    assert (found.counts, found.updates) == (expected.counts, expected.updates)
