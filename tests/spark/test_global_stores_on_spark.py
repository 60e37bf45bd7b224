"""Global tables and stores on Spark: the same table in every task, one copy on a host, loaded first."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.commit.global_app import WORDS, topology
from tests.spark.lab import Lab, Pair
from tests.spark.processes import Child

from millstream import GlobalKTable, KStream, StreamsBuilder, Topology
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.types import Partition

pytestmark = pytest.mark.xdist_group("spark")

KILLED = -9
MANY = 100_000


def orders(count: int, seed: int) -> list[list[Pair]]:
    chosen = random.Random(seed)
    parts: list[list[Pair]] = [[], []]
    for number in range(count):
        parts[number % 2].append((f"o{number}", f"r{chosen.randrange(20)}"))
    return parts


def rates(count: int) -> list[list[Pair]]:
    """Every third rate is deleted again."""
    rows: list[Pair] = [(f"r{number}", str(number)) for number in range(count)]
    return [[*rows[::2], *((key, None) for key, _ in rows[::6])], rows[1::2]]


def enriched(lab: Lab) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in lab.rows("out"):
        found.setdefault(row.text, []).append((row.value or b"").decode())
    return found


def expected(parts: list[list[Pair]], updates: dict[str, int]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in parts:
        for key, rate in part:
            assert key is not None
            assert rate is not None
            number = rate.removeprefix("r")
            value = None if int(number) % 6 == 0 else number
            found[key] = [f"{rate}={value},{updates.get(rate, 0)}"]
    return found


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb", "memory"])
def test_every_task_joins_with_the_same_table_and_a_host_has_one_copy(lab: Lab, backend: str) -> None:
    lab.topic("rates", rates(20))
    lab.topic("changes", [[("r1", "x"), ("r2", "x")], [("r1", "x")]])
    first, second = orders(60, seed=1), orders(120, seed=1)
    lab.topic("orders", first)
    lab.topic("out", [[], []])
    lab.run(topology(), max_records_per_epoch=20, backend=backend)
    assert enriched(lab) == expected(first, {"r1": 2, "r2": 1})
    for number, part in enumerate(second):
        lab.append("orders", part[30:], partition=number)
    app = lab.run(topology(), max_records_per_epoch=20, backend=backend)
    assert enriched(lab) == expected(second, {"r1": 2, "r2": 1})
    assert len(app.store("rates")) == 20 - 4
    assert dict(app.store("updates").all()) == {"r1": 2, "r2": 1}
    copies = sorted(
        path.parent.relative_to(lab.state_dir).as_posix() for path in lab.state_dir.rglob("FORMAT")
    )
    assert copies == [f"app/0_0/{backend}/rates", f"app/1_0/{backend}/updates"]


def test_many_rows_are_loaded_before_the_first_record_of_a_stream(lab: Lab) -> None:
    lab.topic("rates", [[(f"r{number}", str(number)) for number in range(part, MANY, 2)] for part in (0, 1)])
    lab.topic("changes", [[]])
    lab.topic("orders", [[("o", f"r{MANY - 1}"), ("o", "r0")]])
    lab.topic("out", [[]])
    read: list[tuple[int, int]] = []
    with lab.app(topology(), max_records_per_epoch=20_000) as app:
        app.on_epoch(
            lambda result: read.append((_read(result.manifest, "rates"), _read(result.manifest, "orders")))
        )
        app.run(until="caught-up")
        assert app.store("rates").get(f"r{MANY // 2}") == str(MANY // 2)
    assert read == [(40_000, 0), (80_000, 0), (MANY, 0), (MANY, 2)]
    assert enriched(lab) == {"o": [f"r{MANY - 1}={MANY - 1},0", "r0=0,0"]}


def _read(manifest: Any, topic: str) -> int:
    return sum(offset for at, _, offset in manifest.positions if at == topic)


def test_a_second_attempt_joins_with_the_same_table_though_the_topic_has_moved_on(lab: Lab) -> None:
    lab.topic("rates", [[("a", "1")]])
    lab.topic("orders", [[("o", "a")], [("p", "a")]])
    lab.topic("out", [[]])
    once = lab.folder / "killed"
    lab.run(moving_on(once, lab.folder / "log"))
    assert once.exists()
    assert enriched(lab) == {"o": ["1"], "p": ["1"]}
    lab.append("orders", [("o", "a")])
    lab.run(moving_on(once, lab.folder / "log"))
    assert enriched(lab) == {"o": ["1", "2"], "p": ["1"]}


def moving_on(once: Path, log: Path) -> Topology:
    """The first attempt that joins with the table sees to it that its topic moves on, and is killed."""

    def joined(_: str, rate: str) -> str:
        if not once.exists():
            once.touch()
            place = TopicPartition("rates", Partition(0))
            FileLog(log).append(place, record_batch([b"a"], [b"2"], [1]))
            os.kill(os.getpid(), signal.SIGKILL)
        return rate

    builder = StreamsBuilder()
    rates: GlobalKTable[str, str] = builder.global_table("rates", store="rates", **WORDS)
    orders: KStream[str, str] = builder.stream("orders", **WORDS)
    orders.join(rates, joined, key_of=lambda _, word: word).to("out", **WORDS)
    return builder.build()


def test_killed_while_it_loads_and_while_it_reads_it_goes_on_exactly(bare_lab: Lab) -> None:
    lab = bare_lab
    parts = orders(200, seed=2)
    lab.topic("rates", rates(60))
    lab.topic("changes", [[("r1", "x")] * 5, [("r2", "x")] * 7])
    lab.topic("orders", parts)
    lab.topic("out", [[], []])
    settings: dict[str, Any] = {"max_records_per_epoch": 10, "lease_ttl_ms": 600_000}
    with Child(lab, "enriching", failpoints="commit.manifest_written=kill@2", **settings) as child:
        assert child.wait() == KILLED, child.said()
    for step in ("follow.batch_applied=stop@1", "commit.processed=stop@9"):
        with Child(lab, "enriching", worker_failpoints=step, **settings) as child:
            child.wait_for_a_stopped_worker()
            child.kill()
    with Child(lab, "enriching", lease_ttl_ms=600_000) as child:
        assert child.wait() == 0, child.said()
    assert enriched(lab) == expected(parts, {"r1": 5, "r2": 7})
