"""Stores of every kind in a processor: with the test driver, on the epoch engine, and seen by a replica."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.simulation.epochs import EpochRunner
from tests.simulation.executor import InProcessExecutor

from millstream import (
    Buffered,
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    Topology,
    Window,
    Windowed,
    serdes,
    stores,
)
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.plan_changes import incompatible_changes
from millstream.errors import UnknownStoreError
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.query.replica import SessionReplica, StoreReplica, VersionedReplica, WindowReplica
from millstream.state.stores.window import TimestampedWindowStore
from millstream.task.records import RawBatch
from millstream.testing import TopologyTestDriver
from millstream.types import Partition

GAP = 10
SIZE = 10


class Visits(Processor[str, str, str, str]):
    """Counts visits by window and by session, keeps prices by time, and lets every third visit wait."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.windows = context.state_store("windows")
        self.sessions = context.state_store("sessions")
        self.prices = context.state_store("prices")
        self.lists = context.state_store("lists")
        self.waiting = context.state_store("waiting")

    def process(self, record: Record[str, str]) -> None:
        key, time = record.key, record.timestamp
        start = time - time % SIZE
        self.windows.put(key, (self.windows.fetch(key, start) or 0) + 1, start)
        window, count = Window(time, time), 1
        with self.sessions.find_sessions(key, max(0, time - GAP), time + GAP) as found:
            for session, value in found:
                window = Window(min(window.start, session.window.start), max(window.end, session.window.end))
                count += value
                self.sessions.remove(session)
        self.sessions.put(Windowed(key, window), count)
        self.prices.put(key, record.value, time)
        self.lists.put(key, record.value)
        self.waiting.put(Buffered(key, record.value, time, time))
        for ready in self.waiting.evict_until(self.context.current_stream_time_ms() - 20):
            self.context.forward(Record(ready.key, ready.value, ready.timestamp, ready.headers))


TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
COUNTS: dict[str, Any] = {"key": serdes.string, "value": serdes.int64}


def topology() -> Topology:
    builder = StreamsBuilder()
    specs = [
        stores.window("windows", window_size_ms=SIZE, retention_ms=1000, **COUNTS),
        stores.session("sessions", retention_ms=1000, **COUNTS),
        stores.versioned_key_value("prices", history_retention_ms=1000, **TEXT),
        stores.list_value("lists", **TEXT),
        stores.time_ordered_buffer("waiting", **TEXT),
    ]
    for spec in specs:
        builder.add_state_store(spec)
    visits = builder.stream("visits", key=serdes.string, value=serdes.string)
    visits.process(Visits, *(spec.name for spec in specs)).to("late", key=serdes.string, value=serdes.string)
    return builder.build()


INPUT = [
    ("ann", "a", 1),
    ("ann", "b", 8),
    ("bob", "c", 15),
    ("ann", "d", 30),
    ("ann", "e", 12),
    ("bob", "f", 55),
]
WINDOWS = {("ann", 0): 2, ("bob", 10): 1, ("ann", 30): 1, ("ann", 10): 1, ("bob", 50): 1}
SESSIONS = {("ann", 1, 12): 3, ("ann", 30, 30): 1, ("bob", 15, 15): 1, ("bob", 55, 55): 1}


def windows_in(pairs: Any) -> dict[tuple[str, int], int]:
    return {(windowed.key, windowed.window.start): value for windowed, value in pairs}


def sessions_in(pairs: Any) -> dict[tuple[str, int, int], int]:
    return {(found.key, found.window.start, found.window.end): value for found, value in pairs}


@pytest.mark.parametrize("fresh_tasks", [False, True])
def test_a_processor_uses_them_in_the_test_driver(*, fresh_tasks: bool) -> None:
    with TopologyTestDriver(topology(), fresh_tasks=fresh_tasks) as driver:
        visits = driver.input_topic("visits", key=serdes.string, value=serdes.string)
        late = driver.output_topic("late", key=serdes.string, value=serdes.string)
        for key, value, time in INPUT:
            visits.pipe(key, value, time)
        assert windows_in(driver.window_store("windows").all()) == WINDOWS
        assert sessions_in(driver.session_store("sessions").fetch_range(None, None)) == SESSIONS
        prices = driver.versioned_store("prices")
        assert [found.value for time in (5, 10, 20, 40) if (found := prices.get("ann", time))] == list("abed")
        assert driver.store("lists").get("ann") == ["a", "b", "d", "e"]
        assert [record.value for record in late.read_all()] == ["d", "e", "f"]
        assert len(driver.store("waiting")) == 0


def test_the_driver_says_which_kind_a_store_is_not() -> None:
    with TopologyTestDriver(topology()) as driver:
        with pytest.raises(UnknownStoreError, match="store 'prices' is no window store"):
            driver.window_store("prices")
        with pytest.raises(UnknownStoreError, match="store 'windows' is no timestamped window store"):
            driver.timestamped_window_store("windows")
        assert not isinstance(driver.window_store("windows"), TimestampedWindowStore)


def test_epochs_of_many_records_end_with_the_same_state() -> None:
    def batch(rows: list[tuple[str, str, int]], offset: int) -> RawBatch:
        return RawBatch(
            "visits",
            0,
            tuple(range(offset, offset + len(rows))),
            tuple(key.encode() for key, _, _ in rows),
            tuple(value.encode() for _, value, _ in rows),
            tuple(time for _, _, time in rows),
        )

    with EpochRunner(topology(), partitions={"visits": 1}, fresh_tasks=True) as runner:
        runner.run_epoch([batch(INPUT[:4], 0)])
        runner.run_epoch([batch(INPUT[4:], 4)])
        (windows,) = runner.stores("windows")
        (sessions,) = runner.stores("sessions")
        assert windows_in(windows.all()) == WINDOWS
        assert sessions_in(sessions.fetch_range(None, None)) == SESSIONS


def test_a_replica_answers_from_the_last_commit(tmp_path: Path, backend: str) -> None:
    tmp_path.chmod(0o700)
    log = FileLog(tmp_path / "log")
    log.create_topic("visits")
    with InProcessExecutor(
        topology(), application_id="app", log_root=log.root, state_dir=tmp_path / "state", backend=backend
    ) as executor:
        folder, plan = ApplicationStorage(log.root, "app"), topology().plan()
        windows = WindowReplica(folder, log, plan, "windows")
        sessions = SessionReplica(folder, log, plan, "sessions")
        prices = VersionedReplica(folder, log, plan, "prices")
        assert list(windows.all()) == []
        for part in (INPUT[:3], INPUT[3:]):
            records = record_batch(
                [key.encode() for key, _, _ in part],
                [value.encode() for _, value, _ in part],
                [time for _, _, time in part],
            )
            log.append(TopicPartition("visits", Partition(0)), records)
            manifest = executor.run_epoch()
        assert windows_in(windows.all()) == WINDOWS
        assert manifest is not None
        assert windows.version == manifest.epoch
        assert windows.fetch("ann", 0) == 2
        assert list(windows.fetch("ann", 0, 20)) == [(0, 2), (10, 1)]
        assert list(windows.backward_fetch("ann", 0, 20)) == [(10, 1), (0, 2)]
        assert windows_in(windows.fetch_range("b", None, 0, 20)) == {("bob", 10): 1}
        assert windows_in(windows.fetch_all(40, 60)) == {("bob", 50): 1}
        assert sessions_in(sessions.fetch_range(None, None)) == SESSIONS
        assert sessions.fetch_session("ann", 1, 12) == 3
        assert sessions_in(sessions.fetch("bob")) == {("bob", 15, 15): 1, ("bob", 55, 55): 1}
        assert [value for _, value in sessions.find_sessions("ann", 0, 100)] == [3, 1]
        assert [value for _, value in sessions.backward_find_sessions("ann", 0, 100)] == [1, 3]
        found = prices.get("ann", as_of=10)
        assert found is not None
        assert (found.value, found.timestamp, found.valid_to) == ("b", 8, 12)
        assert [version.value for version in prices.versions("ann", 0, 100)] == ["a", "b", "e", "d"]
        assert prices.versions("nobody", 0, 100) == []
        assert {key: version.value for key, version in prices.all()} == {"ann": "d", "bob": "f"}


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("windows", r"store 'windows' is a window store: ask with window_store\('windows'\)"),
        ("prices", r"store 'prices' is a versioned key-value store: ask with versioned_store\('prices'\)"),
        ("waiting", "store 'waiting' is a time-ordered buffer store: it belongs to its operator alone"),
    ],
)
def test_a_replica_of_another_kind_says_how_to_ask(tmp_path: Path, store: str, said: str) -> None:
    tmp_path.chmod(0o700)
    log = FileLog(tmp_path / "log")
    with pytest.raises(UnknownStoreError, match=said):
        StoreReplica(ApplicationStorage(log.root, "app"), log, topology().plan(), store)


def test_a_store_cannot_become_one_of_another_layout() -> None:
    def summary(*, time_ordered: bool) -> dict[str, Any]:
        builder = StreamsBuilder()
        builder.add_state_store(
            stores.window("windows", window_size_ms=10, retention_ms=10, time_ordered=time_ordered)
        )
        builder.stream("visits").process(Processor, "windows")
        return builder.build().plan().summary

    assert incompatible_changes(summary(time_ordered=False), summary(time_ordered=True)) == [
        "store 'windows' was a window store and is a window ordered by time store now"
    ]
