"""Rows expire by the segment: gone from every backend, without a tombstone each, and the same on replay."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.state.one_task import APPLICATION, PARTITION, OneTask, rows_of

from millstream import (
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    VersionedRecord,
    Window,
    Windowed,
    serdes,
    stores,
)
from millstream.commit.coordinator import CoordinatorSettings
from millstream.errors import StoreError, TopologyError
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.state.backends import NAMES, Row, supplier
from millstream.state.backends.memory import MemoryBackend
from millstream.state.changelog.rows import changelog_rows, changelog_topic
from millstream.state.local.task_stores import TaskVersion
from millstream.state.specs import StoreBuilder, StoreKind
from millstream.state.stores.factory import open_store
from millstream.state.stores.segments import SEGMENT_BYTES, apply_changes
from millstream.state.stores.store import changes_of, epoch_committed
from millstream.types import Version

WINDOWS = stores.window(
    "windows",
    window_size_ms=10,
    retention_ms=100,
    segment_interval_ms=50,
    key=serdes.string,
    value=serdes.string,
)


def opened(spec: StoreBuilder, backend: Any) -> Any:
    return open_store(spec, backend, spec.key, spec.value)


def commit(store: Any, backend: Any, marker: bytes = b"") -> list[Any]:
    """Commit an epoch. What its changelog rows hold."""
    changes = changes_of(store)
    apply_changes(backend, changes, marker, segmented=True)
    epoch_committed(store)
    return list(changes)


@pytest.mark.parametrize("name", NAMES)
def test_a_segment_that_is_past_the_retention_is_dropped_whole(tmp_path: Path, name: str) -> None:
    with supplier(name).open(tmp_path / "store", segment_bytes=SEGMENT_BYTES) as backend:
        store = opened(WINDOWS, backend)
        for number in range(500):
            store.put(f"k{number}", "v", number % 50)
        store.put("later", "v", 60)
        commit(store, backend)
        assert len(list(backend.scan())) == 502

        store.put("now", "v", 150)  # 50 is past the retention now, and with it the segment 0..49
        changes = commit(store, backend)

        assert [key for key, _ in changes] == [
            b"",
            bytes([0] * 7 + [3]) + b"now" + bytes([0] * 7 + [150] + [0] * 4),
        ]
        assert [key[8:-12] for key, _ in backend.scan()] == [b"", b"later", b"now"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_still_on_disk_but_past_the_retention_is_not_seen(tmp_path: Path, name: str) -> None:
    with supplier(name).open(tmp_path / "store", segment_bytes=SEGMENT_BYTES) as backend:
        store = opened(WINDOWS, backend)
        for start in (49, 50, 51, 150):
            store.put("k", str(start), start)
        commit(store, backend)
        assert [start for start, _ in store.fetch("k", 0, 1000)] == [51, 150]
        assert store.fetch("k", 50) is None
        assert store.fetch("k", 51) == "51"
        assert len(list(backend.scan())) == 4  # the note, 50 and 51 of the segment 50..99, and 150


def test_a_write_that_comes_too_late_is_counted_and_leaves_no_row() -> None:
    backend = MemoryBackend()
    store = opened(WINDOWS, backend)
    store.put("k", "v", 200)
    store.put("k", "late", 100)
    store.put("k", "just in time", 101)
    commit(store, backend)
    assert store.expired_puts == 1
    assert [value for _, value in store.fetch("k", 0, 1000)] == ["just in time", "v"]


def test_time_does_not_go_back_when_a_new_task_opens_the_store() -> None:
    backend = MemoryBackend()
    commit_of = opened(WINDOWS, backend)
    commit_of.put("k", "v", 500)
    commit(commit_of, backend)
    store = opened(WINDOWS, backend)
    assert store.observed_time == 500
    store.put("k", "late", 400)
    assert store.expired_puts == 1


def test_an_epoch_that_is_forgotten_moves_no_time() -> None:
    backend = MemoryBackend()
    store = opened(WINDOWS, backend)
    store.put("k", "v", 10)
    commit(store, backend)
    store.put("k", "far ahead", 1000)
    store._forget()
    assert store.observed_time == 10
    assert store.fetch("k", 10) == "v"


def test_stores_of_a_task_expire_when_they_follow_their_changelog(task: OneTask) -> None:
    """The task's own store, applied epoch by epoch, and one that is restored at once."""
    task.stores["windows"] = WINDOWS
    task.log.create_topic(changelog_topic(APPLICATION, "windows"))
    for version, starts in enumerate([(0, 20, 40), (60, 80), (150,), (151, 300)], start=1):
        with task.opened(wanted(task, version - 1)) as backends:
            store = opened(WINDOWS, backends["windows"])
            for start in starts:
                store.put("k", str(start), start)
            rows = changelog_rows(changes_of(store), StoreKind.WINDOW, 0)
        task.log.append(task.changelog("windows"), rows)
    with task.opened(wanted(task, 4)) as backends:
        followed = rows_of(backends)
    task.directory.remove_store(task.backend, "windows")
    with task.opened(wanted(task, 4)) as backends:
        assert followed == rows_of(backends)
    assert [key[:8][-1:] for key, _ in followed["windows"]] == [b"", b"\x06"]


def wanted(task: OneTask, version: int) -> TaskVersion:
    position = {"windows": task.log.latest(task.changelog("windows"))}
    return TaskVersion(APPLICATION, PARTITION, Version(version), position)


def test_sessions_expire_by_their_end() -> None:
    spec = stores.session(
        "sessions", retention_ms=100, segment_interval_ms=50, key=serdes.string, value=serdes.string
    )
    backend = MemoryBackend()
    store = opened(spec, backend)
    store.put(Windowed("k", Window(0, 120)), "long")
    store.put(Windowed("k", Window(0, 10)), "short")
    store.put(Windowed("k", Window(200, 210)), "new")
    commit(store, backend)
    assert [value for _, value in store.fetch("k")] == ["long", "new"]


def test_the_latest_version_never_expires() -> None:
    spec = stores.versioned_key_value(
        "prices", history_retention_ms=100, segment_interval_ms=50, key=serdes.string, value=serdes.string
    )
    backend = MemoryBackend()
    store = opened(spec, backend)
    for time in (0, 10):
        store.put("bread", str(time), time)
        store.put("salt", str(time), time)
    store.put("salt", None, 20)
    commit(store, backend)
    store.put("flour", "x", 100_000)
    commit(store, backend)
    assert store.get("bread").value == "10"
    assert store.get("bread", as_of=10).value == "10"
    assert store.get("bread", as_of=9) is None
    assert store.get("salt") is None
    assert len(list(backend.scan())) == 3  # the note, bread and flour: nothing of what was deleted


def test_a_delete_that_comes_too_late_names_no_version() -> None:
    spec = stores.versioned_key_value(
        "prices", history_retention_ms=100, segment_interval_ms=50, key=serdes.string, value=serdes.string
    )
    store = opened(spec, MemoryBackend())
    store.put("bread", "3", 10)
    store.put("flour", "x", 500)
    assert store.delete("bread", 399) is None
    assert (store.get("bread").value, store.expired_puts) == ("3", 1)
    assert store.delete("bread", 400) == VersionedRecord("3", 10)
    assert (store.get("bread"), store.expired_puts) == (None, 1)


def test_a_deletion_at_the_time_of_the_only_version_is_remembered() -> None:
    spec = stores.versioned_key_value(
        "prices", history_retention_ms=100, segment_interval_ms=50, key=serdes.string, value=serdes.string
    )
    store = opened(spec, MemoryBackend())
    store.put("bread", "3", 50)
    store.delete("bread", 50)
    assert store.put("bread", "2", 40) == 50
    assert store.get("bread") is None
    assert store.get("bread", as_of=49) == VersionedRecord("2", 40, valid_to=50)


def test_a_retention_below_the_window_size_is_refused() -> None:
    with pytest.raises(TopologyError) as caught:
        stores.window("clicks", window_size_ms=60_000, retention_ms=10_000)
    assert str(caught.value) == (
        "the window store 'clicks' keeps rows for 10000 ms, but its windows are 60000 ms long: they would "
        "expire before they are complete. Remedy: a retention of at least the window size, and of the grace "
        "period on top, if there is one"
    )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: stores.session("visits", retention_ms=-1), "has a retention of -1 ms"),
        (lambda: StoreBuilder("visits", StoreKind.SESSION), "has a retention of None ms"),
        (lambda: stores.window("w", window_size_ms=-5, retention_ms=10), "has windows of -5 ms"),
        (
            lambda: stores.session("visits", retention_ms=10_000, segment_interval_ms=1),
            "keeps rows for 10000 ms in segments of 1 ms",
        ),
        (
            lambda: stores.versioned_key_value("prices", history_retention_ms=10, segment_interval_ms=0),
            "in segments of 0 ms",
        ),
    ],
)
def test_times_that_make_no_sense_are_refused(make: Any, said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        make()


def test_a_time_before_the_beginning_is_refused() -> None:
    store = opened(WINDOWS, MemoryBackend())
    with pytest.raises(
        StoreError, match="store 'windows': the start of a window is -1, but time begins at 0"
    ):
        store.put("k", "v", -1)


def test_a_key_of_none_is_refused() -> None:
    store = opened(WINDOWS, MemoryBackend())
    with pytest.raises(StoreError, match="store 'windows': the key is None"):
        store.put(None, "v", 0)


class CountByWindow(Processor[str, str, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        self.windows = context.state_store("windows")

    def process(self, record: Record[str, str]) -> None:
        self.windows.put(record.key, record.value, record.timestamp)


def test_compaction_leaves_expired_rows_out_of_the_changelog(tmp_path: Path, backend: str) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(WINDOWS)
    builder.stream("in", key=serdes.string, value=serdes.string).process(CountByWindow, "windows")
    tmp_path.chmod(0o700)
    log = FileLog(tmp_path / "log")
    log.create_topic("in")
    state = tmp_path / "state"

    def rows_on_disk() -> list[Row]:
        path = state / "app" / "0_0" / backend / "windows"
        with supplier(backend).open(path, segment_bytes=SEGMENT_BYTES) as opened_:
            return list(opened_.scan())

    changelog = TopicPartition(changelog_topic("app", "windows"), PARTITION)
    with InProcessExecutor(
        builder.build(),
        application_id="app",
        log_root=log.root,
        state_dir=state,
        backend=backend,
        settings=CoordinatorSettings(retained_manifests=2),
    ) as executor:
        for epoch in range(60):
            log.append(TopicPartition("in", PARTITION), record_batch([b"k%d" % epoch], [b"v"], [epoch * 25]))
            executor.run_epoch()
            executor.run_maintenance(min_entries=4)
        written = log.latest(changelog)
        kept = sum(len(batch) for batch in log.read(changelog, log.earliest(changelog), written))
        assert written >= 120  # a note and a window in every epoch
        assert kept < 40  # live ones, and what was not looked at yet
        before = rows_on_disk()
    shutil.rmtree(state)
    with InProcessExecutor(
        builder.build(),
        application_id="app",
        log_root=log.root,
        state_dir=state,
        backend=backend,
        clock=lambda: 10**13,
    ) as executor:
        log.append(TopicPartition("in", PARTITION), record_batch([b"k59"], [b"v"], [59 * 25]))
        executor.run_epoch()
    assert before == rows_on_disk()
