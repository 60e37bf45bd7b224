"""The loop of an application on the local engine: epochs, snapshots and maintenance, and no Spark."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.state.small_app import SmallApp, word_count

from millstream import StreamsConfig, throttler
from millstream.commit.application_storage import ApplicationStorage
from millstream.engine.epoch_result import EpochResult
from millstream.engine.local import LocalEngine
from millstream.engine.loop import EpochLoop
from millstream.engine.program import Program, make_worker
from millstream.engine.totals import Totals
from millstream.maintenance.maintenance import Maintenance
from millstream.state.backends import memory


@contextmanager
def loop_of(app: SmallApp, *listeners: Any, **settings: Any) -> Iterator[EpochLoop]:
    """A loop that is open; its process has no memory of one before."""
    memory._kept.clear()
    config = StreamsConfig(state_dir=app.state, backend=app.backend, **settings)
    storage = ApplicationStorage(app.log_root, "app")
    program = Program.of(word_count(), storage, app.log().address, config)
    engine = LocalEngine(partial(make_worker, program))
    loop = EpochLoop(storage, app.log(), word_count().plan(), engine, config, listeners)
    loop.open()
    try:
        yield loop
    finally:
        loop.close()


def app_of(folder: Path) -> SmallApp:
    app = SmallApp(folder / "app", "memory")
    app.create()
    return app


def run_to_the_end(loop: EpochLoop) -> list[EpochResult]:
    results: list[EpochResult] = []
    while (result := loop.run_epoch(tick=False)) is not None:
        results.append(result)
    return results


def test_listeners_are_told_of_every_epoch_with_what_it_did(tmp_path: Path) -> None:
    app, totals, told = app_of(tmp_path), Totals(), list[EpochResult]()
    app.append("to", "the", "river", "to")
    with loop_of(app, totals.note, told.append, max_records_per_epoch=3) as loop:
        results = run_to_the_end(loop)
    assert told == results
    assert [(result.records, result.has_backlog) for result in results] == [(3, True), (1, False)]
    assert (totals.epochs, totals.as_dict()["records"]) == (2, 4)
    assert app.result().updates == app.expected().updates


def test_a_lost_disk_comes_back_from_snapshots_that_were_taken_beside_the_epochs(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    settings: dict[str, Any] = {"snapshot_uri": tmp_path / "snapshots", "snapshot_interval_epochs": 1}
    app.append("to", "the", "river", "to")
    with loop_of(app, **settings) as loop:
        run_to_the_end(loop)
    assert len(list((tmp_path / "snapshots").glob("app/*/*/*/manifests/*"))) == 2, "one of each store"
    shutil.rmtree(app.state)
    app.append("sea", "to")
    with loop_of(app, **settings) as loop:
        run_to_the_end(loop)
    assert app.run() == app.expected(), "also the store without a changelog"


def test_maintenance_comes_after_so_many_epochs(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    with loop_of(app, maintenance_interval_epochs=4) as loop:
        for word in ("to", "the", "river", "to"):
            app.append(word)
            lost = loop.coordinator.storage.sealed_file(loop.coordinator.head.epoch, "0_0", 0, 1, 77)  # type: ignore[arg-type]
            lost.parent.mkdir(mode=0o700, exist_ok=True)
            lost.write_bytes(b"of an attempt that lost")
            run_to_the_end(loop)
    assert not lost.exists()
    assert app.run() == app.expected()


def test_maintenance_gives_way_to_an_epoch_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app, went_on, is_held = app_of(tmp_path), threading.Event(), list[bool]()

    def work(_maintenance: Maintenance) -> None:
        time.sleep(0.01)
        throttler.maybe_throttle()
        went_on.set()

    monkeypatch.setattr(throttler, "SMALL_EPOCH_S", 3600.0)
    monkeypatch.setattr(Maintenance, "run", work)
    app.append("to", "the", "river")
    with loop_of(
        app, lambda _: is_held.append(not went_on.wait(0.05)), maintenance_interval_epochs=1
    ) as loop:
        loop.run_epoch(tick=False)
        assert is_held == [True]
        assert went_on.wait(60)
