"""Stores that are read where they are, active or standby. Slots are threads on several hosts."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.host_reading import Reading, everything
from tests.engine.hosts_in_threads import Hosts, running_on
from tests.engine.test_standbys import TWO_HOSTS, until
from tests.spark.lab import Lab, Pair
from tests.spark.programs import WORDS

from millstream import Store, StreamsBuilder, serdes
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.commit.standby import StandbyTask
from millstream.commit.worker import Worker
from millstream.errors import StoreError, StoreUnavailableError, UnknownStoreError
from millstream.log.partitioner import partition_for_key
from millstream.query import host_stores
from millstream.query.host_stores import ReadFrom
from millstream.query.store_reads import begin_read, go_on
from millstream.state.errors import StoreNotHereError
from millstream.types import Epoch, Partition

THREE_HOSTS = {0: "one", 1: "two", 2: "three"}
STANDBYS: dict[str, Any] = {"num_standby_replicas": 1, "acceptable_recovery_lag": 0}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab", None)


def records(count: int, *, seed: int) -> list[list[Pair]]:
    """Words where their hash puts them; the value is the partition."""
    chance = random.Random(seed)
    parts: list[list[Pair]] = [[], []]
    for _ in range(count):
        word = chance.choice(WORDS)
        partition = partition_for_key(word.encode(), 2)
        parts[partition].append((word, str(partition)))
    return parts


METHODS: dict[str, list[Callable[[Any], Any]]] = {
    "plain": [
        *(lambda store, word=word: store.get(word) for word in [*WORDS, "nowhere"]),
        lambda store: list(store.all()),
        lambda store: list(store.reverse_all()),
        lambda store: list(store.range("m", "s")),
        lambda store: list(store.range("s", "m")),
        lambda store: list(store.range(None, "reed")),
        lambda store: list(store.reverse_range("reed", None)),
        lambda store: list(store.prefix_scan("r", serdes.string)),
        len,
    ],
    "windows": [
        *(lambda store, word=word: store.fetch(word, 20) for word in [*WORDS, "nowhere"]),
        lambda store: list(store.fetch("river", 10, 60)),
        lambda store: list(store.fetch("nowhere", 10, 60)),
        lambda store: list(store.backward_fetch("river", 10, 60)),
        lambda store: list(store.fetch_range("m", "s", 20, 70)),
        lambda store: list(store.backward_fetch_range(None, "s", 20, 70)),
        lambda store: list(store.fetch_all(30, 50)),
        lambda store: list(store.backward_fetch_all(30, 50)),
        lambda store: list(store.all()),
        lambda store: list(store.backward_all()),
    ],
    "sessions": [
        *(lambda store, word=word: list(store.fetch(word)) for word in [*WORDS, "nowhere"]),
        lambda store: store.fetch_session("river", 20, 25),
        lambda store: [store.fetch_session("river", 20, end) for end in range(20, 30)],
        lambda store: list(store.find_sessions("river", 20, 50)),
        lambda store: list(store.backward_find_sessions("river", 20, 50)),
        lambda store: list(store.find_sessions_range("m", None, 20, 50)),
        lambda store: list(store.backward_find_sessions_range("m", "s", 20, 50)),
        lambda store: list(store.fetch_range(None, None)),
        lambda store: list(store.backward_fetch("reed")),
        lambda store: list(store.backward_fetch_range("a", "z")),
    ],
    "versions": [
        *(lambda store, word=word: store.get(word) for word in [*WORDS, "nowhere"]),
        *(lambda store, time=time: store.get("river", time) for time in range(0, 80, 9)),
        lambda store: store.versions("river", 5, 60),
        lambda store: store.versions("nowhere", 5, 60),
        lambda store: list(store.all()),
    ],
}
METHODS["wide"] = [*METHODS["plain"], lambda store: store.get("1-0017")]
METHODS["stamped"] = METHODS["plain"]
METHODS["stamped-windows"] = METHODS["by-time"] = METHODS["windows"]


@pytest.mark.parametrize("read_from", ["active", "standby"])
@pytest.mark.parametrize("backend", ["lmdb", "rocksdb", "memory"])
def test_hosts_answer_what_a_replica_answers_for_all_kinds_of_stores_and_all_methods(
    lab: Lab, backend: str, read_from: ReadFrom
) -> None:
    lab.topic("in", records(160, seed=1))
    with running_on(lab, everything(), TWO_HOSTS, backend=backend, **STANDBYS) as app:
        reading = Reading(app)
        app.run()
        until(app.is_caught_up)
        for name, methods in METHODS.items():
            on_hosts, replica = reading.store(name, read_from), reading.replica(name)
            expected = [method(replica) for method in methods]
            assert [method(on_hosts) for method in methods] == expected, name
            assert any(expected)
            assert on_hosts.version == replica.version > 0
        role = "active" if read_from == "active" or backend == "memory" else "standby"
        assert set(reading.hosts.roles) == {role}
        if backend != "rocksdb":  # that counts deletions otherwise
            wide = reading.store("wide", read_from)
            assert wide.approximate_num_entries() == reading.replica("wide").approximate_num_entries() > 0


def test_a_store_without_a_changelog_is_read_where_its_task_runs(lab: Lab) -> None:
    lab.topic("in", parts := records(60, seed=2))
    with running_on(lab, everything(), TWO_HOSTS) as app:
        reading = Reading(app)
        app.run()
        found = dict(reading.store("unlogged", "active").all())
        last = {key: number for part in parts for number, (key, _) in enumerate(part)}
        assert found == last


def test_a_key_is_asked_for_where_it_is_and_elsewhere_only_if_it_is_not_there(lab: Lab) -> None:
    parts = records(60, seed=3)
    parts[partition_for_key(b"elsewhere", 2) ^ 1].append(("elsewhere", "x"))  # by a partitioner of its own
    lab.topic("in", parts)
    with running_on(lab, everything(), TWO_HOSTS) as app:
        reading = Reading(app)
        app.run()
        stamped = reading.store("stamped", "active")
        for word in WORDS:
            reading.hosts.asked.clear()
            assert stamped.get(word) is not None
            task = f"0_{partition_for_key(word.encode(), 2)}"
            assert reading.hosts.asked == {reading.slots(task, "active")[0]: 1}
        assert stamped.get("elsewhere") is not None
        assert list(reading.store("windows", "active").fetch("elsewhere", 0, 1_000))


def test_standbys_are_preferred_and_the_active_one_is_asked_if_they_are_not_fresh_enough(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = records(120, seed=4)
    lab.topic("in", [part[:20] for part in parts])
    with running_on(lab, everything(), TWO_HOSTS, max_records_per_epoch=10, **STANDBYS) as app:
        reading = Reading(app)
        app.run()
        until(app.is_caught_up)
        fresh, stale = reading.store("wide", "standby"), reading.store("wide", "standby", 600_000)
        standby, active = reading.slots("0_0", "standby")[0], reading.slots("0_0", "active")[0]
        assert (fresh.get("0-0001"), stale.get("0-0001")) == (19, 19)
        assert reading.hosts.asked == {standby: 2}
        then = fresh.version

        monkeypatch.setattr(StandbyTask, "follow", refuse_to_follow)
        for number, part in enumerate(parts):
            lab.append("in", part[20:], partition=number)
        app.run()
        head = ManifestChain(app.storage).latest()
        assert head is not None
        now = len(parts[0]) - 1
        reading.hosts.asked.clear()
        assert (fresh.get("0-0001"), fresh.version) == (now, head.epoch)
        assert reading.hosts.asked[active] == 1
        reading.hosts.asked.clear()
        assert (stale.get("0-0001"), stale.version) == (19, then), "and it says how stale it is"
        assert reading.hosts.asked == {standby: 1}
        assert reading.store("wide", "active").get("0-0001") == now


def test_a_standby_answers_for_as_long_as_it_may_be_behind(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.topic("in", [[("river", "0")], []])
    now = 1_000.0
    with running_on(lab, everything(), TWO_HOSTS, **STANDBYS) as app:
        reading = Reading(app, lambda: now)
        app.run()
        until(app.is_caught_up)
        store = reading.store("wide", "standby", 500)
        assert store.get("0-0001") == 0
        then = store.version
        monkeypatch.setattr(StandbyTask, "follow", refuse_to_follow)
        now += 60.0
        lab.append("in", [("river", "0")], partition=0)
        app.run()
        reading.hosts.roles.clear()
        now += 0.4
        assert (store.get("0-0001"), store.version, set(reading.hosts.roles)) == (0, then, {"standby"})
        now += 0.1
        assert (store.get("0-0001"), store.version) == (1, then + 1), "it is behind for half a second"
        assert reading.hosts.roles["active"] == 1


def test_a_read_does_not_wait_for_the_epoch_at_work_and_sees_nothing_of_it(lab: Lab) -> None:
    lab.topic("in", [[("river", "0")], [("rain", "1")]])
    is_at_work, may_go_on = threading.Event(), threading.Event()

    def stop_once(_: str, count: int) -> None:
        if count == 2:
            is_at_work.set()
            assert may_go_on.wait(60)

    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    counts = stream.group_by_key().count(store=Store("counts", caching=False))
    counts.to_stream().peek(stop_once).to("out", key=serdes.string, value=serdes.int64)
    with running_on(lab, builder.build(), TWO_HOSTS) as app:
        reading = Reading(app)
        app.run()
        store = reading.store("counts", "active")
        assert store.get("river") == 1
        then = store.version
        lab.append("in", [("river", "0")], partition=0)
        epoch = threading.Thread(target=app.run)
        epoch.start()
        try:
            assert is_at_work.wait(60)
            assert (store.get("river"), store.version) == (1, then)
            assert dict(store.all()) == {"river": 1, "rain": 1}
        finally:
            may_go_on.set()
            epoch.join()
        assert (store.get("river"), store.version) == (2, then + 1)
        assert app.engine.failures == []


def test_a_process_that_does_not_answer_is_given_up_after_a_while(lab: Lab) -> None:
    lab.topic("in", [[], []])
    with running_on(lab, everything(), TWO_HOSTS) as app:
        try:
            with pytest.raises(StoreNotHereError, match="slot 1 has not answered within"):
                app.engine.ask(1, wait_for_the_test, timeout_s=0.05)
        finally:
            TEST_IS_OVER.set()
        assert app.engine.ask(1, wait_for_the_test, timeout_s=60.0) is None


TEST_IS_OVER = threading.Event()


def wait_for_the_test(_: Worker) -> None:
    assert TEST_IS_OVER.wait(60)


def refuse_to_follow(*_: object) -> None:
    raise StoreError("not now")


def test_an_answer_never_goes_back_behind_what_the_same_object_has_answered(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = records(120, seed=5)
    lab.topic("in", [part[:20] for part in parts])
    settings = {**STANDBYS, "num_standby_replicas": 2, "max_records_per_epoch": 10}
    with running_on(lab, everything(), THREE_HOSTS, **settings) as app:
        reading = Reading(app)
        app.run()
        until(app.is_caught_up)
        slow, quick = reading.slots("0_0", "standby")
        store = reading.store("wide", "standby", 600_000)
        real = StandbyTask.follow

        def follow(standby: StandbyTask, entry: Any) -> None:
            host = standby._worker.directory.path.name
            if host.endswith(app.engine.launcher.hosts[slow]):
                raise StoreError("not now")
            assert may_follow.wait(60)
            real(standby, entry)

        may_follow = threading.Event()
        monkeypatch.setattr(StandbyTask, "follow", follow)
        for number, part in enumerate(parts):
            lab.append("in", part[20:], partition=number)
        app.run()
        may_follow.set()
        now = len(parts[0]) - 1

        def is_answered_by_the_quick_one() -> bool:
            app.loop.run_epoch(tick=False)  # takes note of how far the copies are
            reading.hosts.asked.clear()
            return (store.get("0-0001"), next(iter(reading.hosts.asked))) == (now, quick)

        until(is_answered_by_the_quick_one)
        version = store.version
        reading.hosts.asked.clear()
        reading.hosts.before = lambda slot, _: refuse(slot == quick)
        assert (store.get("0-0001"), store.version) == (now, version)
        assert reading.hosts.asked[reading.slots("0_0", "active")[0]] == 1, "the slow one was of no use"
        anew = reading.store("wide", "standby", 600_000)
        assert anew.get("0-0001") == 19, "to another object that has seen nothing yet it is"


def refuse(is_refused: bool) -> None:
    if is_refused:
        raise StoreNotHereError("it does not answer")


@pytest.mark.parametrize(
    ("seed", "standbys", "losses"), [(0, 1, 0), (1, 1, 0), (2, 0, 0), (3, 0, 0), (4, 1, 2), (5, 0, 2)]
)
def test_reads_beside_epochs_see_one_committed_version_of_each_partition_and_never_an_earlier_one(
    lab: Lab, seed: int, standbys: int, losses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print("seed", seed)
    backend = random.Random(seed).choice(["lmdb", "rocksdb"])
    lab.topic("in", [[], []])
    settings: dict[str, Any] = {
        "max_records_per_epoch": 9,
        "backend": backend,
        "num_standby_replicas": standbys,
    }
    with running_on(lab, everything(), TWO_HOSTS, acceptable_recovery_lag=0, **settings) as app:
        reading = Reading(app)
        committed: dict[Epoch, dict[int, int]] = {}
        """The number of the last record of each partition, by epoch."""
        commit = app.loop.coordinator.commit

        def noted(job: Any, reports: Any) -> Manifest:
            manifest = commit(job, reports)
            numbers = {part: (manifest.position("in", Partition(part)) or 0) - 1 for part in range(2)}
            committed[manifest.epoch] = numbers
            return manifest

        monkeypatch.setattr(app.loop.coordinator, "commit", noted)
        lab.append("in", [("river", "0")], partition=0)
        lab.append("in", [("rain", "1")], partition=1)
        app.run()
        is_over, problems = threading.Event(), list[str]()
        readers = [
            threading.Thread(
                target=keep_reading,
                args=(reading, committed, is_over, problems, seed * 10 + at),
                kwargs={"may_be_lost": losses > 0},
            )
            for at in range(3)
        ]
        for reader in readers:
            reader.start()
        chance = random.Random(seed)
        for number in range(12):
            if number % 4 == 2 and number // 4 < losses:
                lose_and_bring_back(app, chance.choice(["one", "two"]))
            for part in range(2):
                count = chance.choice([0, 1, 20])
                lab.append("in", [(chance.choice(WORDS), str(part)) for _ in range(count)], partition=part)
            app.run()
        is_over.set()
        for reader in readers:
            reader.join()
        assert problems == []
        assert losses or app.engine.failures == []


def lose_and_bring_back(app: Hosts, host: str) -> None:
    """As if it were started again at once."""
    before = {member.incarnation for member in app.engine.pool.live().values()}
    app.lose(host)
    app.bring_back(host)
    until(lambda: len({one.incarnation for one in app.engine.pool.live().values()} - before) == 1)


def keep_reading(
    reading: Reading,
    committed: dict[Epoch, dict[int, int]],
    is_over: threading.Event,
    problems: list[str],
    seed: int,
    *,
    may_be_lost: bool,
) -> None:
    chance = random.Random(seed)
    read_from: ReadFrom = chance.choice(["active", "standby"])
    store = reading.store("wide", read_from, chance.choice([0, 50, 1_000]))
    shown, version, rounds = {0: -1, 1: -1}, 0, 0
    try:
        while not is_over.is_set() or not rounds:
            rounds += 1
            ways: list[Callable[[], list[tuple[str, int | None]]]] = [
                lambda: [(key, store.get(key)) for key in (f"{chance.randrange(2)}-0100",)],
                lambda: list(store.all()),
                lambda: list(store.reverse_range("0-0040", "1-0250")),
                lambda: list(store.prefix_scan(f"{chance.randrange(2)}-01", serdes.string)),
            ]
            try:
                rows = chance.choice(ways)()
            except StoreUnavailableError:  # an iterator whose host is lost
                if not may_be_lost:
                    raise
                continue
            for part in {int(key[0]) for key, _ in rows}:
                values = {value for key, value in rows if int(key[0]) == part}
                known = {numbers[part] for numbers in [*committed.values()]}
                (value,) = values  # one version
                assert value in known, f"{value} was never committed"
                assert value is not None
                assert value >= committed[store.version][part], "older than it says"
                assert value >= shown[part], "gone back"
                shown[part] = value
            assert store.version >= version
            version = store.version
    except BaseException as error:  # noqa: BLE001 - told by the thread of the test
        problems.append(f"seed {seed}, {read_from}: {error!r}")


def test_an_iterator_shows_the_store_as_it_was_when_it_was_made(lab: Lab) -> None:
    lab.topic("in", parts := records(60, seed=6))
    with running_on(lab, everything(), TWO_HOSTS) as app:
        reading = Reading(app)
        app.run()
        store, replica = reading.store("wide", "active"), reading.replica("wide")
        expected = list(replica.all())
        pairs = store.all()
        assert next(pairs) == expected[0]
        for number, part in enumerate(parts):
            lab.append("in", part, partition=number)
        app.run()
        assert list(pairs) == expected[1:]
        assert list(store.all()) == list(replica.all()) != expected
        with store.all() as unread:
            next(unread)
        assert list(unread) == []


def test_a_listener_of_epochs_reads_what_was_just_committed(lab: Lab) -> None:
    lab.topic("in", records(60, seed=7))
    with running_on(lab, everything(), TWO_HOSTS, max_records_per_epoch=10) as app:
        reading = Reading(app)
        store = reading.store("wide", "active")
        seen: list[tuple[int, Epoch]] = []

        def read(result: Any) -> None:
            reading.commits.note(result.manifest)
            assert store.get("0-0001") == (result.manifest.position("in", Partition(0)) or 0) - 1
            seen.append((store.version, result.manifest.epoch))

        app.loop._listeners = (read,)
        app.run()
        assert len(seen) > 2
        assert all(version == epoch for version, epoch in seen)
        assert app.engine.failures == []


def test_after_a_restart_the_stores_of_idle_tasks_are_opened_to_be_read(lab: Lab) -> None:
    lab.topic("in", parts := records(60, seed=8))
    with running_on(lab, everything(), TWO_HOSTS) as app:
        app.run()
    with running_on(lab, everything(), TWO_HOSTS) as app:
        reading = Reading(app)
        app.run()
        assert reading.store("wide", "active").get("0-0001") == len(parts[0]) - 1
        assert list(reading.store("windows", "active").all()) == list(reading.replica("windows").all())
        lab.append("in", [("river", "0")], partition=0)
        app.run()
        assert reading.store("wide", "active").get("0-0001") == len(parts[0])
        assert app.engine.failures == []


def test_a_host_that_is_lost_while_it_is_asked_is_left_for_another_one(lab: Lab) -> None:
    lab.topic("in", parts := records(60, seed=9))
    with running_on(lab, everything(), TWO_HOSTS, **STANDBYS) as app:
        reading = Reading(app)
        app.run()
        until(app.is_caught_up)
        lost = app.engine.launcher.hosts[reading.slots("0_0", "standby")[0]]
        asked: list[int] = []

        def lose(slot: int, work: Callable[..., object]) -> None:
            asked.append(slot)
            if len(asked) == 1 and work is begin_read:
                app.lose(lost)

        reading.hosts.before = lose
        assert reading.store("wide", "standby").get("0-0001") == len(parts[0]) - 1
        assert asked == [*reading.slots("0_0", "standby"), *reading.slots("0_0", "active")]


def test_an_iterator_ends_with_an_error_if_its_host_is_lost(lab: Lab) -> None:
    lab.topic("in", records(60, seed=10))
    with running_on(lab, everything(), TWO_HOSTS, **STANDBYS) as app:
        reading = Reading(app)
        app.run()
        pairs = reading.store("wide", "active").all()
        next(pairs)
        reading.hosts.before = lambda _, work: refuse(work is go_on)
        with pytest.raises(
            StoreUnavailableError, match=r"can't go on: it does not answer\. .* Remedy: begin anew"
        ):
            list(pairs)
        assert list(pairs) == []


def test_an_error_says_who_was_asked_and_what_to_do(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_stores, "_ROUNDS", 2)
    lab.topic("in", records(60, seed=11))
    with running_on(lab, everything(), TWO_HOSTS, **STANDBYS) as app:
        reading = Reading(app)
        app.run()
        until(app.is_caught_up)
        reading.hosts.before = lambda slot, _: refuse(is_refused=True)
        with pytest.raises(StoreUnavailableError) as caught:
            reading.store("wide", "standby").get("0-0001")
        said = str(caught.value)
        assert "store 'wide' of application 'app': no host has answered for task 0_" in said
        assert "standby on " in said
        assert "active on " in said
        assert 'Remedy: ask again when it runs; or a larger max_staleness_ms, or read_from="replica"' in said


def test_what_hosts_do_not_answer_is_refused_with_a_remedy(lab: Lab) -> None:
    lab.topic("in", [[], []])
    with running_on(lab, everything(), TWO_HOSTS) as app:
        reading = Reading(app)
        assert reading.store("wide", "active").get("0-0001") is None, "nothing is committed yet"
        assert list(reading.store("wide", "active").all()) == []
        assert reading.store("wide", "active").version == 0
        with pytest.raises(StoreError, match=r"app.store\('wide'\).to_arrow\(\)"):
            reading.store("wide", "active").to_polars()
        with pytest.raises(StoreError, match=r"app.store\('wide'\).to_spark\(spark\)"):
            reading.store("wide", "active").to_spark(None)
        with pytest.raises(UnknownStoreError, match="Stores are: "):
            reading.store("nowhere", "active")
