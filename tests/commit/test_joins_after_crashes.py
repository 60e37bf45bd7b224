"""Joins when every life ends at a step of the commit: what waits leaves once, pairs and updates come once."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from tests.commit.ended_lives import kinds_and_steps
from tests.commit.rows_of_log import rows_of
from tests.simulation.executor import InProcessExecutor

from millstream import JoinWindows, Store, StreamsBuilder, Topology, failpoints, serdes
from millstream.commit.coordinator import CoordinatorSettings
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.types import Partition

STEPS = [name for name in failpoints.REGISTRY if name.startswith("commit.")]
OF_STREAMS: Final = ["left_join", "outer_join"]
WITH_TABLES: Final = ["a table", "a versioned table, later", "a global table", "two tables", "cached tables"]
KINDS: Final = [*OF_STREAMS, *WITH_TABLES]
TEXT: Final[dict[str, Any]] = {"key": serdes.string, "value": serdes.string}
LIVES: Final = 5
RECORDS_OF_AN_EPOCH: Final = 8


def program(kind: str) -> Topology:
    """Orders, by a new key, and their payments."""
    builder = StreamsBuilder()
    orders: Any = builder.stream("orders", **TEXT)
    rekeyed = orders.select_key(lambda key, _: key and key.lower())
    if kind in OF_STREAMS:
        windows = JoinWindows(10, grace=3)
        payments: Any = builder.stream("payments", **TEXT)
        joined = getattr(rekeyed, kind)(payments, _pair, windows, name="paid", store="paid")
    else:
        joined = _with_table(kind, builder, rekeyed)
    joined.to("out", **TEXT)
    return builder.build()


def _with_table(kind: str, builder: StreamsBuilder, orders: Any) -> Any:
    """The payments are a table, in which the last one of each key stands."""
    if kind == "a global table":
        return orders.left_join(builder.global_table("payments", **TEXT), _pair, key_of=lambda key, _: key)
    if kind == "a versioned table, later":
        payments = builder.table("payments", store=Store("payments", versioned=1_000, **TEXT), **TEXT)
        return orders.left_join(payments, _pair, grace=12, name="paid")
    caching = kind == "cached tables"
    payments = builder.table("payments", store=Store("payments", caching=caching, **TEXT), **TEXT)
    if kind == "a table":
        return orders.left_join(payments, _pair, name="paid")
    table = orders.to_table(store=Store("orders", caching=caching, **TEXT))
    return table.outer_join(payments, _pair, store=Store("paid", caching=caching, **TEXT)).to_stream()


def _pair(order: str | None, payment: str | None) -> str:
    return f"{order}+{payment}"


@dataclass
class Application:
    """Records that come a little out of order, in two partitions; some orders have no key."""

    folder: Path
    kind: str

    def __post_init__(self) -> None:
        self.log = FileLog(self.folder / "log")
        rng = random.Random(11)
        for topic, letter in (("orders", "o"), ("payments", "p")):
            self.log.create_topic(topic, TopicConfig(partitions=2))
            for partition in range(2):
                times = [max(0, 4 * step + rng.choice((-20, -3, 0, 0, 2, 9))) for step in range(25)]
                keys = [rng.choice((b"a", b"b", b"c", b"d", b"e")) for _ in times]
                if topic == "orders":
                    keys = [key.upper() for key in keys]
                values = [b"%s%d-%d" % (letter.encode(), partition, number) for number in range(len(times))]
                place = TopicPartition(topic, Partition(partition))
                self.log.append(place, record_batch([*keys[1:], None], values, times))

    def open(self) -> InProcessExecutor:
        return InProcessExecutor(
            program(self.kind),
            application_id="app",
            log_root=self.folder / "log",
            state_dir=self.folder / "state",
            settings=CoordinatorSettings(max_records=RECORDS_OF_AN_EPOCH),
            clock=lambda: 1_000,
        )

    def finish(self) -> dict[str, list[tuple[Any, ...]]]:
        """Run to the end of the input; all that is in the log then, changelogs included."""
        with self.open() as app:
            app.run_until_caught_up()
        return rows_of(self.log)


@cache
def unharmed(kind: str) -> dict[str, list[tuple[Any, ...]]]:
    with TemporaryDirectory() as folder:
        return Application(Path(folder), kind).finish()


@pytest.mark.parametrize("kind", WITH_TABLES)
def test_the_input_has_rows_for_some_orders_and_not_for_others(kind: str) -> None:
    values = [value.decode() for _, value, _ in unharmed(kind)["out"]]
    assert any("None" not in value for value in values)
    assert any("None" in value for value in values)


@pytest.mark.parametrize("kind", OF_STREAMS)
def test_the_input_has_pairs_and_records_without_a_partner_each_once(kind: str) -> None:
    values = [value.decode() for _, value, _ in unharmed(kind)["out"]]
    assert max(Counter(values).values()) == 1
    alone = {"left_join": [True, False], "outer_join": [True, True]}[kind]
    assert [
        any(value.endswith("+None") for value in values),
        any(v.startswith("None+") for v in values),
    ] == alone
    assert any("None" not in value for value in values)
    assert any(key is None for key, _, _ in unharmed(kind)["out"])


@pytest.mark.parametrize(("kind", "step"), kinds_and_steps(KINDS, STEPS))
def test_all_is_as_if_nothing_had_happened_if_every_life_ends_at_a_step(
    tmp_path: Path, kind: str, step: str
) -> None:
    application = Application(tmp_path, kind)
    for _ in range(LIVES):
        with application.open() as app, failpoints.armed(step), suppress(failpoints.InjectedCrash):
            app.run_epoch()
    assert application.finish() == unharmed(kind)
