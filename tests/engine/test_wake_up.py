"""An append wakes an application that has nothing to do."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from millstream import Streams, StreamsBuilder, StreamsConfig
from millstream.engine import loop
from millstream.engine.epoch_result import EpochResult
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.types import Partition

LINES = TopicPartition("lines", Partition(0))
HOUR_S = 3_600.0


def copied(folder: Path) -> Streams:
    builder = StreamsBuilder()
    builder.stream("lines").to("copies")
    config = StreamsConfig(state_dir=folder / "state", commit_interval_ms=1)
    return Streams(builder.build(), app_id="copy", log=folder / "log", engine="local", config=config)


def append(log: FileLog) -> None:
    log.append(LINES, record_batch([b"key"], [b"line"], [1]))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of writes")
def test_lone_records_are_taken_when_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks for them within the hour: each would wait for ever if nobody told of it."""
    monkeypatch.setattr(loop, "_LOOK_S", HOUR_S)
    log = FileLog(tmp_path / "log")
    log.create_topic("lines")
    is_taken = threading.Event()
    taken: list[int] = []

    def note(result: EpochResult) -> None:
        taken.append(result.records)
        is_taken.set()

    with copied(tmp_path) as app:
        app.on_epoch(note)
        app.start()
        for _ in range(5):
            is_taken.clear()
            append(log)
            assert is_taken.wait(60)
    assert taken == [1] * 5


def test_where_nobody_tells_records_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileLog, "watch", lambda *_: None)
    log = FileLog(tmp_path / "log")
    log.create_topic("lines")
    is_taken = threading.Event()
    with copied(tmp_path) as app:
        app.on_epoch(lambda _: is_taken.set())
        app.start()
        append(log)
        assert is_taken.wait(60)


def test_an_application_that_waits_for_records_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_LOOK_S", HOUR_S)
    FileLog(tmp_path / "log").create_topic("lines")
    app = copied(tmp_path)
    is_waiting = threading.Event()
    real = loop.EpochLoop.wait_for_records

    def waiting(self: loop.EpochLoop, *args: float | threading.Event) -> None:
        is_waiting.set()
        real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(loop.EpochLoop, "wait_for_records", waiting)
    app.start()
    assert is_waiting.wait(60)
    app.close()
    assert app.state.value == "not running"


def test_somebody_who_runs_for_a_time_does_not_wait_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_LOOK_S", HOUR_S)
    FileLog(tmp_path / "log").create_topic("lines")
    with copied(tmp_path) as app:
        app.run(until=0.1)
        assert app.state.value == "running"
