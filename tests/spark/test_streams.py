"""`Streams`: its states, how it is started and ended, what it tells, and what it reads."""

from __future__ import annotations

import random
import re
import shutil
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext
from tests.spark.lab import Lab
from tests.spark.processes import Child, descendants, until
from tests.spark.programs import check_exact, counted, one_level, two_levels, words

from millstream import (
    Answer,
    KeyValueStore,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    State,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    serdes,
    stores,
)
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.lease import acquire
from millstream.console import line_of
from millstream.engine.api import EpochFailedError
from millstream.engine.epoch_result import EpochResult
from millstream.engine.spark.session import EMBEDDED, SETTINGS, check_context
from millstream.errors import ConfigError, MillstreamError, ProcessingError, UnknownStoreError
from millstream.state.errors import StateDirectoryError, StateInUseError
from millstream.state.local.directory import note_log, noted_log, open_state_directory

pytestmark = pytest.mark.xdist_group("spark")

CREATED, REBALANCING, RUNNING = State.CREATED, State.REBALANCING, State.RUNNING
PENDING, ENDED, ERROR = State.PENDING_SHUTDOWN, State.NOT_RUNNING, State.ERROR


def watched(app: Streams) -> list[State]:
    """The states that the application goes through from now on."""
    states = [app.state]
    app.on_state(lambda _, after: states.append(after))
    return states


def test_it_goes_through_its_states_in_order_and_tells_listeners(lab: Lab) -> None:
    lab.topic("in", parts := words(40, seed=20))
    with lab.app(two_levels(), max_records_per_epoch=10) as app:
        states, epochs = watched(app), []
        app.on_epoch(lambda result: epochs.append((result.manifest.epoch, result.records)))
        app.run(until="caught-up")
        assert states == [CREATED, REBALANCING, RUNNING]
    assert states == [CREATED, REBALANCING, RUNNING, PENDING, ENDED]
    assert [epoch for epoch, _ in epochs] == list(range(2, 2 + len(epochs)))
    assert sum(records for _, records in epochs) == 40
    metrics = app.metrics()
    assert (metrics["state"], metrics["records"], metrics["epochs"]) == ("not running", 40, len(epochs))
    assert list(metrics["last_epoch_stages"]) == ["plan", "job and commit", "publish"]
    assert sum(metrics["last_epoch_stages"].values()) <= metrics["last_epoch_seconds"]
    assert list(metrics["last_epoch_task_stages"]) == ["read", "open stores", "process", "seal", "pack"]
    check_exact(lab, "two_levels", parts)


def test_it_runs_in_the_background_until_it_is_closed(lab: Lab) -> None:
    lab.topic("in", parts := words(40, seed=21))
    app = lab.app(one_level())
    app.start()
    until(lambda: lab.committed() == 40, "all records are committed")
    with pytest.raises(MillstreamError, match="runs in the background already"):
        app.run()
    app.close()
    assert app.state is ENDED
    assert app.error is None
    with pytest.raises(MillstreamError, match="Remedy: make a new Streams object"):
        app.run()
    check_exact(lab, "one_level", parts)


def test_it_runs_for_a_time_or_until_a_condition(lab: Lab) -> None:
    lab.topic("in", words(40, seed=22))
    with lab.app(one_level(), max_records_per_epoch=5) as app:
        app.run(until=lambda app: app.metrics()["epochs"] == 2)
        assert app.metrics()["epochs"] == 2
        app.run(until=timedelta(milliseconds=1))
        assert app.metrics()["epochs"] == 3
        app.run(until=0.001)
        assert app.metrics()["epochs"] == 4
        app.run(until=0)
        assert app.metrics()["epochs"] == 5


def test_closing_what_never_ran_is_harmless(tmp_path: Path) -> None:
    app = Streams(one_level(), app_id="idle", log=tmp_path / "log")
    states = watched(app)
    app.close()
    app.close()
    assert states == [CREATED, PENDING, ENDED]


def failing() -> Any:
    def fail(value: str) -> str:
        raise ValueError(value)

    builder = StreamsBuilder()
    builder.stream("in", value=serdes.string).map_values(fail).to("out")
    return builder.build()


def test_an_uncaught_error_ends_it_unless_the_handler_says_otherwise(lab: Lab) -> None:
    lab.topic("in", [[("a", "x")]])
    app = lab.app(failing())
    states, asked = watched(app), []

    def replace_twice(error: Exception) -> Answer:
        asked.append(error)
        return Answer.REPLACE if len(asked) < 3 else Answer.SHUTDOWN

    app.on_uncaught(replace_twice)
    with pytest.raises(ProcessingError):
        app.run(until="caught-up")
    assert len(asked) == 3
    assert states == [CREATED, REBALANCING, RUNNING, REBALANCING, RUNNING, REBALANCING, RUNNING, ERROR]
    app.close()
    assert app.state is ERROR


def test_a_failure_of_the_machinery_is_mended_without_asking(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.topic("in", parts := words(40, seed=23))
    with lab.app(two_levels(), max_records_per_epoch=10) as app:
        run_epoch, failures = app._loop.run_epoch, iter([None, None])

        def flaky(*, tick: bool) -> Any:
            if lab.committed() >= 10 and next(failures, "done") is None:
                raise EpochFailedError("the network was down")
            return run_epoch(tick=tick)

        monkeypatch.setattr(app._loop, "run_epoch", flaky)
        app.on_uncaught(lambda error: pytest.fail(f"asked about {error}"))
        app.run(until="caught-up")
    check_exact(lab, "two_levels", parts)


def test_an_error_in_the_background_is_kept_and_logged(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.topic("in", [[("a", "x")]])
    app = lab.app(failing())
    app.start()
    until(lambda: app.state is ERROR, "the application fails")
    app.close()
    assert isinstance(app.error, ProcessingError)
    assert "has ended" in caplog.text


class Clock(Processor[bytes, bytes, bytes, bytes]):
    """Sends a record for each tick of the wall clock."""

    def init(self, context: ProcessorContext[bytes, bytes]) -> None:
        super().init(context)
        context.schedule(50, PunctuationType.WALL_CLOCK_TIME, self._tick)

    def _tick(self, now: int) -> None:
        self.context.forward(Record(b"tick", str(now).encode(), now))

    def process(self, record: Record[bytes, bytes]) -> None:
        self.context.forward(record)


def test_the_wall_clock_ticks_for_punctuators_without_any_input(lab: Lab) -> None:
    lab.topic("in", [[]])
    builder = StreamsBuilder()
    builder.stream("in").process(Clock).to("out")
    with lab.app(builder.build(), tick_ms=60, default_partitions=1) as app:
        app.run(until="caught-up")
        assert lab.rows("out") == [], "the clock stands still while input is caught up with"
        app.run(until=lambda _: len(lab.rows("out")) >= 3)
    times = [int(row.value or b"") for row in lab.rows("out")]
    assert times == sorted(set(times))


class Heartbeat:
    """Changes nothing, and counts the ticks of the wall clock in a store."""

    def init(self, context: Any) -> None:
        self._beats: KeyValueStore[str, str] = context.state_store("beats")
        context.schedule(50, PunctuationType.WALL_CLOCK_TIME, self._beat)

    def transform(self, key: bytes, value: bytes) -> bytes:
        del key
        return value

    def close(self) -> None:
        """Nothing to close."""

    def _beat(self, timestamp: int) -> None:
        del timestamp
        self._beats.put("beats", (self._beats.get("beats") or "") + "x")


def test_the_wall_clock_ticks_for_a_transformer_of_a_table(lab: Lab) -> None:
    lab.topic("in", [[]])
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("beats", key=serdes.string, value=serdes.string))
    builder.table("in").transform_values(Heartbeat, "beats")
    looks = iter(range(2_000))
    with lab.app(builder.build(), tick_ms=20, commit_interval_ms=10) as app:
        beats = app.store("beats")
        app.run(until=lambda _: beats.get("beats") == "xxx" or next(looks, None) is None)
        assert beats.get("beats") == "xxx"


class Deaf(Clock):
    """Schedules nothing."""

    def init(self, context: ProcessorContext[bytes, bytes]) -> None:
        Processor.init(self, context)


def test_a_processor_that_schedules_nothing_costs_no_more_than_one_tick(lab: Lab) -> None:
    lab.topic("in", [[]])
    builder = StreamsBuilder()
    builder.stream("in").process(Deaf).to("out")
    with lab.app(builder.build(), tick_ms=1, commit_interval_ms=1) as app:
        looks = iter(range(20))
        app.run(until=lambda _: next(looks, None) is None)
        assert app.metrics()["epochs"] == 1


class Hasty(Processor[bytes, bytes, bytes, bytes]):
    """Wants what it sends to be visible soon."""

    def process(self, record: Record[bytes, bytes]) -> None:
        self.context.forward(record)
        self.context.commit()


def test_a_processor_that_asks_for_a_commit_does_not_wait_for_the_interval(lab: Lab) -> None:
    lab.topic("in", [[("a", "1")]])
    builder = StreamsBuilder()
    builder.stream("in").process(Hasty).to("out")
    with lab.app(builder.build(), commit_interval_ms=10**9) as app:
        results: list[EpochResult] = []

        def more(result: EpochResult) -> None:
            results.append(result)
            lab.append("in", [("b", "2")])

        app.on_epoch(more)
        app.run(until=lambda _: len(lab.rows("out")) >= 3)
    # The first tick asks whether anybody wants the clock; it took the first record with it.
    assert [result.commit_requested for result in results] == [True, True, True]
    assert app.metrics()["records"] == 3


def test_latency_and_state_size_are_measured(lab: Lab) -> None:
    lab.topic("in", parts := words(60, seed=29))
    with lab.app(two_levels(), max_records_per_epoch=10) as app:
        assert (app.metrics()["latency_ms"], app.metrics()["state_bytes"]) == (None, 0)
        results: list[EpochResult] = []
        app.on_epoch(results.append)
        app.run(until="caught-up")
        lab.append("in", [("moss", "moss")])
        app.run(until="caught-up")
        metrics, shown = app.metrics(), line_of(app.figures())
    assert [result.has_backlog for result in results] == [True] * (len(results) - 2) + [False] * 2
    assert all(result.latency_ms is not None and result.latency_ms >= 0 for result in results)
    assert metrics["latency_ms"] == results[-1].latency_ms
    assert metrics["state_entries"] == len(counted(parts))
    assert metrics["state_bytes"] > 0
    assert f"latency {metrics['latency_ms']:,} ms" in shown
    assert f"in {len(counted(parts)):,} keys" in shown


def test_a_store_is_read_at_the_last_commit(lab: Lab) -> None:
    lab.topic("in", parts := words(60, seed=24))
    expected = counted(parts)
    with lab.app(two_levels()) as app:
        counts = app.store("counts")
        assert (counts.get("river"), counts.version) == (None, 0)
        app.run(until="caught-up")
        version = app.metrics()["last_epoch"]
        assert (counts.get("river"), counts.version) == (expected["river"], version)
        assert dict(counts.all()) == expected
        assert len(counts) == len(expected)
        between = {word: count for word, count in expected.items() if "m" <= word <= "rain"}
        assert dict(counts.range("m", "rain")) == between
        assert dict(counts.prefix_scan("s", serdes.string)) == {
            word: count for word, count in expected.items() if word.startswith("s")
        }
        before = counts.all()
        lab.append("in", [("river", "river")])
        app.run(until="caught-up")
        assert (counts.get("river"), counts.version) == (expected["river"] + 1, version + 1)
        assert dict(before) == expected, "an answer belongs to one version"
        with pytest.raises(UnknownStoreError, match="Stores are: counts"):
            app.store("no-such")


def test_cleanup_deletes_its_own_state_and_nothing_else(lab: Lab) -> None:
    lab.topic("in", parts := words(40, seed=25))
    lab.run(one_level(), "other")
    app = lab.run(one_level())
    assert sorted(path.name for path in lab.state_dir.iterdir() if path.is_dir()) == ["app", "other"]
    app.cleanup()
    assert [path.name for path in lab.state_dir.iterdir() if path.is_dir()] == ["other"]
    with lab.app(one_level()) as again:
        again.run(until="caught-up")
        assert dict(again.store("counts").all()) == counted(parts)


def test_cleanup_leaves_what_somebody_works_on(tmp_path: Path) -> None:
    config = StreamsConfig(state_dir=tmp_path / "state")
    app = Streams(one_level(), app_id="copy", log=tmp_path / "log", config=config)
    directory = open_state_directory(tmp_path / "state")
    busy, idle = directory.task("copy", "0_0"), directory.task("copy", "0_1")
    with idle.lock(timeout_ms=0):
        pass
    with busy.lock(timeout_ms=0):
        with pytest.raises(StateDirectoryError, match=r"Tasks 0_0 of application 'copy' are being worked on"):
            app.cleanup()
        assert busy.path.exists()
        assert not idle.path.exists()
    app.cleanup()
    assert not (tmp_path / "state" / "copy").exists()


def test_cleanup_is_for_applications_that_do_not_run(lab: Lab) -> None:
    lab.topic("in", words(40, seed=26))
    with lab.app(one_level()) as app:
        app.run(until="caught-up")
        store = next(lab.state_dir.glob("app/0_0/*/counts"))
        for refused in (app, lab.app(one_level())):
            with pytest.raises(StateInUseError, match=r"Nothing was deleted\. Remedy: close"):
                refused.cleanup()
        assert noted_log(open_state_directory(lab.state_dir), "app") == lab.folder / "log"
        assert store.exists()
    app.cleanup()
    assert not (lab.state_dir / "app").exists()


def test_cleanup_leaves_state_that_is_used_on_another_log(tmp_path: Path) -> None:
    directory = note_log(open_state_directory(tmp_path / "state"), "copy", tmp_path / "there")
    directory.task("copy", "0_0")
    there = ApplicationStorage(tmp_path / "there", "copy")
    there.ensure()
    lease = acquire(there, clock=lambda: time.time_ns() // 1_000_000, ttl_ms=30_000)
    config = StreamsConfig(state_dir=tmp_path / "state")
    app = Streams(one_level(), app_id="copy", log=tmp_path / "here", config=config)
    with pytest.raises(StateInUseError, match=f"on the log {tmp_path / 'there'}"):
        app.cleanup()
    lease.release()
    app.cleanup()
    assert directory.tasks("copy") == []


def test_cleanup_refuses_a_folder_without_our_marker(tmp_path: Path) -> None:
    precious = tmp_path / "home" / "copy" / "letters.txt"
    precious.parent.mkdir(parents=True, mode=0o700)
    precious.parent.parent.chmod(0o700)
    precious.touch()
    config = StreamsConfig(state_dir=tmp_path / "home")
    app = Streams(one_level(), app_id="copy", log=tmp_path / "log", config=config)
    with pytest.raises(StateDirectoryError):
        app.cleanup()
    assert precious.exists()


@pytest.mark.parametrize("app_id", ["..", ".", ".hidden", "a/b", "", "a" * 201])
def test_an_application_id_that_is_no_name_of_a_folder_is_refused(app_id: str) -> None:
    with pytest.raises(ConfigError, match="can't be an application id"):
        Streams(one_level(), app_id=app_id)


def test_a_session_with_wrong_settings_is_refused_and_told_which(
    spark: SparkContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = spark.getConf().set("spark.speculation", "true").set("spark.master", "local[2]")
    monkeypatch.setattr(spark, "getConf", lambda: conf)
    with pytest.raises(ConfigError) as refusal:
        check_context(spark)
    assert "set .config('spark.speculation', 'false')" in str(refusal.value)
    assert "the master is 'local[2]'" in str(refusal.value)


def test_workers_run_the_interpreter_and_the_import_path_of_the_application(spark: SparkContext) -> None:
    def environment(_: int) -> tuple[str, set[str]]:
        return sys.executable, set(sys.path)

    executable, path = spark.parallelize([0], 1).map(environment).first()
    assert executable == sys.executable
    assert set(filter(None, sys.path)) <= path


def test_settings_of_our_spark_are_not_those_of_one_that_the_program_makes_later(spark: SparkContext) -> None:
    ours = {name for name, _ in spark.getConf().getAll()}
    assert "spark.python.daemon.module" in ours
    assert {name for name, _ in SparkConf(_jvm=spark._jvm).getAll()} & {*SETTINGS, *EMBEDDED} == set()


def test_what_is_no_session_is_refused(lab: Lab) -> None:
    lab.topic("in", [[]])
    lab.spark = "spark://somewhere"
    with lab.app(one_level()) as app, pytest.raises(ConfigError, match="neither a SparkSession"):
        app.run(until="caught-up")


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_ctrl_c_ends_it_in_order(bare_lab: Lab, number: signal.Signals) -> None:
    bare_lab.topic("in", parts := words(40, seed=26))
    with Child(bare_lab, "two_levels", until_caught_up=False) as child:
        child.wait_for(lambda: bare_lab.committed() == 40, "all records are committed")
        commands = [_command_of(pid) for pid in descendants(child.pid)]
        assert any("millstream_worker_daemon" in command for command in commands), commands
        child.signal(number)
        assert child.wait() == 0, child.said()
        said = child.said()  # without a word of Spark's workers
        assert "running -> pending shutdown\npending shutdown -> not running" in said
        assert "Traceback" not in said
        assert "WARN" not in said, "Spark is to be quiet"
    check_exact(bare_lab, "two_levels", parts)


def test_ctrl_c_while_spark_starts_ends_it_quietly(bare_lab: Lab) -> None:
    bare_lab.topic("in", words(40, seed=33))
    with Child(bare_lab, "two_levels", until_caught_up=False) as child:
        child.wait_for(lambda: bool(descendants(child.pid)), "Spark is being started")
        child.signal(signal.SIGINT)
        assert child.wait() == 0, child.said()
        assert child.said().splitlines() == [
            "created -> rebalancing",
            "stopping app, after what is at work",
            "rebalancing -> running",
            "running -> pending shutdown",
            "pending shutdown -> not running",
        ]


GIVEN_UP = "stopping app at once: what is at work is given up, and done again next time"


def test_a_second_ctrl_c_while_spark_starts_ends_it_at_once(bare_lab: Lab) -> None:
    bare_lab.topic("in", words(40, seed=34))
    with Child(bare_lab, "two_levels", until_caught_up=False) as child:
        child.wait_for(lambda: bool(descendants(child.pid)), "Spark is being started")
        child.signal(signal.SIGINT)
        child.wait_for(lambda: "stopping app" in child.said(), "it has heard that")
        child.signal(signal.SIGINT)
        assert child.wait() == 0, child.said()
        assert child.said().splitlines() == [
            "created -> rebalancing",
            "stopping app, after what is at work",
            GIVEN_UP,
            "rebalancing -> pending shutdown",
            "pending shutdown -> not running",
        ]


def test_a_second_ctrl_c_gives_a_job_up_and_the_next_start_does_it(bare_lab: Lab) -> None:
    bare_lab.topic("in", parts := words(40, seed=35))
    stuck = "commit.processed=stop"
    with Child(bare_lab, "two_levels", until_caught_up=False, worker_failpoints=stuck) as child:
        child.wait_for_a_stopped_worker()
        child.signal(signal.SIGINT)
        child.wait_for(lambda: "stopping app" in child.said(), "it has heard that")
        child.signal(signal.SIGINT)
        assert child.wait() == 0, child.said()
        assert child.said().splitlines()[2:] == [
            "stopping app, after what is at work",
            GIVEN_UP,
            "running -> pending shutdown",
            "pending shutdown -> not running",
        ]
    assert bare_lab.committed() == 0
    with Child(bare_lab, "two_levels") as child:
        assert child.wait() == 0, child.said()
    check_exact(bare_lab, "two_levels", parts)


def test_a_killed_jvm_is_replaced(bare_lab: Lab) -> None:
    bare_lab.topic("in", parts := words(600, seed=27))
    with Child(bare_lab, "two_levels", max_records_per_epoch=20) as child:
        child.wait_for(lambda: bare_lab.committed() > 40, "some records are committed")
        for pid in descendants(child.pid):
            if "org.apache.spark.deploy.SparkSubmit" in _command_of(pid):
                child.kill_one(pid)
        assert bare_lab.committed() < 600, "the input was finished before the kill"
        assert child.wait() == 0, child.said()
        # Orphaned workers may complain in between.
        changes = re.findall(r"^\w[\w ]* -> [\w ]+$", child.said(), re.MULTILINE)
        assert changes[2:4] == ["running -> rebalancing", "rebalancing -> running"]
    check_exact(bare_lab, "two_levels", parts)


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def test_two_threads_may_close_it(lab: Lab) -> None:
    lab.topic("in", words(20, seed=28))
    app = lab.app(one_level())
    app.start()
    closers = [threading.Thread(target=app.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join()
    until(lambda: app.state is ENDED, "the application has ended")


def test_maintenance_comes_early_if_epochs_are_large(lab: Lab) -> None:
    """Megabytes of state: more than what is spare."""
    chance = random.Random(32)
    rows = [(f"key-{number}", chance.randbytes(3_000).hex()) for number in range(3_000)]
    lab.topic("in", [rows * 9])
    builder = StreamsBuilder()
    builder.table("in", key=serdes.string, value=serdes.string, store="latest")
    with lab.app(builder.build(), max_records_per_epoch=3_000, maintenance_interval_epochs=1_000) as app:
        app.run(until="caught-up")
    manifests = (lab.folder / "log" / "applications").glob("*/manifests/*")
    assert len(list(manifests)) < 9, "all manifests are still there"


def test_maintenance_goes_on_beside_the_epochs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.maintenance.maintenance.MIN_ENTRIES", 2)
    lab.topic("in", parts := words(60, seed=31))
    with lab.app(two_levels(), max_records_per_epoch=4, maintenance_interval_epochs=3) as app:
        app.run(until="caught-up")
    check_exact(lab, "two_levels", parts)
    assert list((lab.folder / "log" / "topics").glob("*/*/*-*.segment")), "nothing was rewritten"
    shutil.rmtree(lab.state_dir)
    lab.append("in", [("to", "sea")])
    lab.run(two_levels())
    check_exact(lab, "two_levels", [*parts, [("to", "sea")]])
