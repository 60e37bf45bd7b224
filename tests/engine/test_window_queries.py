"""What an application shows of its windows: `window_store` and `session_store` on tables of the DSL."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream import (
    SessionWindows,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Window,
    Windowed,
    errors,
    serdes,
)
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.types import Partition

CLICKS = TopicPartition("clicks", Partition(0))


def app_in(folder: Path) -> Streams:
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=serdes.string, value=serdes.string).group_by_key()
    clicks.windowed_by(TimeWindows(10, grace=100)).count(store="per-window")
    clicks.windowed_by(SessionWindows(5, grace=100)).count(store="per-session")
    config = StreamsConfig(state_dir=folder / "state")
    return Streams(builder.build(), app_id="app", log=folder / "log", engine="local", config=config)


def append(folder: Path, *clicks: tuple[str, int]) -> None:
    log = FileLog(folder / "log")
    if not (folder / "log").exists():
        log.create_topic(CLICKS.topic)
    keys, times = [key.encode() for key, _ in clicks], [time for _, time in clicks]
    log.append(CLICKS, record_batch(keys, [b"x"] * len(clicks), times))


def test_windows_and_sessions_are_read_at_the_last_commit(tmp_path: Path) -> None:
    append(tmp_path, ("ann", 1), ("ann", 4), ("bob", 12))
    with app_in(tmp_path) as app:
        app.run(until="caught-up")
        windows, sessions = app.window_store("per-window"), app.session_store("per-session")
        assert windows.fetch("ann", 0) == 2
        assert list(windows.all()) == [
            (Windowed("ann", Window(0, 10)), 2),
            (Windowed("bob", Window(10, 20)), 1),
        ]
        assert list(sessions.fetch("ann")) == [(Windowed("ann", Window(1, 4)), 2)]

        append(tmp_path, ("ann", 8))
        app.run(until="caught-up")
        assert list(app.session_store("per-session").fetch("ann")) == [(Windowed("ann", Window(1, 8)), 3)]


def test_a_window_store_is_no_key_value_store(tmp_path: Path) -> None:
    append(tmp_path, ("ann", 1))
    with app_in(tmp_path) as app, pytest.raises(errors.StoreError) as caught:
        app.store("per-window")
    assert "window_store" in str(caught.value)
