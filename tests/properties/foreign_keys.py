"""Foreign-key joins in random topologies: two tables are joined, and after each epoch so are their rows.

How many updates lead there is not promised, so nothing is compared but the tables: the rows that were sent of
both sides, joined here in the naive way, are the rows that were sent of the result.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from tests.properties import spec as s
from tests.properties.build import Building, config_of, make_operators
from tests.properties.check import Epochs
from tests.properties.engine import raws_of
from tests.properties.functions import Join, Key, NewKey, Value
from tests.properties.generate import can_be_looked_up
from tests.properties.inputs import Epoch
from tests.properties.oracle import partition_of
from tests.simulation.epochs import EpochRunner

from millstream import Store

LEFT, RIGHT, JOINED, BACK = "sent-of-left", "sent-of-right", "sent-of-joined", "sent-of-joined-back"
Rows = dict[Key, Value]
TABLES = (
    s.Table,
    s.ToTable,
    s.Aggregate,
    s.Cogroup,
    s.TableFilter,
    s.TableMapValues,
    s.TransformValues,
    s.TableAggregate,
    s.TableJoin,
)


@dataclass(frozen=True)
class ForeignKeyJoin:
    """What is added to a topology."""

    left: int
    right: int
    kind: str
    foreign_key: NewKey
    joiner: Join
    stored: bool
    joined_back: bool
    """The result is joined with the left table once more, by its keys."""

    def rows(self, left: Rows, right: Rows) -> Rows:
        """The naive join."""
        found = {key: right.get(self.foreign_key(key, value)) for key, value in left.items()}
        joined = {
            key: self.joiner(key, left[key], other)
            for key, other in found.items()
            if other is not None or self.kind == "left_foreign_key_join"
        }
        return _there(joined)

    def rows_joined_back(self, joined: Rows, left: Rows) -> Rows:
        """The result with the left table once more."""
        return _there(
            {key: self.joiner(key, value, left[key]) for key, value in joined.items() if key in left}
        )


def drawn_join(spec: s.Spec) -> ForeignKeyJoin | None:
    """The join of a topology; None if there are no tables that can be joined.

    Rows that fail are not in what is sent, rows that a partitioner has put elsewhere are not found, and a
    join of a table with itself does not tell of rows that are deleted.
    """
    if re.search(r"(remainder|spoiled)=[0-9]", repr(spec.ops)):
        return None
    tables = [op.id for op in spec.ops if isinstance(op, TABLES) and _is_fit(spec, op)]
    if not tables:
        return None
    rng = random.Random(f"foreign keys of {spec.seed}")
    return ForeignKeyJoin(
        rng.choice(tables),
        rng.choice(tables),
        rng.choice(("foreign_key_join", "left_foreign_key_join")),
        NewKey(rng.randint(2, 5), rng.choice((-1, 0))),
        Join(rng.randint(1, 9), rng.choice((-1, -1, 3))),
        rng.random() < 0.5,
        rng.random() < 0.4,
    )


def foreign_keys_hold(spec: s.Spec, epochs: Epochs) -> str | None:
    """Rows that are joined by a foreign key are, after each epoch, what the rows of both tables make."""
    join = drawn_join(spec)
    if join is None:
        return None
    rng = random.Random(f"batches of {spec.seed}")
    building = _built(spec if rng.random() < 0.5 else spec.uncached(), join)
    value: Any = building.log_serdes["value"]
    runner = EpochRunner(
        building.builder.build(),
        partitions=dict.fromkeys(spec.input_topics, spec.partitions),
        config=config_of(spec),
        max_rows=rng.choice((None, None, 1, 3)),
        fresh_tasks=rng.random() < 0.3,
    )
    sent: dict[str, Rows] = {topic: {} for topic in (LEFT, RIGHT, JOINED, BACK)}
    with runner:
        for number, epoch in enumerate(_by_key(epochs, spec.partitions)):
            taken = {topic: len(runner.outputs.get(topic, ())) for topic in sent}
            runner.run_epoch(raws_of(epoch.records, value.serialize), now_ms=epoch.now_ms)
            for topic, rows in sent.items():
                for row in list(runner.outputs.get(topic, ()))[taken[topic] :]:
                    assert row.key is not None  # rows of tables have keys
                    key = row.key.decode()
                    rows[key] = None if row.value is None else value.deserialize(row.value)
            left, right, joined, back = (_there(rows) for rows in sent.values())
            wanted = join.rows(left, right)
            if joined != wanted:
                return f"differing rows after epoch {number}: {joined}, not {wanted}\n  {join}"
            if join.joined_back and back != (wanted := join.rows_joined_back(joined, left)):
                return f"differing rows joined back after epoch {number}: {back}, not {wanted}\n  {join}"
    return None


def _built(spec: s.Spec, join: ForeignKeyJoin) -> Building:
    building = Building(spec)
    make_operators(building, spec)
    left, right = building.handles[join.left], building.handles[join.right]
    store = {"store": Store(caching=False, **building.serdes)} if join.stored else {}
    joined = getattr(left, join.kind)(right, join.foreign_key, join.joiner, with_key=True, name="fk", **store)
    shown = {LEFT: left, RIGHT: right, JOINED: joined}
    if join.joined_back:
        shown[BACK] = joined.join(left, join.joiner, with_key=True, name="fk-back")
    for topic, table in shown.items():
        table.to_stream(name=f"{topic}-stream").to(topic, name=f"{topic}-sink", **building.log_serdes)
    return building


def _by_key(epochs: Epochs, partitions: int) -> list[Epoch]:
    """The same records, each in the partition of its key."""
    offsets: Counter[tuple[str, int]] = Counter()
    placed = []
    for epoch in epochs:
        rows = []
        for row in epoch.records:
            partition = row.partition if row.key is None else partition_of(row.key, partitions)
            rows.append(replace(row, partition=partition, offset=offsets[row.topic, partition]))
            offsets[row.topic, partition] += 1
        placed.append(replace(epoch, records=tuple(rows)))
    return placed


def _is_fit(spec: s.Spec, op: s.Op) -> bool:
    above = [spec.op(number) for number in spec.above(op.id)]
    moved = any(isinstance(one, s.Repartition) and one.partitioner is not None for one in above)
    with_itself = any(isinstance(one, s.TableJoin) and _share_a_table(spec, one) for one in above)
    return can_be_looked_up(spec, op.id) and not moved and not with_itself


def _share_a_table(spec: s.Spec, join: s.TableJoin) -> bool:
    both = spec.above(join.parent) & spec.above(join.other)
    return any(isinstance(spec.op(number), TABLES) for number in both)


def _there(rows: Rows) -> Rows:
    return {key: value for key, value in rows.items() if value is not None}
