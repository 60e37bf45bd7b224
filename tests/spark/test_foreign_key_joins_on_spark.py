"""Joins by foreign key on Spark: the last updates are what both tables say, over restarts and lost disks."""

from __future__ import annotations

import random
import shutil
from typing import Any

import pytest
from tests.processors.foreign_key_oracle import LEFT, RIGHT, WORDS, Event, Tables, joined, reference
from tests.spark.lab import Lab

from millstream import Store, StreamsBuilder, Topology
from millstream.log import TopicPartition, record_batch
from millstream.log.partitioner import partition_for_key
from millstream.types import Partition

pytestmark = pytest.mark.xdist_group("spark")

COUNTS = {LEFT: 2, RIGHT: 3}
MOVES = 40


def program() -> Topology:
    """An inner join without caches, a left one with them, joined back to the left table."""
    builder = StreamsBuilder()
    left: Any = builder.table(LEFT, store=Store(LEFT, caching=False, **WORDS), **WORDS)
    right: Any = builder.table(RIGHT, store=Store(RIGHT, **WORDS), **WORDS)
    left.foreign_key_join(right, reference, joined, store=Store("result", **WORDS)).to_stream().to(
        "inner", **WORDS
    )
    both = left.left_foreign_key_join(right, reference, joined, name="left").left_join(left, joined)
    both.to_stream().to("left", **WORDS)
    return builder.build()


def interleaving(seed: int) -> list[Event]:
    """Left rows move from one right row to another, while these change."""
    rng = random.Random(seed)
    events: list[Event] = []
    for time in range(MOVES):
        events.append((LEFT, f"k{rng.randrange(5)}", f"f{rng.randrange(3)}:{rng.randrange(3)}", time))
        word = None if rng.random() < 0.3 else f"w{rng.randrange(4)}"
        events.append((RIGHT, f"f{rng.randrange(3)}", word, max(0, time + rng.randint(-5, 5))))
    return events


def append(lab: Lab, events: list[Event]) -> None:
    places: dict[TopicPartition, list[Event]] = {}
    for event in events:
        topic, key = event[:2]
        partition = Partition(partition_for_key(key.encode(), COUNTS[topic]))
        places.setdefault(TopicPartition(topic, partition), []).append(event)
    for place, some in places.items():
        data = [None if value is None else value.encode() for _, _, value, _ in some]
        keys, times = [key.encode() for _, key, _, _ in some], [time for *_, time in some]
        lab.log.append(place, record_batch(keys, data, times))


def last_by_key(lab: Lab, topic: str) -> dict[str, str]:
    last = {row.text: row.value for row in lab.rows(topic)}
    return {key: value.decode() for key, value in last.items() if value is not None}


def test_the_stale_answer_loses_in_random_interleavings_over_a_restart_and_a_lost_disk(lab: Lab) -> None:
    for topic, count in COUNTS.items():
        lab.topic(topic, [[] for _ in range(count)])
    tables = Tables()
    for seed in range(3):
        events = interleaving(seed)
        append(lab, events)
        tables.take(events)
        app = lab.run(program(), max_records_per_epoch=15)
        if seed == 1:
            shutil.rmtree(lab.state_dir)
        assert last_by_key(lab, "inner") == tables.inner()
        assert last_by_key(lab, "left") == {
            key: joined(value, tables.left[key]) for key, value in tables.left_join().items()
        }
    assert dict(app.store("result").all()) == tables.inner()
