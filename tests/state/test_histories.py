"""Local state belongs to one history of one application, and its changelog to nobody else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.state.small_app import SmallApp

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.checks import ForeignChangelogError
from millstream.commit.manifest import ManifestChain
from millstream.log.api import TopicPartition
from millstream.log.blocks import record_batch
from millstream.types import Epoch, Partition


def _application(root: Path, *words: str) -> SmallApp:
    root.mkdir(mode=0o700, parents=True)
    app = SmallApp(root, "lmdb")
    app.create()
    for word in words:
        app.append(word)
        app.run()
    return app


def test_a_row_that_somebody_else_wrote_to_a_changelog_is_refused(tmp_path: Path) -> None:
    app = _application(tmp_path / "app", "a")
    place = TopicPartition("app-counts-changelog", Partition(0))
    app.log().append(place, record_batch([b"zzz"], [bytes(16)], [0]))
    app.append("a", "c")
    with pytest.raises(ForeignChangelogError) as caught:
        app.run()
    assert "ends at offset 2, but the last commit wrote it up to 1" in str(caught.value)
    assert "Nothing was committed" in str(caught.value)


def test_state_of_another_log_is_removed_and_restored(tmp_path: Path) -> None:
    other = _application(tmp_path / "other", "x", "y")
    app = _application(tmp_path / "app", "p", "q", "p", "s")
    shutil.rmtree(app.state)
    shutil.copytree(other.state, app.state)
    app.append("q")
    app.run()
    assert app.run().counts == app.expected().counts


def test_a_witness_never_goes_back(tmp_path: Path) -> None:
    app = _application(tmp_path / "app", "a", "b", "c")
    chain = ManifestChain(ApplicationStorage(app.log().root, "app"))
    head = chain.head()
    assert head is not None
    before = ApplicationStorage(app.log().root, "app").witness.read_bytes()
    chain.witness(chain.read(Epoch(head.epoch - 1)))
    assert ApplicationStorage(app.log().root, "app").witness.read_bytes() == before
