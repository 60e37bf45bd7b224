"""What an application says of the places of its tasks, and how it empties a host, on a local engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.test_standby_process import until
from tests.spark.lab import Lab
from tests.spark.programs import one_level, words

from millstream import State, Streams
from millstream.engine.assignment.view import AssignedTask
from millstream.log.partitioner import partition_for_key

ROWS = [
    AssignedTask(task="0_0", role="active", host="river", instance="a", slot=0, lag=0),
    AssignedTask(task="0_0", role="standby", host="brook", instance="b", slot=1, lag=7),
    AssignedTask(task="0_1", role="active", host="brook", instance="b", slot=1, lag=0),
    AssignedTask(task="0_1", role="standby", host="river", instance="a", slot=0, lag=0),
    AssignedTask(task="0_1", role="warm-up", host="marsh", instance="c", slot=2, lag=90),
]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    lab = Lab(tmp_path / "lab", None)
    lab.engine = "local"
    lab.topic("in", words(20, seed=1))
    with lab.app(one_level()) as app:
        monkeypatch.setattr(app._loop.engine, "assigned", lambda: ROWS)
        app.start()
        until(lambda: app.state is State.RUNNING)
        yield app


@pytest.mark.parametrize(
    ("task", "active", "lags"), [("0_0", "river", {"brook": 7}), ("0_1", "brook", {"river": 0})]
)
def test_a_key_is_found_with_its_host_and_the_hosts_of_its_standbys(
    app: Streams, task: str, active: str, lags: dict[str, int]
) -> None:
    key = next(
        word
        for word in ("river", "rain", "mill", "stone")
        if f"0_{partition_for_key(word.encode(), 2)}" == task
    )
    found = app.query_metadata("counts", key)
    assert (found.store, found.task, found.partition) == ("counts", task, int(task[-1]))
    assert (found.active_host, found.standby_hosts, found.lags) == (active, tuple(lags), lags)


def test_a_host_is_drained_when_nothing_is_there_any_more(
    app: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, told, rows = app._loop.engine, list[tuple[str, bool]](), [*ROWS]
    one_at_a_time = threading.Lock()

    def drain(host: str, *, is_over: bool = False) -> None:
        told.append((host, is_over))

    def assigned() -> list[AssignedTask]:
        """Each time that it is asked, also by the application itself, something has left the host."""
        with one_at_a_time:
            if told:
                left = next((row for row in rows if row.host == "river"), None)
                if left is not None:
                    rows.remove(left)
            return list(rows)

    monkeypatch.setattr(engine, "drain", drain)
    assert not app.drain("brook", timeout_s=0.0), "it has tasks still"
    monkeypatch.setattr(engine, "assigned", assigned)
    assert app.drain("river", timeout_s=60.0)
    assert [row.host for row in rows] == ["brook", "brook", "marsh"]
    app.undrain("river")
    assert told == [("brook", False), ("river", False), ("river", True)]
