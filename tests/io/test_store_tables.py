"""Stores as tables: every kind, at the last commit and at epochs that are retained."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from millstream import (
    Producer,
    SessionWindows,
    Store,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    serdes,
)
from millstream.errors import StoreError


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.fixture
def app(tmp_path: Path) -> Any:
    """Clicks counted by key, by minute and by session; and prices with their history."""
    builder = StreamsBuilder()
    stream = builder.stream("clicks", key=serdes.string, value=serdes.int64)
    clicks = stream.group_by_key()
    clicks.count(store="counts")
    clicks.windowed_by(TimeWindows(60_000)).count(store=Store("minutes", retention_ms=3_600_000))
    clicks.windowed_by(SessionWindows(10_000)).count(store=Store("visits", retention_ms=3_600_000))
    stream.to_table(store=Store("last", versioned=3_600_000))
    config = StreamsConfig(state_dir=tmp_path / "state")
    Producer(tmp_path / "log", "clicks", partitions=2)
    with Streams(
        builder.build(), app_id="clicks", log=tmp_path / "log", engine="local", config=config
    ) as streams:
        yield streams


def click(tmp_path: Path, *clicks: tuple[str, int, int]) -> None:
    with Producer(tmp_path / "log", "clicks", key=serdes.string, value=serdes.int64) as producer:
        for key, value, time in clicks:
            producer.send(key, value, timestamp=time)


def rows(table: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values())[1:] for row in table.to_pylist())


def test_every_kind_of_store_is_a_table(app: Streams, tmp_path: Path) -> None:
    click(tmp_path, ("ann", 1, 0), ("bob", 2, 5_000), ("ann", 3, 61_000))
    app.run(until="caught-up")
    counts = app.store("counts").to_arrow()
    assert counts.column_names == ["partition", "key", "value", "timestamp"]
    assert rows(counts) == [("ann", 2, at(61_000)), ("bob", 1, at(5_000))]
    minutes = app.window_store("minutes").to_arrow()
    assert minutes.column_names == ["partition", "start", "end", "key", "value", "timestamp"]
    assert rows(minutes) == [
        (at(0), at(60_000), "ann", 1, at(0)),
        (at(0), at(60_000), "bob", 1, at(5_000)),
        (at(60_000), at(120_000), "ann", 1, at(61_000)),
    ]
    visits = app.session_store("visits").to_arrow()
    assert visits.column_names == ["partition", "start", "end", "key", "value"]
    assert rows(visits) == [
        (at(0), at(0), "ann", 1),
        (at(5_000), at(5_000), "bob", 1),
        (at(61_000), at(61_000), "ann", 1),
    ]
    assert rows(app.versioned_store("last").to_arrow()) == [("ann", 3, at(61_000)), ("bob", 2, at(5_000))]


def test_a_store_is_shown_as_it_was_at_a_retained_epoch(app: Streams, tmp_path: Path) -> None:
    store = app.store("counts")
    click(tmp_path, ("ann", 1, 0))
    app.run(until="caught-up")
    first = store.to_polars().height and store.version
    click(tmp_path, ("ann", 1, 1), ("bob", 1, 2))
    app.run(until="caught-up")
    assert rows(store.to_arrow(epoch=first)) == [("ann", 1, at(0))]
    assert rows(store.to_arrow()) == rows(store.to_arrow(epoch=store.version))
    assert [row[:2] for row in rows(store.to_arrow())] == [("ann", 2), ("bob", 1)]


def test_an_epoch_that_is_not_there_is_refused_and_told_which_are(app: Streams, tmp_path: Path) -> None:
    click(tmp_path, ("ann", 1, 0))
    app.run(until="caught-up")
    with pytest.raises(StoreError, match=r"at epoch 99: the epochs that are retained are 1 to \d"):
        app.store("counts").to_arrow(epoch=99)


def test_a_store_that_has_nothing_is_a_table_with_types(app: Streams) -> None:
    frame = app.window_store("minutes").to_polars()
    assert (frame.height, frame.columns[1:4]) == (0, ["start", "end", "key"])
