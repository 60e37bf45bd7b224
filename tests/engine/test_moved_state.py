"""State on the disks of hosts that come back, or that tasks have left: what is read, what is deleted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.hosts_in_threads import Hosts, running_on
from tests.engine.test_standbys import until
from tests.spark.lab import Lab
from tests.spark.programs import check_exact, one_level, words

from millstream import Store, StreamsBuilder, Topology, serdes
from millstream.durable.layer import OsFileLayer
from millstream.maintenance import state_cleaner

KEYS = 500


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab", None)


def last_values() -> Topology:
    """Keeps the last value of each key."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.group_by_key().reduce(lambda _, new: new, store=Store("last", caching=False))
    return builder.build()


def append(lab: Lab, keys: int, chance: random.Random) -> None:
    """Values of a thousand letters that do not get shorter by compression."""
    for part in range(2):
        pairs = [(f"{part}-{number}", chance.randbytes(500).hex()) for number in range(keys)]
        lab.append("in", pairs, partition=part)


@pytest.fixture
def sealed_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes were read of sealed files, where the records of changelogs are, by whomever."""
    read: list[int] = []
    real = OsFileLayer.pread

    def counted(files: OsFileLayer, fd: int, length: int, position: int) -> bytes:
        data = real(files, fd, length, position)
        if "/sealed/" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            read.append(len(data))
        return data

    monkeypatch.setattr(OsFileLayer, "pread", counted)
    return read


def test_a_host_that_comes_back_reads_the_bytes_that_it_has_missed_and_one_without_a_disk_reads_all(
    lab: Lab, sealed_bytes: list[int]
) -> None:
    chance = random.Random(1)
    lab.topic("in", [[], []])
    append(lab, KEYS, chance)
    settings = {"num_standby_replicas": 1, "acceptable_recovery_lag": 0}
    with running_on(lab, last_values(), {0: "one", 1: "two"}, **settings) as app:
        app.run()
        until(app.is_caught_up)
        whole = 2 * KEYS * 500
        lose(app, "two")
        append(lab, 10, chance)
        app.run()
        sealed_bytes.clear()
        bring_back(app, "two")
        assert 2 * 10 * 500 < sum(sealed_bytes) < whole / 4
        lose(app, "two")
        app.state_of("two").rename(app.state_of("two").with_name("lost"))
        sealed_bytes.clear()
        bring_back(app, "two")
        assert sum(sealed_bytes) > whole
    for task in ("0_0", "0_1"):
        assert app.bytes_of(task, "one", "last") == app.bytes_of(task, "two", "last")


def lose(app: Hosts, host: str) -> None:
    app.lose(host)
    until(lambda: len(app.engine.pool.live()) == 1)


def bring_back(app: Hosts, host: str) -> None:
    app.bring_back(host)
    until(lambda: len(app.engine.pool.live()) == 2)
    until(lambda: app.is_caught_up() and sorted(app.active().values()) == ["one", "two"])


@pytest.fixture
def never_looked() -> Iterator[None]:
    state_cleaner._looked_at.clear()
    yield
    state_cleaner._looked_at.clear()


@pytest.mark.usefixtures("never_looked")
def test_what_tasks_leave_behind_is_deleted_after_the_delay_and_never_what_lives_or_is_followed_there(
    lab: Lab,
) -> None:
    """Records come one by one, so most tasks are idle in each epoch: they keep their state."""
    parts = words(2_000, seed=31, partitions=4)
    fed = [20] * 4
    lab.topic("in", [part[:20] for part in parts])
    settings = {"acceptable_recovery_lag": 0, "state_cleanup_delay_ms": 50, "num_standby_replicas": 1}
    hosts = {0: "one", 1: "two", 2: "three"}
    with running_on(lab, one_level(), hosts, **settings) as app:

        def held() -> set[tuple[str, str]]:
            found = {(host, app.state_of(host) / "app") for host in hosts.values()}
            return {(host, path.name) for host, folder in found for path in folder.glob("0_*")}

        def known() -> set[tuple[str, str]]:
            """As the coordinator thinks that it is."""
            names = {member.hello.instance: member.hello.node for member in app.engine.pool.live().values()}
            return {(names[one], task) for task, found in app.assigner.lags().items() for one in found}

        def is_clean() -> bool:
            number = fed.index(min(fed))
            lab.append("in", [parts[number][fed[number]]], partition=number)
            fed[number] += 1
            app.run()
            rows = app.assigner.assigned()
            assert {(row.host, row.task) for row in rows if row.version is not None} <= held()
            return known() == held() == {(row.host, row.task) for row in rows}

        app.run()
        until(app.is_caught_up)
        app.assigner.drain("three")
        until(lambda: app.is_caught_up() and "three" not in app.active().values())
        assert {task for host, task in held() if host == "three"}, "what it had is still there"
        app.assigner.undrain("three")
        until(lambda: app.is_caught_up() and "three" in app.active().values())
        until(is_clean)
        assert len(held()) == 8, "each task, and a copy of it"
        for _ in range(8):
            assert is_clean()
        assert app.engine.failures == []
    check_exact(lab, "one_level", [part[:count] for part, count in zip(parts, fed, strict=True)])


@pytest.mark.usefixtures("never_looked")
def test_a_host_that_comes_back_and_runs_nothing_deletes_what_is_elsewhere_by_now(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.engine.spark.resident.slot._CLEANS_EVERY_S", 0.1)
    rows = iter(words(2_000, seed=3, partitions=1)[0])
    lab.topic("in", [[next(rows) for _ in range(50)]])
    settings = {"state_cleanup_delay_ms": 200, "acceptable_recovery_lag": 0}
    with running_on(lab, one_level(), {0: "one", 1: "two"}, **settings) as app:
        app.run()
        home = app.active()["0_0"]
        stale = app.state_of(home) / "app" / "0_0"
        lose(app, home)

        def is_elsewhere() -> bool:
            lab.append("in", [next(rows)], partition=0)
            app.run()
            return app.active()["0_0"] != home

        until(is_elsewhere)
        assert stale.exists()
        app.bring_back(home)
        until(lambda: len(app.engine.pool.live()) == 2)
        until(lambda: is_elsewhere() and not stale.exists())
