"""Thousands of records of thousands of keys, through repartitions from several senders, on real files.

Large batches go other ways than small ones: in columns, and combined in front of a repartition.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.simulation.executor import InProcessExecutor

from millstream import Store, StreamsBuilder, Topology, serdes, value
from millstream.commit.coordinator import CoordinatorSettings
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.types import Offset, Partition

PARTITIONS = 4
LINES_PER_EPOCH = 3_000
WORDS = 4_000


def counted(*, by_columns: bool, caching: bool = True) -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("in", value=serdes.string)
    words = lines.flat_map_values(value.str.split(" ") if by_columns else str.split)
    grouped = words.group_by(value if by_columns else lambda _, word: word)
    counts = grouped.count(store=Store("counts", caching=caching))
    counts.to_stream().to("out", key=serdes.string, value=serdes.int64)
    return builder.build()


def counted_by_function() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in", value=serdes.string).flat_map_values(lambda line: line.split())
    counts = words.group_by(lambda _, word: word[:]).count(store="counts")
    counts.to_stream().to("out", key=serdes.string, value=serdes.int64)
    return builder.build()


TOPOLOGIES: dict[str, Callable[[], Topology]] = {
    "rows": lambda: counted(by_columns=False),
    "a function of its own": counted_by_function,
    "columns": lambda: counted(by_columns=True),
    "columns, not cached": lambda: counted(by_columns=True, caching=False),
}


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb", "memory"])
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_word_is_counted(tmp_path: Path, name: str, backend: str) -> None:
    chance = random.Random(7)
    lines = [
        " ".join(f"word{chance.randrange(WORDS)}" for _ in range(4))
        for _ in range(2 * LINES_PER_EPOCH * PARTITIONS)
    ]
    log = FileLog(tmp_path / "log")
    log.create_topic("in", TopicConfig(partitions=PARTITIONS))
    for number in range(PARTITIONS):
        mine = [line.encode() for line in lines[number::PARTITIONS]]
        rows = record_batch([None] * len(mine), mine, range(len(mine)))
        log.append(TopicPartition("in", Partition(number)), rows)
    with InProcessExecutor(
        TOPOLOGIES[name](),
        application_id="app",
        log_root=tmp_path / "log",
        state_dir=tmp_path / "state",
        backend=backend,
        settings=CoordinatorSettings(max_records=LINES_PER_EPOCH, default_partitions=PARTITIONS),
    ) as executor:
        assert executor.run_until_caught_up() >= 2
    found: dict[str, int] = {}
    for number in range(PARTITIONS):
        for batch in log.read(TopicPartition("out", Partition(number)), Offset(0)):
            columns = (batch.records.column(0).to_pylist(), batch.records.column(1).to_pylist())
            found |= {word.decode(): int.from_bytes(count) for word, count in zip(*columns, strict=True)}
    assert found == Counter(word for line in lines for word in line.split())
