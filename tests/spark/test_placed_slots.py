"""Slots of Spark jobs are made anew when executors come or go; tasks are placed by where their state is."""

from __future__ import annotations

import pytest
from tests.spark.lab import Lab
from tests.spark.programs import check_exact, two_levels, words

from millstream import Streams
from millstream.engine.spark import placed_slots
from millstream.engine.spark.engine import SparkEngine
from millstream.engine.spark.placed_slots import PlacedSlots
from millstream.errors import ConfigError

pytestmark = pytest.mark.xdist_group("spark")


def slots_of(app: Streams) -> PlacedSlots:
    engine = app._loop.engine
    assert isinstance(engine, SparkEngine)
    assert engine._slots is not None
    return engine._slots


def test_slots_follow_executors_and_those_that_can_t_run_tasks_are_left_out(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts = words(60, seed=81)
    lab.topic("in", [part[:10] for part in parts])
    monkeypatch.setattr(placed_slots, "_LOOKS_EVERY_S", 0.0)
    with lab.app(two_levels(), engine="jobs") as app:
        app.run(until="caught-up")
        first = slots_of(app).slots
        assert slots_of(app).held() == {}, "there was no state when it was made"

        monkeypatch.setattr(placed_slots, "_executors", lambda _: frozenset({"one more"}))
        for number, part in enumerate(parts):
            lab.append("in", part[10:20], partition=number)
        app.run(until="caught-up")
        second = slots_of(app).slots
        assert second is not first
        assert slots_of(app).held() == app._loop.engine.instances

        def refused(*_: object) -> None:
            raise ConfigError("no LOCAL_DISK on host mill")

        monkeypatch.setattr(placed_slots, "_executors", lambda _: frozenset({"one more", "a bad one"}))
        monkeypatch.setattr(placed_slots, "ask_slots", refused)
        for number, part in enumerate(parts):
            lab.append("in", part[20:], partition=number)
        app.run(until="caught-up")
        assert slots_of(app).slots is second
    assert caplog.text.count("can't run tasks, and is left out: no LOCAL_DISK on host mill") == 1
    check_exact(lab, "two_levels", parts)
