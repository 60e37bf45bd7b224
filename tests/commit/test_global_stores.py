"""Global tables and stores in epochs: every task sees them as of its epoch, whatever happens to it."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.commit.global_app import WORDS, GlobalApp
from tests.simulation.executor import InProcessExecutor

from millstream import (
    Processor,
    ProcessorContext,
    PunctuationType,
    StreamsBuilder,
    StreamsConfig,
    failpoints,
    handlers,
    serdes,
    stores,
)
from millstream.commit import store_opening
from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.store_opening import opened_stores
from millstream.engine.global_loading import GlobalLoading
from millstream.errors import TopologyError
from millstream.log import TopicPartition
from millstream.state.changelog.follow import Progress
from millstream.state.errors import StoreAheadError, TaskLockedError
from millstream.state.local import task_stores
from millstream.state.local.directory import TaskDirectory
from millstream.state.local.task_stores import open_shared_stores, open_task_stores
from millstream.testing import TopologyTestDriver
from millstream.types import Partition

BACKENDS = ["memory", "lmdb", "rocksdb"]
RATES = PlannedTask("0_0", 0, Partition(0), 0)
STEPS = [
    "commit.planned",
    "commit.opened",
    "commit.processed",
    "commit.sealed",
    "commit.checked",
    "commit.manifest_written",
    "commit.published",
    "commit.store_applied",
    "commit.applied",
    "follow.batch_applied",
]


def made(root: Path, **more: Any) -> GlobalApp:
    return GlobalApp(root, **more).create()


@contextmanager
def rates_of(executor: InProcessExecutor) -> Iterator[dict[bytes, bytes]]:
    """The host's copy of the global table at the head, open."""
    entry = executor.coordinator.head.tasks.get("0_0")
    with opened_stores(executor.worker, executor.worker.subtopology(0), RATES, entry) as backends:
        yield dict(backends["rates"].scan())


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_tasks_read_all_partitions_of_a_global_table(tmp_path: Path, backend: str) -> None:
    app = made(tmp_path / "app", backend=backend)
    app.append("rates", [("a", "1"), (None, "9"), ("b", "2"), ("b", None)])
    app.append("rates", [("c", "3")], partition=1)
    app.append("changes", [("a", "x"), ("a", "y")], partition=1)
    app.append("orders", [("o", "a"), ("o", "b"), ("o", "c")])
    app.append("orders", [("p", "c"), ("p", "a")], partition=1)
    app.run()
    assert sorted(app.outputs()) == ["a=1,2", "a=1,2", "b=None,0", "c=3,0", "c=3,0"]
    assert app.replica("rates") == {"a": "1", "c": "3"}
    assert app.replica("updates") == {"a": 2}


def test_what_an_epoch_brings_to_a_global_table_is_there_before_its_other_records(tmp_path: Path) -> None:
    app = made(tmp_path / "app")
    with app.start() as executor:
        app.append("orders", [("o", "a")])
        app.append("rates", [("a", "1")])
        app.append("changes", [("a", "x")])
        executor.run_epoch()
        app.append("orders", [("o", "a")])
        executor.run_epoch()
        app.append("rates", [("a", None)])
        app.append("changes", [("a", "x")])
        app.append("orders", [("o", "a")])
        executor.run_epoch()
    assert app.outputs() == ["a=1,1", "a=1,1", "a=None,2"]


def test_the_test_driver_says_the_same(tmp_path: Path) -> None:
    app = made(tmp_path / "app", partitions=1)
    script = [
        ("orders", "o", "a"),
        ("rates", "a", "1"),
        ("orders", "o", "a"),
        ("changes", "a", "x"),
        ("rates", "a", "2"),
        ("orders", "o", "a"),
        ("rates", "a", None),
        ("orders", "o", "a"),
    ]
    with app.start() as executor, TopologyTestDriver(app.topology) as driver:
        for topic, key, value in script:
            app.append(topic, [(key, value)])
            executor.run_epoch()
            driver.input_topic(topic, **WORDS).pipe(key, value)
        rows = driver.output_topic("out", **WORDS).read_all()
    assert app.outputs() == [row.value for row in rows]


def test_global_topics_are_loaded_to_their_end_before_anything_else_is_read(tmp_path: Path) -> None:
    app = made(tmp_path / "app", settings=CoordinatorSettings(max_records=3))
    app.append("orders", [("o", "a"), ("o", "k9")])
    app.append("rates", [(f"k{number}", str(number)) for number in range(10)])
    app.append("rates", [("a", "1")], partition=1)
    read: list[dict[str, int]] = []
    with app.start() as executor:
        while (job := executor.coordinator.plan_epoch(tick=True)) is not None and len(read) < 5:
            cut = {
                topic: sum(end - start for start, end in parts.values()) for topic, parts in job.cut.items()
            }
            read.append({topic: count for topic, count in cut.items() if count} | {"tick": job.tick})
            executor.run_epoch()
    loading = [{"rates": count, "tick": False} for count in (4, 3, 3, 1)]
    assert read == [*loading, {"orders": 2, "tick": True}]
    assert app.outputs() == ["a=1,0", "k9=9,0"]


def test_a_start_loads_what_has_come_since_the_last_one_first(tmp_path: Path) -> None:
    app = made(tmp_path / "app", settings=CoordinatorSettings(max_records=1))
    app.append("rates", [("a", "1")])
    app.run()
    app.append("rates", [("a", "2"), ("a", "3")])
    app.append("orders", [("o", "a")])
    app.run()
    assert app.outputs() == ["a=3,0"]


def test_a_global_table_is_read_from_its_beginning_wherever_other_topics_begin(tmp_path: Path) -> None:
    app = made(tmp_path / "app", settings=CoordinatorSettings(offset_reset="latest"))
    app.append("rates", [("a", "1")])
    app.append("orders", [("o", "gone")])
    with app.start() as executor:
        executor.run_until_caught_up()
        app.append("orders", [("o", "a")])
        executor.run_until_caught_up()
    assert app.outputs() == ["a=1,0"]


def test_loading_is_told_as_restores_are(tmp_path: Path) -> None:
    told: list[tuple[str, str, int, int, int]] = []

    class Listener:
        def on_start(self, progress: Progress) -> None:
            self._tell("start", progress)

        def on_batch(self, progress: Progress) -> None:
            self._tell("batch", progress)

        def on_end(self, progress: Progress) -> None:
            self._tell("end", progress)

        def on_suspended(self, progress: Progress) -> None:
            self._tell("suspended", progress)

        def _tell(self, what: str, progress: Progress) -> None:
            told.append((what, progress.store, progress.partition, progress.records, progress.total_records))

    app = made(tmp_path / "app", settings=CoordinatorSettings(max_records=2))
    app.append("rates", [("a", "1"), ("b", "2"), ("c", "3")], partition=1)
    with app.start() as executor:
        loading = GlobalLoading(app.topology.plan(), executor.coordinator, Listener())
        loading.begin()
        while executor.run_epoch() is not None:
            loading.epoch_ended(None)
        app.append("rates", [("a", "9")])
        executor.run_epoch()
        loading.epoch_ended(None)
    assert told == [("start", "rates", 1, 0, 3), ("batch", "rates", 1, 2, 3), ("end", "rates", 1, 3, 3)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("local", ["behind", "lost", "whole"])
def test_a_copy_that_is_behind_or_lost_is_brought_to_the_head(
    tmp_path: Path, backend: str, local: str
) -> None:
    app = made(tmp_path / "app", backend=backend)
    app.append("rates", [("a", "1"), ("b", "1")])
    app.append("changes", [("a", "x")])
    with app.start() as executor:
        executor.run_until_caught_up()
        executor.apply_after_commit = local != "behind"
        app.append("rates", [("a", "2"), ("b", None)])
        app.append("changes", [("a", "x")])
        executor.run_until_caught_up()
    if local == "lost":
        app.lose_disk()
    app.append("orders", [("o", "a"), ("o", "b")])
    app.run()
    assert app.outputs() == ["a=2,2", "b=None,0"]


def test_a_copy_that_is_ahead_is_refused(tmp_path: Path) -> None:
    app = made(tmp_path / "app", backend="lmdb")
    app.append("rates", [("a", "1")])
    with app.start() as executor:
        executor.run_until_caught_up()
        old = executor.coordinator.head.tasks["0_0"]
        app.append("rates", [("a", "2")])
        executor.run_until_caught_up()
        sub = executor.worker.subtopology(0)
        with pytest.raises(StoreAheadError), opened_stores(executor.worker, sub, RATES, old):
            pass


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_host_has_a_copy_of_its_own(tmp_path: Path, backend: str) -> None:
    app = made(tmp_path / "app", backend=backend)
    app.append("rates", [("a", "1")])
    app.append("orders", [("o", "a")])
    app.run()
    (tmp_path / "app" / "state").rename(tmp_path / "other-host")
    app.append("rates", [("b", "2")])
    app.append("orders", [("o", "a"), ("o", "b")], partition=1)
    app.run()
    assert sorted(app.outputs()) == ["a=1,0", "a=1,0", "b=2,0"]


def test_the_source_topic_may_let_go_of_what_is_loaded(tmp_path: Path) -> None:
    app = made(tmp_path / "app", backend="lmdb")
    app.append("rates", [("a", "1"), ("b", "2")])
    app.append("changes", [("a", "x"), ("a", "x"), ("a", "x")])
    app.run()
    for place in (TopicPartition("rates", Partition(0)), TopicPartition("changes", Partition(0))):
        app.log().delete_before(place, app.log().latest(place))
    app.lose_disk()
    app.append("orders", [("o", "a"), ("o", "b")])
    app.run()
    assert app.outputs() == ["a=1,3", "b=2,0"]


def test_a_second_attempt_joins_with_the_same_table_though_the_topic_has_moved_on(tmp_path: Path) -> None:
    app = made(tmp_path / "app", backend="lmdb")
    app.append("rates", [("a", "1")])
    with app.start() as executor:
        executor.run_until_caught_up()
        app.append("rates", [("a", "2")])
        app.append("changes", [("a", "x")])
        app.append("orders", [("o", "a")], partition=0)
        app.append("orders", [("p", "a")], partition=1)
        job = executor.coordinator.plan_epoch()
        assert job is not None
        first = executor.run_tasks(job)
        app.append("rates", [("a", "3")])
        app.append("changes", [("a", "x")])
        second = executor.run_tasks(job)
        assert _digests(second) == _digests(first)
        executor.coordinator.publish(executor.coordinator.commit(job, second))
        executor.run_until_caught_up()
    assert app.outputs() == ["a=2,1", "a=2,1"]
    assert app.replica("rates") == {"a": "3"}


def _digests(reports: Any) -> dict[str, Any]:
    return {report.task_id: report.sealed and report.sealed.digest for report in reports}


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_changes_nothing_that_comes_out(tmp_path: Path, step: str, backend: str) -> None:
    app = made(tmp_path / "app", backend=backend)
    app.append("rates", [("a", "1"), ("b", "2")])
    app.append("changes", [("a", "x")])
    app.append("orders", [("o", "a")])
    app.run()
    app.append("changes", [("a", "x"), ("b", "x")], partition=1)
    app.append("rates", [("a", None), ("c", "3")])
    app.append("orders", [("o", word) for word in "abc"])
    hits = 0
    while True:
        executor = app.start()
        try:
            with failpoints.armed(step, "raise", skip=hits) as point:
                executor.run_until_caught_up()
        except failpoints.InjectedCrash:
            pass
        executor.close()
        if not point.fired:
            break
        hits += 1
    assert hits > 0
    app.append("orders", [("o", word) for word in "abc"])
    app.run()
    assert app.outputs() == ["a=1,1", *["a=None,2", "b=2,1", "c=3,0"] * 2]
    assert (app.replica("rates"), app.replica("updates")) == ({"b": "2", "c": "3"}, {"a": 2, "b": 1})


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_tasks_of_a_host_have_the_one_copy_open_at_once(tmp_path: Path, backend: str) -> None:
    app = made(tmp_path / "app", backend=backend)
    app.append("rates", [("a", "1")])
    with app.start() as executor:
        executor.run_until_caught_up()
        directory = executor.worker.directory.task("app", "0_0")
        with rates_of(executor) as rows:
            assert list(rows) == [b"a"]
            with directory.shared_lock(timeout_ms=0):
                pass
            with pytest.raises(TaskLockedError), directory.lock(timeout_ms=0):
                pass
        with directory.lock(timeout_ms=0):
            pass
    state = tmp_path / "app" / "state"
    copies = [path.parent.relative_to(state).as_posix() for path in state.rglob("FORMAT")]
    assert copies == [f"app/0_0/{backend}/rates"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_shared", [True, False])
def test_the_tasks_of_an_epoch_open_a_copy_once_if_others_may_read_it_meanwhile(
    tmp_path: Path, backend: str, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = made(tmp_path / "app", backend=backend, partitions=4)
    app.append("rates", [("a", "1")])
    app.append("changes", [("a", "x")])
    seen: list[Path] = []
    with app.start() as executor:
        executor.run_until_caught_up()
        real = open_shared_stores
        monkeypatch.setattr(store_opening, "can_be_shared", lambda *_: is_shared)

        def counted(directory: TaskDirectory, *args: Any, **more: Any) -> Any:
            seen.append(directory.path)
            return real(directory, *args, **more)

        monkeypatch.setattr(store_opening, "open_shared_stores", counted)
        for partition in range(4):
            app.append("orders", [("o", "a")], partition=partition)
        executor.run_until_caught_up()
        opened = 1 if is_shared else 4
        assert Counter(path.name for path in seen) == {"0_0": opened, "1_0": opened}
        for path in set(seen):
            with TaskDirectory(path).lock(timeout_ms=0):
                pass  # they are closed when the epoch has run
    assert app.outputs() == ["a=1,1"] * 4


def test_who_would_move_a_copy_on_waits_for_those_who_read_it(tmp_path: Path) -> None:
    app = made(tmp_path / "app", backend="lmdb")
    app.append("rates", [("a", "1")])
    with app.start() as executor:
        executor.apply_after_commit = False
        executor.run_until_caught_up()
        seen: list[dict[bytes, bytes]] = []
        directory = executor.worker.directory.task("app", "0_0")
        with directory.shared_lock(timeout_ms=0):
            reader = threading.Thread(target=lambda: seen.append(_rows(executor)))
            reader.start()
            reader.join(0.2)
            assert seen == []
        reader.join()
    assert [list(rows) for rows in seen] == [[b"a"]]


def test_a_copy_that_others_have_moved_on_meanwhile_is_read_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = made(tmp_path / "app", backend="lmdb")
    app.append("rates", [("a", "1")])
    with app.start() as executor, ExitStack() as held:
        executor.apply_after_commit = False
        executor.run_until_caught_up()
        directory = executor.worker.directory.task("app", "0_0")
        tries: list[int] = []

        def opened(*args: Any, **more: Any) -> Any:
            """The first who would move it on finds that another one has, and reads."""
            if not tries:
                with open_task_stores(*args, **{**more, "lock_timeout_ms": 1_000}):
                    pass
                held.enter_context(directory.shared_lock(timeout_ms=0))
            tries.append(more["lock_timeout_ms"])
            return open_task_stores(*args, **more)

        monkeypatch.setattr(task_stores, "open_task_stores", opened)
        assert list(_rows(executor)) == [b"a"]
        assert tries == [2]


def _rows(executor: InProcessExecutor) -> dict[bytes, bytes]:
    with rates_of(executor) as rows:
        return rows


def test_a_join_with_a_global_table_looks_every_record_up_as_of_its_epoch(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", store="rates", **WORDS)
    orders = builder.stream("orders", **WORDS)
    kept = orders.left_join(rates, lambda order, rate: f"{order}={rate}", key_of=lambda _, order: order)
    found = orders.join(rates, lambda order, rate: f"{order}:{rate}", key_of=lambda _, order: order)
    kept.merge(found).to("out", **WORDS)
    app = made(tmp_path / "app", topology=builder.build(), backend="rocksdb")
    app.append("rates", [("a", "1")], partition=1)
    with app.start() as executor:
        executor.run_until_caught_up()
        for rate in ("2", None):
            app.append("orders", [("o", "a"), ("o", "b")])
            executor.run_epoch()
            app.append("rates", [("a", rate)], partition=1)
        app.append("orders", [("o", "a")])
        executor.run_epoch()
    assert app.outputs() == ["a=1", "a:1", "b=None", "a=2", "a:2", "b=None", "a=None"]


def test_what_the_application_writes_to_a_global_topic_is_there_from_the_next_epoch_on(
    tmp_path: Path,
) -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", store="rates", **WORDS)
    orders = builder.stream("orders", **WORDS)
    joined = orders.left_join(rates, lambda order, rate: f"{order} after {rate}", key_of=lambda key, _: key)
    joined.to("out", **WORDS)
    orders.to("rates", **WORDS)
    app = made(tmp_path / "app", topology=builder.build())
    with app.start() as executor:
        app.append("orders", [("o", "1"), ("o", "2")])
        executor.run_epoch()
        app.append("orders", [("o", "3")])
        executor.run_epoch()
    assert app.outputs() == ["1 after None", "2 after None", "3 after 2"]


def test_a_global_record_that_can_not_be_read_has_one_dead_letter_and_is_counted_once(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", key=serdes.string, value=serdes.int64, store="rates")
    orders = builder.stream("orders", **WORDS)
    joined = orders.left_join(rates, lambda order, rate: f"{order}={rate}", key_of=lambda _, order: order)
    joined.to("out", **WORDS)
    config = StreamsConfig(deserialization_handler=handlers.dead_letter, dead_letter_topic="dead")
    app = made(tmp_path / "app", topology=builder.build(), config=config)
    with app.start() as executor:
        app.append("rates", [("a", "not a number")])
        app.append("orders", [("o", "a")])
        app.append("orders", [("p", "a")], partition=1)
        executor.run_epoch()
        dropped = executor.metrics.of_task("0_0")
    assert app.outputs() == ["a=None", "a=None"]
    assert dropped == {("KSTREAM-SOURCE-0000000000", "records-dropped"): 1}
    assert app.log().latest(TopicPartition("dead", Partition(0))) == 1


def test_serdes_that_find_out_by_themselves_are_known_to_all_who_read(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.add_global_store(stores.key_value("rates"), "rates", _Keep, **WORDS)
    builder.stream("orders", **WORDS).process(_Look).to("out", **WORDS)
    app = made(tmp_path / "app", topology=builder.build(), backend="lmdb")
    with app.start() as executor:
        app.append("rates", [("a", "1")])
        app.append("orders", [("o", "a")])
        executor.run_epoch()
    app.append("orders", [("o", "a")])
    app.run()
    assert app.outputs() == ["1", "1"]


def test_new_partitions_of_a_global_topic_are_read(tmp_path: Path) -> None:
    app = made(tmp_path / "app", partitions=1)
    with app.start() as executor:
        app.append("rates", [("a", "1")])
        executor.run_until_caught_up()
        app.log().add_partitions("rates", 3)
        app.append("rates", [("b", "2")], partition=2)
        app.append("orders", [("o", "a"), ("o", "b")])
        executor.run_until_caught_up()
    assert app.outputs() == ["a=1,0", "b=2,0"]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_in_between_an_epoch_joins_with_the_fold_of_its_topic(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    app = made(tmp_path / "app", backend=rng.choice(BACKENDS))
    rates: dict[str, str] = {}
    updates: Counter[str] = Counter()
    expected: list[str] = []
    executor = app.start()
    for number in range(40):
        for word in rng.choices("abcdef", k=rng.randrange(4)):
            rate = rng.choice([None, str(number)])
            app.append("rates", [(word, rate)], partition=ord(word) % 2)
            rates.pop(word, None)
            rates |= {} if rate is None else {word: rate}
        for word in rng.choices("abcdef", k=rng.randrange(3)):
            app.append("changes", [(word, "x")], partition=rng.randrange(2))
            updates[word] += 1
        words = rng.choices("abcdef", k=rng.randrange(3))
        app.append("orders", [("o", word) for word in words])
        expected += [f"{word}={rates.get(word)},{updates[word]}" for word in words]
        executor.run_until_caught_up()
        match rng.randrange(8):
            case 0:
                executor.close()
                executor = app.start()
            case 1:
                executor.close()
                app.lose_disk()
                executor = app.start()
            case 2:
                executor.apply_after_commit = not executor.apply_after_commit
            case 3:
                executor.run_maintenance()
    executor.close()
    assert app.outputs() == expected
    assert (app.replica("rates"), app.replica("updates")) == (rates, dict(updates))


def test_maintenance_and_snapshots_keep_what_every_host_needs(tmp_path: Path) -> None:
    config = StreamsConfig(snapshot_uri=str(tmp_path / "snapshots"), snapshot_interval_epochs=1)
    settings = CoordinatorSettings(retained_manifests=2)
    app = made(tmp_path / "app", backend="lmdb", config=config, settings=settings)
    with app.start() as executor:
        for number in range(12):
            app.append("rates", [("a", str(number)), (f"k{number}", "x")])
            app.append("changes", [("a", "x")], partition=number % 2)
            executor.run_until_caught_up()
            executor.run_maintenance()
    app.lose_disk()
    app.append("orders", [("o", "a"), ("o", "k3")])
    app.run()
    assert app.outputs() == ["a=11,12", "k3=x,0"]
    assert len(app.replica("rates")) == 13


def test_a_tick_does_not_move_global_stores(tmp_path: Path) -> None:
    app = made(tmp_path / "app")
    app.append("rates", [("a", "1")])
    with app.start() as executor:
        executor.run_until_caught_up()
        version = executor.coordinator.head.tasks["0_0"].version
        manifest = executor.run_epoch(tick=True)
    assert manifest is not None
    assert manifest.tasks["0_0"].version == version < manifest.epoch


def test_a_global_store_without_logging_has_a_changelog_all_the_same(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    rates = stores.key_value("rates", key=serdes.string, value=serdes.string, logging=False)
    builder.add_global_store(rates, "rates", _Keep, **WORDS)
    builder.stream("orders", **WORDS).process(_Look).to("out", **WORDS)
    app = made(tmp_path / "app", topology=builder.build())
    app.append("rates", [("a", "1")])
    app.run()
    app.lose_disk()
    app.append("orders", [("o", "a")])
    app.run()
    assert app.outputs() == ["1"]


def test_a_processor_of_a_global_store_can_not_schedule(tmp_path: Path) -> None:
    class Punctual(_Keep):
        def init(self, context: ProcessorContext[None, None]) -> None:
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, print)

    builder = StreamsBuilder()
    builder.add_global_store(stores.key_value("rates"), "rates", Punctual, **WORDS)
    app = made(tmp_path / "app", topology=builder.build())
    app.append("rates", [("a", "1")])
    with app.start() as executor, pytest.raises(TopologyError) as caught:
        executor.run_epoch()
    assert str(caught.value) == (
        "processor 'KTABLE-SOURCE-0000000001' of a global store schedules a punctuator, but it runs for "
        "records of its topic only. Remedy: schedule it in a processor of a stream, which can read the store."
    )


class _Keep(Processor[str, str, None, None]):
    def init(self, context: ProcessorContext[None, None]) -> None:
        self._rates = context.state_store("rates")

    def process(self, record: Any) -> None:
        self._rates.put(record.key, record.value)


class _Look(Processor[str, str, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        self._rates = context.state_store("rates")

    def process(self, record: Any) -> None:
        self._context.forward(record.with_value(self._rates.get(record.value)))
