"""When the next epoch begins: the trigger interval, and what cuts it short. No Spark runs here."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.spark.programs import one_level

from millstream import Streams, StreamsConfig
from millstream.commit.manifest import Manifest
from millstream.engine.epoch_result import EpochResult
from millstream.types import Epoch, Term

MANIFEST = Manifest("app", Epoch(1), Term(1), "", "", 0, (), {}, (), ())
HOUR_MS = 3_600_000


def epoch(*, commit_requested: bool = False, has_backlog: bool = False) -> EpochResult:
    return EpochResult(MANIFEST, 1, 0.1, commit_requested, {}, has_backlog)


class Script:
    """A loop that does what the test says, then ends the application."""

    def __init__(self, results: Iterable[EpochResult | None]) -> None:
        self._results: Iterator[EpochResult | None] = iter(results)
        self.is_over = False
        self.has_backlog = False
        self.is_idling = False
        self.coordinator = SimpleNamespace(lease=SimpleNamespace(predecessor=None, term=1), head=MANIFEST)
        self.engine = SimpleNamespace(cancel=lambda: True)

    def open(self, *, until_caught_up: bool) -> None: ...

    def close(self) -> None: ...

    def finish(self) -> None: ...

    def wait_for_records(self, interval_s: float, longest_s: float, stop: threading.Event) -> None:
        stop.wait(min(interval_s, longest_s))

    def run_epoch(self, *, tick: bool) -> EpochResult | None:
        result = next(self._results, "over")
        if isinstance(result, str):
            self.is_over = True
            return epoch(has_backlog=True)
        return result


def waits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *results: EpochResult | None, for_ever: bool = True
) -> list[float]:
    """How long the application wanted to wait after each epoch; it does not really wait."""
    app = Streams(one_level(), app_id="app", log=tmp_path, config=StreamsConfig(commit_interval_ms=HOUR_MS))
    script = Script(results)
    monkeypatch.setattr(app, "_loop", script)
    waited: list[float] = []
    monkeypatch.setattr(app._stop, "wait", waited.append)
    if for_ever:
        app.run(until=lambda _: script.is_over)
    else:
        app.run(until=timedelta(seconds=0))
    return waited


def test_an_epoch_that_left_nothing_behind_is_followed_by_the_rest_of_the_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (waited,) = waits(monkeypatch, tmp_path, epoch())
    assert 0 < waited < HOUR_MS / 1000, "the epoch itself is a part of the interval"


def test_an_idle_application_waits_for_a_whole_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert waits(monkeypatch, tmp_path, None, None) == pytest.approx([HOUR_MS / 1000] * 2)


def test_records_that_did_not_fit_are_taken_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert waits(monkeypatch, tmp_path, epoch(has_backlog=True)) == []


def test_a_commit_that_was_asked_for_cuts_the_interval_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert waits(monkeypatch, tmp_path, epoch(commit_requested=True)) == []


def test_nobody_waits_beyond_the_time_that_was_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert waits(monkeypatch, tmp_path, epoch(), for_ever=False) == [0.0]


def test_catching_up_waits_for_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = Streams(one_level(), app_id="app", log=tmp_path)
    monkeypatch.setattr(app, "_loop", cast("object", Script([epoch(), epoch(), None])))
    monkeypatch.setattr(app._stop, "wait", lambda _: pytest.fail("it waited"))
    app.run(until="caught-up")


def test_one_has_not_caught_up_while_records_wait_for_somebody_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Left(Script):
        """Two epochs are left out before the last ones."""

        def run_epoch(self, *, tick: bool) -> EpochResult | None:
            planned.append(tick)
            self.has_backlog = len(planned) <= 2
            return super().run_epoch(tick=tick)

    planned: list[bool] = []
    app = Streams(one_level(), app_id="app", log=tmp_path)
    monkeypatch.setattr(app, "_loop", cast("object", Left([None, None, epoch(), None])))
    app.run(until="caught-up")
    assert planned == [False] * 4
