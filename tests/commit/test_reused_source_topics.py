"""A table's source topic in the place of its changelog: the same state and output, or a refusal."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.commit.table_app import A_DAY, REUSED, Rows, TableApp, fold, topology
from tests.simulation.executor import InProcessExecutor

from millstream import StreamsBuilder, StreamsConfig, failpoints, handlers, serdes, timestamps
from millstream.cli.topics import topics
from millstream.commit import source_offsets
from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.plan_changes import PlanChangedError
from millstream.commit.source_changelog import SourceReuseError, compaction_bound
from millstream.commit.store_opening import opened_stores
from millstream.durable import held_lock
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.state.changelog import external_sort, follow
from millstream.state.errors import ChangelogCompactedError, StoreAheadError
from millstream.types import Offset, Partition

USERS = TopicPartition("users", Partition(0))
COMPACTED = TopicConfig(is_compacted=True)


def made(root: Path, optimization: str = REUSED, **more: Any) -> TableApp:
    return TableApp(root, topology(optimization), **more).create()


def test_there_is_no_changelog_and_nothing_of_the_store_is_sealed(tmp_path: Path) -> None:
    app = made(tmp_path / "app")
    app.append([(b"ann", b"rome"), (b"bob", b"oslo")])
    with app.start() as executor:
        executor.run_until_caught_up()
        entry = executor.coordinator.head.tasks["0_0"]
    assert app.log().topics() == ["app-per-city-changelog", "cities", "users"]
    assert entry.sections == ()
    assert dict(entry.changelogs) == {"users": 2}
    assert app.replica() == {"ann": "rome", "bob": "oslo"}


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_a_lost_disk_is_restored_from_the_source_topic(tmp_path: Path, backend: str) -> None:
    rows = [(b"ann", b"rome"), (b"bob", b"oslo"), (None, b"x"), (b"ann", b"oslo"), (b"bob", None), (b"", b"")]
    app = made(tmp_path / "app", backend=backend)
    app.append(rows)
    app.run()
    assert app.restored() == fold(rows)


def test_a_restore_ends_at_the_committed_offset(tmp_path: Path) -> None:
    rows = [(b"ann", b"rome"), (b"bob", b"oslo"), (b"ann", b"oslo"), (b"bob", None)]
    app = made(tmp_path / "app", settings=CoordinatorSettings(max_records=2))
    app.append(rows)
    with app.start() as executor:
        executor.run_epoch()
    assert app.restored() == fold(rows[:2])


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_what_was_there_before_the_table_began_is_not_restored(tmp_path: Path, reset: Any) -> None:
    before = [(b"ann", b"rome"), (b"bob", b"oslo")]
    rows = [*before, (b"ann", b"oslo")]
    app = made(tmp_path / "app", settings=CoordinatorSettings(offset_reset=reset))
    app.append(before)
    app.start().close()
    app.append(rows[2:])
    app.run()
    assert app.restored() == fold(rows, first=2 if reset == "latest" else 0)


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_a_long_topic_is_restored_by_key(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "SORTED_ROWS", 100)
    monkeypatch.setattr(follow, "BATCH_ROWS", 40)
    config = StreamsConfig(deserialization_handler=handlers.skip)
    settings = CoordinatorSettings(offset_reset="latest", max_records=90)
    app = made(tmp_path / "app", backend=backend, config=config, settings=settings)
    before = [(b"old%d" % number, b"rome") for number in range(7)]
    app.append(before)
    app.start().close()
    bad = [(b"ann", b"\xff")] * 80
    rows = [*before, *history(5, 300), *bad, *[(b"n%d" % (number % 70), b"oslo") for number in range(120)]]
    for row in range(len(before), len(rows), 50):
        app.append(rows[row : row + 50])
    app.run()
    good = [(None, None) if value == b"\xff" else (key, value) for key, value in rows]
    assert app.restored() == fold(good, first=len(before))


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_a_half_restored_table_is_never_taken_for_one_from_before_its_first_record(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "SORTED_ROWS", 1)
    monkeypatch.setattr(follow, "BATCH_ROWS", 1)
    monkeypatch.setattr(external_sort, "_BLOCK_ROWS", 1)
    rows = [(b"ann", b"rome"), (b"bob", b"oslo"), (b"cid", b"rome")]
    app = made(tmp_path / "app", backend=backend)
    app.append(rows)
    app.run()
    app.lose_disk()
    with app.start() as executor:
        with failpoints.armed("follow.batch_applied"), pytest.raises(failpoints.InjectedCrash):
            app.store(executor)
        sub, planned = executor.worker.subtopology(0), PlannedTask("0_0", 0, Partition(0), 0)
        of_the_past = opened_stores(executor.worker, sub, planned, None)
        with pytest.raises(StoreAheadError, match="is on its way to 2 "), of_the_past:
            pass
        assert app.store(executor) == fold(rows)


def test_records_that_were_skipped_are_not_restored(tmp_path: Path) -> None:
    config = StreamsConfig(deserialization_handler=handlers.skip)
    app = made(tmp_path / "app", config=config)
    app.append([(b"ann", b"rome"), (b"ann", b"\xff"), (b"\xff", b"oslo"), (b"bob", b"oslo")])
    app.run()
    found = {b"ann": bytes(8) + b"rome", b"bob": bytes(7) + b"\x03oslo"}
    assert app.restored() == found
    assert app.replica() == {"ann": "rome", "bob": "oslo"}


def test_no_record_of_a_compacted_topic_is_skipped(tmp_path: Path) -> None:
    config = StreamsConfig(deserialization_handler=handlers.skip)
    app = made(tmp_path / "app", config=config, topic=COMPACTED)
    app.append([(b"ann", b"rome"), (b"ann", b"\xff")])
    with pytest.raises(SourceReuseError, match="takes away the one that it follows"):
        app.run()
    with app.start() as executor:
        assert executor.coordinator.head.position("users", Partition(0)) == 0


@pytest.mark.parametrize("config", [TopicConfig(retention_ms=1), TopicConfig(retention_bytes=1)])
def test_a_topic_with_retention_is_refused(tmp_path: Path, config: TopicConfig) -> None:
    app = made(tmp_path / "app", topic=config)
    with pytest.raises(SourceReuseError, match=r"'users' lets records go .* Remedy: read a topic without"):
        app.start()
    made(tmp_path / "other", "none", topic=config).start().close()


def test_timestamps_of_an_applications_own_are_refused(tmp_path: Path) -> None:
    config = StreamsConfig(timestamp_extractor=timestamps.skip_invalid_timestamp)
    app = made(tmp_path / "app", config=config)
    app.append([(b"ann", b"rome")])
    with pytest.raises(SourceReuseError, match="which has the records' own timestamps only"):
        app.run()
    other = made(tmp_path / "other", "none", config=config)
    other.append([(b"ann", b"rome")])
    other.run()
    assert other.restored() == fold([(b"ann", b"rome")])


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("none", REUSED, "'users' had a changelog and has its source topic 'users' for a changelog now"),
        (REUSED, "none", "'users' had its source topic 'users' for a changelog and has a changelog now"),
    ],
)
def test_it_can_not_be_turned_on_or_off_where_there_is_state(
    tmp_path: Path, before: str, after: str, change: str
) -> None:
    app = made(tmp_path / "app", before)
    app.append([(b"ann", b"rome")])
    app.run()
    app.topology = topology(after)
    with pytest.raises(PlanChangedError, match=change) as raised:
        app.start()
    assert "build(optimization=...)" in str(raised.value)
    app.topology = topology(before)
    app.run()
    assert app.restored() == fold([(b"ann", b"rome")])


# Compaction ----------------------------------------------------------------------------------------------


def run_days(app: TableApp, executor: InProcessExecutor, rows: Any, *, tend_each: int = 10) -> None:
    """A record, an epoch and a day each, so that tombstones go, too, and maintenance now and then."""
    for number, row in enumerate(rows, start=1):
        app.append([row])
        app.now += A_DAY
        executor.run_epoch()
        if number % tend_each == 0:
            executor.run_maintenance()


def history(seed: int, count: int) -> list[tuple[bytes, bytes | None]]:
    choose = random.Random(seed).choice
    return [(choose([b"ann", b"bob", b"cid"]), choose([b"rome", b"oslo", None])) for _ in range(count)]


def test_a_compacted_topic_restores_every_version_that_is_kept(tmp_path: Path) -> None:
    rows = history(1, 40)
    app = made(tmp_path / "app", topic=COMPACTED, settings=CoordinatorSettings(retained_manifests=4))
    with app.start() as executor:
        run_days(app, executor, rows)
        gone = executor.log.compacted(USERS)
        assert (
            0 < gone.deletes_gone_to <= gone.to <= executor.coordinator.head.tasks["0_0"].changelogs["users"]
        )
    left = sum(len(batch) for batch in app.log().read(USERS, Offset(0)))
    assert left < len(rows) / 2
    assert app.restored() == fold(rows)


def test_compaction_ends_where_the_oldest_kept_manifest_stands(tmp_path: Path) -> None:
    rows = history(2, 20)
    app = made(tmp_path / "app", topic=COMPACTED, settings=CoordinatorSettings(retained_manifests=6))
    with app.start() as executor:
        run_days(app, executor, rows)
        head = executor.coordinator.head
        bound = compaction_bound(app.root / "log", USERS)
        assert bound is not None
        assert executor.log.compacted(USERS).to <= bound == len(rows) - 5
        assert head.oldest == head.epoch - 5


def stalled(root: Path) -> TableApp:
    """An application that has stopped in the middle of a topic, while the topic went on."""
    app = made(root, topic=COMPACTED)
    app.append([(b"ann", b"rome"), (b"bob", b"oslo")])
    app.run()
    app.append([(b"ann", b"oslo"), (b"bob", None), (b"cid", b"rome")])
    app.now += 10 * A_DAY
    return app


def test_another_application_does_not_compact_what_a_table_needs(tmp_path: Path) -> None:
    app = stalled(tmp_path / "app")
    other = StreamsBuilder()
    other.stream("users").to("copies")
    with InProcessExecutor(
        other.build(),
        application_id="other",
        log_root=app.root / "log",
        state_dir=tmp_path / "other",
        clock=lambda: app.now,
        settings=CoordinatorSettings(retained_manifests=1),
    ) as executor:
        executor.run_until_caught_up()
        executor.run_maintenance()
    assert app.log().compacted(USERS).to <= 2
    assert app.restored() == fold([(b"ann", b"rome"), (b"bob", b"oslo")])


def test_tidying_topics_by_hand_does_not_either(tmp_path: Path) -> None:
    app = stalled(tmp_path / "app")
    done = CliRunner().invoke(topics, ["tidy", "--log", f"file:{app.root / 'log'}"])
    assert done.exit_code == 0, done.output
    assert app.restored() == fold([(b"ann", b"rome"), (b"bob", b"oslo")])


def test_a_topic_that_holds_a_table_is_not_deleted_by_mistake(tmp_path: Path) -> None:
    app = stalled(tmp_path / "app")
    command = ["delete", USERS.topic, "--yes", "--log", f"file:{app.root / 'log'}"]
    refused = CliRunner().invoke(topics, command)
    assert refused.exit_code == 1
    assert "has it for the changelog of a table" in refused.output
    assert USERS.topic in app.log().topics()
    assert CliRunner().invoke(topics, [*command, "--force"]).exit_code == 0


def test_nothing_is_compacted_that_anybody_reads_if_an_application_cant_be_asked(tmp_path: Path) -> None:
    app = stalled(tmp_path / "app")
    for manifest in (app.root / "log" / "applications" / "app" / "manifests").iterdir():
        manifest.write_bytes(b"damaged")
    assert compaction_bound(app.root / "log", USERS) == 0


def test_a_table_that_begins_waits_for_a_compaction_that_does_not_know_it(tmp_path: Path) -> None:
    app = made(tmp_path / "app", topic=COMPACTED, settings=CoordinatorSettings(max_records=4))
    rows = [(b"user-%d" % (number % 3), b"city-%d" % number) for number in range(40)]
    app.append(rows)
    has_asked, may_go_on = threading.Event(), threading.Event()

    def asked_before_the_table_began() -> None:
        has_asked.set()
        may_go_on.wait(30)

    def compact() -> None:
        app.log().rewrite(USERS, min_entries=1, up_to=asked_before_the_table_began, min_dirty_ratio=0)

    def begin() -> None:
        with app.start() as executor:
            while executor.run_epoch() is None:
                assert executor.coordinator.has_backlog

    with ThreadPoolExecutor(2) as threads:
        compacting = threads.submit(compact)
        assert has_asked.wait(30)
        beginning = threads.submit(begin)
        with pytest.raises(TimeoutError):
            beginning.result(timeout=0.3)
        may_go_on.set()
        compacting.result()
        beginning.result()
    # What the epoch has read is what compaction has left, so it can be had again.
    assert app.log().compacted(USERS).to == len(rows)
    assert app.restored() == {}


def compacted_by_another(app: TableApp, partition: int) -> AbstractContextManager[object]:
    """Somebody is compacting a partition of the topic, for as long as the `with` block lasts."""
    return held_lock(app.root / "log/topics/users" / str(partition) / "maintenance", timeout_ms=0)


def plain_tables(root: Path, partitions: int) -> TableApp:
    """A table of which no two partitions meet."""
    builder = StreamsBuilder()
    builder.table("users", key=serdes.string, value=serdes.string, store="users")
    topic = TopicConfig(partitions, is_compacted=True)
    return TableApp(root, builder.build(optimization=REUSED), topic=topic).create()


def test_a_partition_without_records_does_not_wait_for_a_compaction(tmp_path: Path) -> None:
    app = plain_tables(tmp_path / "app", 4)
    app.append([(b"ann", b"rome")])
    with app.start() as executor, compacted_by_another(app, 1):
        assert executor.run_until_caught_up() == 1
        assert not executor.coordinator.has_backlog


def test_a_partition_that_somebody_compacts_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_offsets, "_SETTLE_MS", 0)
    app = plain_tables(tmp_path / "app", 2)
    app.append([(b"ann", b"rome")], 0)
    app.append([(b"bob", b"oslo")], 1)
    with app.start() as executor:
        with compacted_by_another(app, 1):
            manifest = executor.run_epoch()
            assert manifest is not None
            assert manifest.positions == (("users", 0, 1), ("users", 1, 0))
            assert executor.coordinator.has_backlog
            assert executor.run_epoch() is None
            assert executor.coordinator.has_backlog, "this is not the end"
            app.append([(b"ann", b"oslo")], 0)
            assert executor.run_epoch() is not None, "what has begun goes on"
        assert executor.run_until_caught_up() == 1
        assert not executor.coordinator.has_backlog
        assert executor.coordinator.head.positions == (("users", 0, 2), ("users", 1, 1))
    assert app.replica() == {"ann": "oslo", "bob": "oslo"}


def test_partitions_that_meet_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_offsets, "_SETTLE_MS", 10)
    app = made(tmp_path / "app", topic=TopicConfig(2, is_compacted=True))
    app.append([(b"ann", b"rome")], 0)
    app.append([(b"bob", b"oslo")], 1)
    with app.start() as executor, ThreadPoolExecutor(1) as threads:
        with compacted_by_another(app, 1):
            assert executor.run_epoch() is None
            catching_up = threads.submit(executor.run_until_caught_up)
            with pytest.raises(TimeoutError):
                catching_up.result(timeout=0.2)
        assert catching_up.result(timeout=30) == 1
    assert app.replica() == {"ann": "rome", "bob": "oslo"}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_table_begins_with_its_first_record_and_not_with_another_source_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reset: Any
) -> None:
    monkeypatch.setattr(source_offsets, "_SETTLE_MS", 0)
    builder = StreamsBuilder()
    options: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
    users: Any = builder.table("users", store="users", **options)
    visits: Any = builder.stream("visits", **options)
    users.to_stream().merge(visits).to("cities", **options)
    settings = CoordinatorSettings(offset_reset=reset)
    app = TableApp(tmp_path / "app", builder.build(optimization=REUSED), topic=COMPACTED, settings=settings)
    app.create().log().create_topic("visits")
    before: Rows = [(b"old", b"rome")] if reset == "latest" else []
    if before:
        app.append(before)
    app.start().close()
    app.log().append(TopicPartition("visits", Partition(0)), record_batch([b"ann"], [b"visit"], [1]))
    with app.start() as executor, compacted_by_another(app, 0):
        executor.run_epoch()
        entry = executor.coordinator.head.tasks["0_0"]
        assert (dict(entry.origins), dict(entry.changelogs)) == ({}, {})
        assert app.replica() == {}
        app.append([(b"ann", b"oslo")])
        assert executor.run_epoch() is None, "it has not begun, so it does not begin beside a compaction"
    app.lose_disk()
    app.run()
    assert app.restored() == fold([*before, (b"ann", b"oslo")], first=len(before))
    assert [value for _, value, _ in app.outputs()] == [b"visit", b"oslo"]


def test_whoever_compacts_further_by_force_is_noticed(tmp_path: Path) -> None:
    app = stalled(tmp_path / "app")
    log = FileLog(app.root / "log", now_ms=lambda: app.now)
    assert log.rewrite(USERS, min_entries=1, min_dirty_ratio=0)
    app.lose_disk()
    with app.start() as executor, pytest.raises(ChangelogCompactedError, match="store 'users'"):
        app.store(executor)


def test_a_topic_that_was_compacted_before_is_read_in_epochs_and_restored_at_each(tmp_path: Path) -> None:
    rows = [*history(3, 30), (b"dan", b"rome"), (b"dan", None), (b"eve", b"rome")]
    app = made(tmp_path / "app", topic=COMPACTED, settings=CoordinatorSettings(max_records=7))
    for row in rows:
        app.append([row])
        app.now += A_DAY
    assert app.log().rewrite(USERS, min_entries=1, min_dirty_ratio=0)
    kept: list[Any] = [(None, None)] * len(rows)
    for batch in app.log().read(USERS, Offset(0)):
        for offset, key, value in zip(batch.offsets(), batch.keys(), batch.values(), strict=True):
            kept[offset] = (key, value)
    assert app.log().compacted(USERS).deletes_gone_to > 7
    with app.start() as executor:
        while executor.run_epoch() is not None:
            entry = executor.coordinator.head.tasks.get("0_0")
            end = 0 if entry is None else entry.changelogs["users"]
            assert app.store(executor) == fold(kept[:end])
            app.lose_disk()
            assert app.store(executor) == fold(kept[:end])
    assert app.restored() == fold(rows)


# Snapshots, partitions ---------------------------------------------------------------------------------


def test_a_snapshot_and_the_rest_of_the_topic(tmp_path: Path) -> None:
    rows = history(4, 25)
    config = StreamsConfig(snapshot_uri=(tmp_path / "snapshots").as_uri(), snapshot_interval_epochs=10)
    app = made(tmp_path / "app", backend="lmdb", config=config)
    with app.start() as executor:
        run_days(app, executor, rows, tend_each=1000)
    manifests = list((tmp_path / "snapshots" / "app" / "0_0" / "users").rglob("manifests/*"))
    assert manifests
    log = app.log()
    read: list[int] = []
    whole = FileLog.read

    def noted(self: FileLog, place: TopicPartition, start: Offset, end: Offset | None = None) -> Any:
        if place == USERS:
            read.append(start)
        return whole(self, place, start, end)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileLog, "read", noted)
        assert app.restored() == fold(rows)
    assert log.latest(USERS) == 25
    assert read
    assert min(read) >= 10


def test_a_task_without_a_partition_of_the_topic_has_an_empty_store(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    users: Any = builder.table("users", key=serdes.string, value=serdes.string, store="users")
    clicks: Any = builder.stream("clicks", key=serdes.string, value=serdes.string)
    users.to_stream().merge(clicks).to("both")
    app = TableApp(tmp_path / "app", builder.build(optimization=REUSED)).create()
    app.log().create_topic("clicks", TopicConfig(partitions=2))
    app.append([(b"ann", b"rome")])
    click = FileLog(app.root / "log")
    for number in range(2):
        place = TopicPartition("clicks", Partition(number))
        click.append(place, next(click.read(USERS, Offset(0))).records)
    app.run()
    app.lose_disk()
    with app.start() as executor:
        assert executor.coordinator.head.tasks.keys() == {"0_0", "0_1"}
        assert app.store(executor) == fold([(b"ann", b"rome")])
        assert app.store(executor, partition=1) == {}
    assert app.replica() == {"ann": "rome"}


def test_a_topic_with_more_partitions_would_tear_the_table_apart(tmp_path: Path) -> None:
    app = made(tmp_path / "app")
    app.append([(b"ann", b"rome")])
    app.run()
    app.log().add_partitions("users", 2)
    with pytest.raises(PlanChangedError, match=r"Store 'users' .* is spread over 1 partitions"):
        app.start()


# With and without --------------------------------------------------------------------------------------

KEYS = [b"ann", b"bob", b"cid", b"dan", None]
VALUES = [b"rome", b"oslo", b"bonn", None]
POINTS = [name for name in failpoints.REGISTRY if name.startswith(("commit.", "follow."))]


def twins(root: Path, choose: random.Random) -> list[TableApp]:
    """The same program on the same input, with the optimisation and without.

    Only the first one's topic may be compacted: in front of what is committed that would change the input.
    """
    compacted = TopicConfig(is_compacted=choose.random() < 0.7)
    options: dict[str, Any] = {
        "backend": choose.choice(["memory", "lmdb", "rocksdb"]),
        "settings": CoordinatorSettings(retained_manifests=choose.choice([1, 3, 100]), max_records=4),
    }
    snapshots = choose.random() < 0.5
    apps = []
    for optimization in (REUSED, "none"):
        place = root / optimization
        config = None
        if snapshots:
            uri = (root / f"snapshots-{optimization}").as_uri()
            config = StreamsConfig(snapshot_uri=uri, snapshot_interval_epochs=3)
        topic = compacted if optimization == REUSED else TopicConfig()
        apps.append(made(place, optimization, config=config, topic=topic, **options))
    return apps


def epoch(app: TableApp, executor: InProcessExecutor, choose: random.Random) -> InProcessExecutor:
    """An epoch, whatever happens; the process that is alive after it."""
    executor.apply_after_commit = choose.random() < 0.5
    before = executor.coordinator.head.position("users", Partition(0))
    try:
        with failpoints.armed(choose.choice(POINTS), "raise", skip=choose.randint(0, 5)):
            executor.run_epoch()
    except failpoints.InjectedCrash:
        executor = app.start()
        if executor.coordinator.head.position("users", Partition(0)) == before:
            executor.run_epoch()
    app.now += A_DAY // 2
    return executor


def restarted(app: TableApp, *, on_a_new_disk: bool) -> InProcessExecutor:
    if on_a_new_disk:
        app.lose_disk()
    return app.start()


def look(app: TableApp, executor: InProcessExecutor, rows: Rows) -> None:
    """The store holds what the records up to the committed offset make."""
    position = executor.coordinator.head.position("users", Partition(0)) or 0
    assert app.store(executor) == fold(rows[:position])


@pytest.mark.parametrize("seed", range(8))
def test_random_tables_are_the_same_with_and_without(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    apps = twins(tmp_path, choose)
    rows: list[tuple[bytes | None, bytes | None]] = []
    running = [app.start() for app in apps]
    for _ in range(60):
        act = choose.choices(["append", "epoch", "maintain", "restart", "lose", "look"], [6, 8, 2, 1, 1, 2])[
            0
        ]
        new = [(choose.choice(KEYS), choose.choice(VALUES)) for _ in range(choose.randint(1, 5))]
        rows += new if act == "append" else []
        for number, app in enumerate(apps):
            if act == "append":
                app.append(new)
            elif act == "epoch":
                running[number] = epoch(app, running[number], choose)
            elif act == "maintain":
                running[number].run_maintenance()
            elif act == "look":
                look(app, running[number], rows)
            else:
                running[number] = restarted(app, on_a_new_disk=act == "lose")
    for executor in running:
        executor.run_until_caught_up()
    reused, plain = apps
    assert reused.outputs() == plain.outputs() != []
    assert reused.replica() == plain.replica()
    assert reused.restored() == plain.restored() == fold(rows)
