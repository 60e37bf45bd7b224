"""Bugs planted in slots: each is caught by a scenario that passes without it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.engine.test_resident_slots import lose, running
from tests.spark.lab import Lab
from tests.spark.programs import check_exact, two_levels, words
from tests.spark.test_workers import counting
from tests.state.test_open_stores import Life

from millstream import Store, StreamsBuilder, Topology, failpoints, serdes
from millstream.commit.reports import EpochMismatchError
from millstream.engine.spark.resident.connection import ConnectionLostError, connect
from millstream.engine.spark.resident.inbox import Inbox
from millstream.engine.spark.resident.messages import EpochAttempt, EpochDone, RunEpoch, Stop
from millstream.engine.spark.resident.slot import Slot
from millstream.engine.spark.resident.slot_pool import SlotPool
from millstream.errors import MillstreamError
from millstream.state.local.hot_cells import HotCells
from millstream.state.local.open_stores import OpenStores, Sealed, _identity
from millstream.state.local.task_stores import TaskVersion
from millstream.state.stores.cell_store import CellStore, Frozen

LOCK_TIMEOUT_MS = 60_000
SHORT_LOCK_TIMEOUT_MS = 2_000
"""Of slots that do not let go."""


def told_apart(attempt_of_rows: Callable[[str], str]) -> Topology:
    """Rows carry what a function says: what an attempt has sent, and what was counted, must be the same."""
    builder = StreamsBuilder()
    rows = builder.stream("in", key=serdes.string, value=serdes.string).map_values(attempt_of_rows)
    rows.to("sent", key=serdes.string, value=serdes.string)
    counts = rows.group_by(lambda _, value: value).count(store=Store("counts", caching=False))
    counts.to_stream().to("counted", key=serdes.string, value=serdes.int64)
    return builder.build()


def a_slot_is_lost_between_levels(lab: Lab) -> None:
    """The slots that are left have the rows of the first attempt when the second one begins."""
    lab.topic("in", words(100, seed=1, partitions=4))
    runs: dict[str, int] = {}
    guard = threading.Lock()
    lost = threading.Event()

    def tagged(value: str) -> str:
        with guard:
            runs[value] = runs.get(value, 0) + 1
        return f"{value} {runs[value]}"

    send = Slot._send

    def lose_a_slot(slot: Slot, command: RunEpoch, level: int, receiver: int, *args: Any) -> None:
        send(slot, command, level, receiver, *args)
        if slot._assigned.slot == 0 and command.of.attempt == 2 and not lost.is_set():
            lost.set()
            lose(app, 3 - receiver)
            time.sleep(0.2)  # so that its rows have arrived before the attempt is given up

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slot, "_send", lose_a_slot)
        with running(lab, told_apart(tagged), 3, max_records_per_epoch=5) as app:
            app.run()
            assert [
                failure for failure in app.engine.failures if isinstance(failure, EpochMismatchError)
            ] == []
    assert lost.is_set()
    sent = {(row.value or b"").decode() for row in lab.rows("sent")}
    assert sum(len(values) for values in lab.by_key("counted").values()) == 100
    assert set(lab.by_key("counted")) == sent


def a_report_comes_late(lab: Lab) -> None:
    """A slot reports an attempt that was given up, just when the next one runs."""
    lab.topic("in", parts := words(100, seed=2, partitions=4))
    late: list[tuple[Slot, EpochDone]] = []

    def counting() -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=serdes.string, value=serdes.string)
        stream.group_by_key().count(store=Store("counts", caching=False)).to_stream().to(
            "out", key=serdes.string, value=serdes.int64
        )
        return builder.build()

    run_levels = Slot._run_levels

    def reporting_twice(slot: Slot, command: RunEpoch) -> Any:
        if late and command.of > late[0][1].of:
            _, report = late.pop()
            slot._connection.send(report)
        reports = run_levels(slot, command)
        if slot._assigned.slot == 0 and command.of.attempt == 2:
            late.append((slot, EpochDone(command.of, tuple(reports))))
            lose(app, 1)
        return reports

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slot, "_run_levels", reporting_twice)
        with running(lab, counting(), 2, max_records_per_epoch=5) as app:
            app.run()
            assert {type(failure).__name__ for failure in app.engine.failures} == {"SlotLostError"}
    assert late == []
    check_exact(lab, "one_level", parts)


def an_epoch_is_given_up(lab: Lab) -> None:
    """What it has made is not what the next attempt makes, for more records have come."""
    stays, follows = (
        Life(lab.folder / str(number), "ledger", "lmdb", open_stores)
        for number, open_stores in enumerate([OpenStores(), None])
    )
    for life in (stays, follows):
        life.run(2)
        life.append()
        with failpoints.armed("commit.checked"), pytest.raises(failpoints.InjectedCrash):
            life.executor.run_epoch()
        life.run(2)
    assert stays.content() == follows.content()


def an_epoch_of_lists_is_given_up(lab: Lab) -> None:
    """A list is changed in place by an attempt that is given up, and by the one after it."""
    parts = words(60, seed=4)
    lab.topic("in", [part[:10] for part in parts])

    def added(_: str, value: str, so_far: list[str]) -> list[str]:
        so_far.append(value)
        return so_far

    builder = StreamsBuilder()
    words_of = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    lists = words_of.aggregate(list, added, store=Store("lists", caching=False), value=serdes.json)
    lists.to_stream().map_values(len).to("out", key=serdes.string, value=serdes.int64)
    with running(lab, builder.build(), 1) as app:
        app.run()
        for number, part in enumerate(parts):
            lab.append("in", part[10:], partition=number)
        with failpoints.armed("commit.checked"), pytest.raises(failpoints.InjectedCrash):
            app.run()
        app.run()
    check_exact(lab, "one_level", parts)


def a_slot_is_fenced_while_it_works(lab: Lab) -> None:
    """It has its stores open, and does not know of it. Another slot goes on with its tasks."""
    lab.topic("in", parts := words(200, seed=5))
    fenced = threading.Event()

    def fence_it(_: str, value: str) -> None:
        if value == "weir" and lab.committed() >= 100 and not fenced.is_set():
            fenced.set()
            pool = app.engine.pool
            pool.fence(pool.live()[app.engine.tasks.assignment.slots()["0_0"]])

    settings = {"max_records_per_epoch": 25, "lock_timeout_ms": LOCK_TIMEOUT_MS}
    with running(lab, counting(fence_it), 2, **settings) as app:
        app.run()
    assert fenced.is_set()
    check_exact(lab, "two_levels", parts)


def a_fenced_slot_calls_again(lab: Lab) -> None:
    """It knows the secret, but its place is not its any more."""
    lab.topic("in", parts := words(60, seed=6))
    with running(lab, two_levels(), max_records_per_epoch=20) as app:
        app.loop.run_epoch(tick=False)
        pool = app.engine.pool
        member = pool.live()[1]
        pool.fence(member)
        try:
            connect(pool.address, member.incarnation, pool._secret, 5.0).close()
            is_let_in = True
        except ConnectionLostError:
            is_let_in = False
        assert not is_let_in
        app.run()
    check_exact(lab, "two_levels", parts)


# The bugs ---------------------------------------------------------------------------------------------------


def bundles_of_older_attempts_are_taken(patch: pytest.MonkeyPatch) -> None:
    wait, end = Inbox.wait, Inbox.end

    def keep(inbox: Inbox, attempt: EpochAttempt) -> None:
        kept = dict(inbox._bundles)
        end(inbox, attempt)
        inbox._bundles.update(kept)

    def take(inbox: Inbox, attempt: EpochAttempt, level: int, senders: Any, peers: Any) -> Any:
        for (of, at, sender), bundle in list(inbox._bundles.items()):
            is_older = of < attempt and (of.epoch, at) == (attempt.epoch, level)
            if is_older and sender in senders and bundle[0].sender_incarnation == peers[sender].incarnation:
                inbox._bundles[attempt, at, sender] = bundle
        return wait(inbox, attempt, level, senders, peers)

    patch.setattr(Inbox, "end", keep)
    patch.setattr(Inbox, "wait", take)


def reports_of_older_attempts_are_taken(patch: pytest.MonkeyPatch) -> None:
    take = SlotPool._take

    def take_any(pool: SlotPool, number: int, incarnation: str, message: Any) -> None:
        if isinstance(message, EpochDone) and pool._attempt is not None:
            message = EpochDone(pool._attempt, message.reports)
        take(pool, number, incarnation, message)

    patch.setattr(SlotPool, "_take", take_any)


def an_overlay_is_kept_after_an_abort(patch: pytest.MonkeyPatch) -> None:
    at = OpenStores._at

    def at_any(stores: OpenStores, task_id: str, wanted: TaskVersion, newer: Any) -> Any:
        sealed, held = stores._sealed.get(task_id), stores._held.get(task_id)
        if sealed is not None and held is not None and sealed.version == wanted.version:
            stores._sealed[task_id] = Sealed(*_identity(wanted), _identity(held.version), sealed.changes)
        found = at(stores, task_id, wanted, newer)
        if sealed is not None and sealed.version > wanted.version:
            stores._sealed[task_id] = sealed
        return found

    def sealed_once(stores: OpenStores, task_id: str, sealed: Sealed) -> None:
        before = stores._sealed.get(task_id)
        if before is None or before.version != sealed.version:
            stores._sealed[task_id] = sealed

    patch.setattr(OpenStores, "_at", at_any)
    patch.setattr(OpenStores, "sealed", sealed_once)


def cells_outlive_their_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HotCells, "written", lambda _cells, _entries: None)


def cells_hold_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """The overlay of an attempt goes into the cells when it is sealed, and not when it is committed."""
    real = OpenStores.sealed

    def sealed(stores: OpenStores, task_id: str, made: Sealed) -> None:
        for name, cells in stores._held[task_id]._cells.items():
            cells.written(made.changes[name])
        real(stores, task_id, made)

    patch.setattr(OpenStores, "sealed", sealed)


def objects_are_remembered(patch: pytest.MonkeyPatch) -> None:
    """What was decoded once is given to every reader of the same bytes, in whatever epoch."""
    remembered: dict[bytes, Any] = {}

    def thawed(store: CellStore[Any], value: Any) -> Any:
        if type(value) is not Frozen:
            return value
        if value.data not in remembered:
            remembered[value.data] = store.value_serde.deserialize(value.data)
        return remembered[value.data]

    patch.setattr(CellStore, "thawed", thawed)


def fenced_slots_go_on(patch: pytest.MonkeyPatch) -> None:
    """Until Spark has ended them, say: they wait for commands, with their stores open."""
    obey = Slot._obey

    def obey_anyway(slot: Slot, command: Any) -> None:
        with suppress(ConnectionLostError):
            obey(slot, command)

    def stay(slot: Slot) -> None:
        threading.Timer(3 * SHORT_LOCK_TIMEOUT_MS / 1000, slot._commands.put, [Stop()]).start()

    patch.setattr(sys.modules[__name__], "LOCK_TIMEOUT_MS", SHORT_LOCK_TIMEOUT_MS)
    patch.setattr(Slot, "_obey", obey_anyway)
    patch.setattr(Slot, "_leave", stay)


def fenced_slots_are_expected(patch: pytest.MonkeyPatch) -> None:
    class Kept(dict[str, int]):
        def pop(self, name: str, *_: Any) -> Any:
            return self.get(name)

        def __delitem__(self, name: str) -> None: ...

    expect = SlotPool._expect

    def expect_for_ever(pool: SlotPool, number: int) -> str:
        if not isinstance(pool._expected, Kept):
            pool._expected = Kept(pool._expected)
        return expect(pool, number)

    patch.setattr(SlotPool, "_expect", expect_for_ever)


@dataclass(frozen=True, slots=True)
class Bug:
    plant: Callable[[pytest.MonkeyPatch], None]
    scenario: Callable[[Lab], None]


BUGS = [
    Bug(bundles_of_older_attempts_are_taken, a_slot_is_lost_between_levels),
    Bug(reports_of_older_attempts_are_taken, a_report_comes_late),
    Bug(an_overlay_is_kept_after_an_abort, an_epoch_is_given_up),
    Bug(cells_outlive_their_version, an_epoch_is_given_up),
    Bug(cells_hold_what_is_not_committed, an_epoch_of_lists_is_given_up),
    Bug(objects_are_remembered, an_epoch_of_lists_is_given_up),
    Bug(fenced_slots_go_on, a_slot_is_fenced_while_it_works),
    Bug(fenced_slots_are_expected, a_fenced_slot_calls_again),
]


@pytest.mark.parametrize("scenario", {bug.scenario: None for bug in BUGS}, ids=lambda one: one.__name__)
def test_without_a_bug_all_is_well(scenario: Callable[[Lab], None], tmp_path: Path) -> None:
    scenario(Lab(tmp_path / "lab", None))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug: Bug, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    with pytest.raises((AssertionError, MillstreamError)):  # an invariant, or a check that refuses to go on
        bug.scenario(Lab(tmp_path / "lab", None))
