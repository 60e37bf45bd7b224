"""What an application tells at INFO: that it starts, whom it took over from, that it stopped."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.engine.test_local_streams import app_in, append

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.lease import acquire


def told_by_a_run(folder: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.INFO, "millstream"), app_in(folder) as app:
        app.run(until="caught-up")
    return [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]


def test_start_and_stop_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(tmp_path, "river")
    assert told_by_a_run(tmp_path, caplog) == [
        "Application 'app' starts on the local engine",
        "Application 'app' runs from epoch 1 on (term 1)",
        "Application 'app' has stopped after 1 epochs",
    ]


def test_a_takeover_is_told_with_who_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(tmp_path, "river")
    dead = acquire(ApplicationStorage(tmp_path / "log", "app"), clock=lambda: 0, ttl_ms=1)
    _, takeover, running, _ = told_by_a_run(tmp_path, caplog)
    assert takeover == f"Application 'app' is taken over from {dead.owner}, which ended without letting go"
    assert running == "Application 'app' runs from epoch 1 on (term 2)"
