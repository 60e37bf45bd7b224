"""Snapshots are taken beside the epochs, by Spark jobs of their own, and a lost disk comes back from them."""

from __future__ import annotations

import logging
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.spark.gated_snapshots import GatedSnapshots
from tests.spark.lab import Lab, about_jobs
from tests.spark.programs import counted, two_levels, words
from tests.state.retained_snapshots import changelog_positions

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.manifest import ManifestChain
from millstream.engine.epoch_result import EpochResult
from millstream.errors import ConfigError
from millstream.state.snapshots.storage import FolderStorage

pytestmark = pytest.mark.xdist_group("spark")


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb", "memory"])
def test_a_lost_disk_comes_back_from_snapshots_where_the_changelog_no_longer_reaches(
    lab: Lab, tmp_path: Path, backend: str
) -> None:
    settings: dict[str, Any] = {
        "snapshot_uri": tmp_path / "snapshots",
        "snapshot_interval_epochs": 1,
        "max_records_per_epoch": 20,
        "backend": backend,
    }
    parts = words(200, seed=21)
    lab.topic("in", [part[:60] for part in parts])
    lab.run(two_levels(), **settings)
    positions = changelog_positions(FolderStorage(tmp_path / "snapshots"), "app")
    assert {place.topic for place in positions} == {"app-counts-changelog"}
    assert len(positions) == 2
    for place, offsets in positions.items():
        lab.log.delete_before(place, offsets[-1])
    shutil.rmtree(lab.state_dir)
    for number, part in enumerate(parts):
        lab.append("in", part[60:], partition=number)
    lab.run(two_levels(), **settings)
    found = {row.text: row.number for row in lab.rows("out")}
    assert found == counted(parts)


@about_jobs  # where stores stay open, they are copied while their task waits
def test_a_snapshot_that_takes_longer_than_manifests_are_kept_is_as_good_as_any(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own manifest is pinned while it is at work; by that one it is known to be of this history."""
    few = partial(CoordinatorSettings, retained_manifests=2)
    monkeypatch.setattr("millstream.engine.loop.CoordinatorSettings", few)
    epochs, gate = 12, tmp_path / "gate"
    settings: dict[str, Any] = {
        "snapshot_uri": tmp_path / "snapshots",
        "snapshot_interval_epochs": epochs - 3,
        "maintenance_interval_epochs": 1,
        "max_records_per_epoch": 10,
        "backend": GatedSnapshots(gate=gate),
    }
    parts = words(2 * 10 * (epochs + 2), seed=23)
    lab.topic("in", [part[:-10] for part in parts])

    def open_the_gate_late(result: EpochResult) -> None:
        if result.manifest.epoch > epochs:
            gate.touch()

    with lab.app(two_levels(), **settings) as app:
        app.on_epoch(open_the_gate_late)
        app.run(until="caught-up")
    head = ManifestChain(ApplicationStorage(lab.folder / "log", "app")).latest()
    assert head is not None
    taken = [int(path.name[:20]) for path in (tmp_path / "snapshots").glob("app/*/*/*/manifests/*")]
    assert len(taken) == 2
    assert min(taken) < head.oldest
    for place, offsets in changelog_positions(FolderStorage(tmp_path / "snapshots"), "app").items():
        lab.log.delete_before(place, offsets[-1])
    shutil.rmtree(lab.state_dir)
    for number, part in enumerate(parts):
        lab.append("in", part[-10:], partition=number)
    lab.run(two_levels(), **settings)
    assert {row.text: row.number for row in lab.rows("out")} == counted(parts)


def test_epochs_go_on_when_snapshots_fail_and_the_coordinator_says_so(
    lab: Lab, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "snapshots").mkdir(mode=0o700)
    (tmp_path / "snapshots" / "app").write_text("in the way")
    parts = words(60, seed=22)
    lab.topic("in", parts)
    with caplog.at_level(logging.WARNING, "millstream"):
        lab.run(two_levels(), snapshot_uri=str(tmp_path / "snapshots"), snapshot_interval_epochs=1)
    assert {row.text: row.number for row in lab.rows("out")} == counted(parts)
    warnings = [message for message in caplog.messages if message.startswith("There is no new snapshot of")]
    assert warnings
    assert str(tmp_path / "snapshots" / "app") in warnings[0]
    assert warnings[0].endswith("The application goes on without it.")


def test_a_place_that_can_not_be_one_is_refused_before_anything_runs(lab: Lab) -> None:
    with pytest.raises(ConfigError, match="snapshot_uri is 's4://bucket', which pyarrow"):
        lab.app(two_levels(), snapshot_uri="s4://bucket")
