"""Slots of Spark jobs are made anew when executors come or go; tasks are placed by where their state is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.spark.lab import Lab
from tests.spark.programs import check_exact, one_level, two_levels, words

from millstream import Streams
from millstream.engine.spark import placed_slots, warmup
from millstream.engine.spark.engine import SparkEngine
from millstream.engine.spark.node import node_name
from millstream.engine.spark.placed_slots import PlacedSlots
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.stage_function import MakeWorker
from millstream.engine.spark.warmup import SlotInfo, ask_slots
from millstream.errors import ConfigError

pytestmark = pytest.mark.xdist_group("spark")


def slots_of(app: Streams) -> PlacedSlots:
    engine = app._loop.engine
    assert isinstance(engine, SparkEngine)
    return engine._running().slots


def held_by(app: Streams) -> set[tuple[str, str]]:
    """The tasks whose state slots have found on their instances when they were made."""
    return {(task, slot.instance) for slot in slots_of(app)._live.values() for task in slot.held}


def test_slots_follow_executors_and_those_that_can_t_run_tasks_are_left_out(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts = words(60, seed=81)
    lab.topic("in", [part[:10] for part in parts])
    monkeypatch.setattr(placed_slots, "_LOOKS_EVERY_S", 0.0)
    with lab.app(two_levels(), engine="jobs") as app:
        app.run(until="caught-up")
        first = slots_of(app).now.slots
        assert held_by(app) == set(), "there was no state when it was made"

        monkeypatch.setattr(placed_slots, "_executors", lambda _: frozenset({"one more"}))
        for number, part in enumerate(parts):
            lab.append("in", part[10:20], partition=number)
        app.run(until="caught-up")
        second = slots_of(app).now.slots
        assert second is not first
        assert held_by(app) == {*app._loop.engine.instances.items()}

        def refused(*_: object) -> None:
            raise ConfigError("no LOCAL_DISK on host mill")

        monkeypatch.setattr(placed_slots, "_executors", lambda _: frozenset({"one more", "a bad one"}))
        monkeypatch.setattr(placed_slots, "ask_slots", refused)
        for number, part in enumerate(parts):
            lab.append("in", part[20:], partition=number)
        app.run(until="caught-up")
        assert slots_of(app).now.slots is second
    assert caplog.text.count("can't run tasks, and is left out: no LOCAL_DISK on host mill") == 1
    check_exact(lab, "two_levels", parts)


@pytest.mark.parametrize(("left", "made"), [({"driver", "one", "two"}, 3), ({"driver", "one"}, 1)])
def test_after_a_failure_slots_are_made_until_each_executor_that_is_left_has_one_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, left: set[str], made: int
) -> None:
    """Tasks of the epoch that was given up hold its cores for a moment."""
    parts = words(60, seed=84)
    lab.topic("in", [part[:30] for part in parts])
    monkeypatch.setattr(placed_slots, "_LOOKS_EVERY_S", 0.0)
    monkeypatch.setattr(placed_slots, "_SURVIVORS_S", 600.0)
    on = iter([("one", "two"), ("one", "one"), ("one", "one"), ("one", "two")])
    asked: list[tuple[str, ...]] = []

    def ask(slots: Slots, make_worker: MakeWorker) -> list[SlotInfo]:
        asked.append(next(on))
        places = ask_slots(slots, make_worker)
        return [replace(place, executor=(name, 1)) for place, name in zip(places, asked[-1], strict=True)]

    monkeypatch.setattr(warmup, "ask_slots", ask)
    monkeypatch.setattr(placed_slots, "ask_slots", ask)
    monkeypatch.setattr(placed_slots, "_executors", lambda _: frozenset({"driver", "one", "two"}))
    with lab.app(two_levels(), engine="jobs") as app:
        app.run(until="caught-up")
        assert asked == [("one", "two")]
        monkeypatch.setattr(placed_slots, "_executors", lambda _: frozenset(left))
        slots_of(app).distrust()
        for number, part in enumerate(parts):
            lab.append("in", part[30:], partition=number)
        app.run(until="caught-up")
        assert len(asked) == 1 + made
    check_exact(lab, "two_levels", parts)


def test_an_application_says_where_its_tasks_run(lab: Lab) -> None:
    lab.topic("in", words(40, seed=83))
    with lab.app(one_level(), engine="jobs") as app:
        app.run(until="caught-up")
        rows = app.assignment()
        assert {(row.task, row.role, row.host) for row in rows} == {
            (task, "active", node_name()) for task in app._loop.engine.instances
        }
        assert all(row.version and row.lag == 0 for row in rows)
        assert app.query_metadata("counts", "river").active_host == node_name()


def test_slots_are_made_again_until_each_executor_has_one(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor that has just registered gets no tasks of Spark for a moment."""
    parts = words(60, seed=82)
    lab.topic("in", [part[:10] for part in parts])
    monkeypatch.setattr(placed_slots, "_LOOKS_EVERY_S", 0.0)
    monkeypatch.setattr(placed_slots, "_executors", lambda _: frozenset({"driver", "one", "two"}))
    with lab.app(two_levels(), engine="jobs") as app:
        app.run(until="caught-up")
        first = slots_of(app).now.slots
        assert len({place.executor for place in slots_of(app)._said}) == 1

        def on_two(slots: Slots, make_worker: MakeWorker) -> list[SlotInfo]:
            places = ask_slots(slots, make_worker)
            return [replace(place, executor=("here", number)) for number, place in enumerate(places)]

        monkeypatch.setattr(placed_slots, "ask_slots", on_two)
        for number, part in enumerate(parts):
            lab.append("in", part[10:20], partition=number)
        app.run(until="caught-up")
        second = slots_of(app).now.slots
        assert second is not first
        assert len({place.executor for place in slots_of(app)._said}) == 2

        for number, part in enumerate(parts):
            lab.append("in", part[20:], partition=number)
        app.run(until="caught-up")
        assert slots_of(app).now.slots is second
    check_exact(lab, "two_levels", parts)
