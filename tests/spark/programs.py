"""Programs of one, two and three levels, and what must come of them: a fold that shares no code with them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.commit import global_app
from tests.simulation.fault_programs import APPLICATIONS
from tests.spark.join_program import one_of_each_join
from tests.spark.lab import Lab, Pair

from millstream import Processor, Record, Store, StreamsBuilder, Topology, serdes, stores

WORDS = ("river", "rain", "mill", "meadow", "stone", "reed", "weir", "salmon", "stream", "moss")


def one_level() -> Topology:
    """Counts by the keys as they are: state where the source partition is."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    counts = stream.group_by_key().count(store=Store("counts", caching=False))
    counts.to_stream().to("out", key=serdes.string, value=serdes.int64)
    return builder.build()


def two_levels() -> Topology:
    """Counts by value: through one repartition."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    counts = stream.group_by(lambda _, value: value).count(store=Store("counts", caching=False))
    counts.to_stream().to("out", key=serdes.string, value=serdes.int64)
    return builder.build()


def three_levels() -> Topology:
    """Counts by value, then the sum of these counts by their first letter."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    counts = stream.group_by(lambda _, value: value).count(store="counts")
    counts.to_stream().to("out", key=serdes.string, value=serdes.int64)
    letters = counts.group_by(
        lambda word, count: (word[0], count), key=serdes.string, value=serdes.int64
    ).reduce(lambda total, count: total + count, lambda total, count: total - count, store="letters")
    letters.to_stream().to("letters", key=serdes.string, value=serdes.int64)
    return builder.build()


class Numbering(Processor[str, str, str, int]):
    """Sends the number of each record among those of its key."""

    def init(self, context: Any) -> None:
        """Find the store."""
        super().init(context)
        self._seen = context.state_store("seen")

    def process(self, record: Record[str, str]) -> None:
        """Count it, and send it on."""
        number = (self._seen.get(record.key) or 0) + 1
        self._seen.put(record.key, number)
        self.context.forward(record.with_value(number))


def every_update() -> Topology:
    """A processor with a store, a table, and a table of that table, with retractions. None is cached."""
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("seen", key=serdes.string, value=serdes.int64))
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.process(Numbering, "seen").to("numbered", key=serdes.string, value=serdes.int64)
    counts = stream.group_by(lambda _, value: value).count(store=Store("counts", caching=False))
    counts.to_stream().to("out", key=serdes.string, value=serdes.int64)
    loud = counts.group_by(
        lambda word, count: (word.upper(), count), key=serdes.string, value=serdes.int64
    ).reduce(
        lambda total, count: total + count,
        lambda total, count: total - count,
        store=Store("loud", caching=False),
    )
    loud.to_stream().to("loud", key=serdes.string, value=serdes.int64)
    return builder.build()


COUNTING = {"one_level": one_level, "two_levels": two_levels, "three_levels": three_levels}
PROGRAMS: dict[str, Callable[[], Topology]] = {
    **COUNTING,
    "every_update": every_update,
    "enriching": global_app.topology,
    "one_of_each_join": one_of_each_join,
    **{name: application.build for name, application in APPLICATIONS.items()},
}
"""By the names that a child process is told."""


def words(count: int, *, seed: int, partitions: int = 2) -> list[list[Pair]]:
    """Random words, keyed by word: so each key is in one partition, whichever way it is counted."""
    chosen = random.Random(seed)
    parts: list[list[Pair]] = [[] for _ in range(partitions)]
    for _ in range(count):
        word = chosen.choice(WORDS)
        parts[WORDS.index(word) % partitions].append((word, word))
    return parts


def counted(parts: Sequence[Sequence[Pair]]) -> Counter[str]:
    return Counter(value for part in parts for _, value in part if value is not None)


def check_exact(lab: Lab, program: str, parts: Sequence[Sequence[Pair]]) -> None:
    """Every record counted once, in order: with caching off a key's outputs are 1, 2, 3, ... to its count."""
    expected = counted(parts)
    assert expected
    if program == "every_update":
        numbers = {word: list(range(1, count + 1)) for word, count in expected.items()}
        assert lab.by_key("out") == numbers
        assert lab.by_key("numbered") == numbers
        assert lab.by_key("loud") == {word.upper(): found for word, found in numbers.items()}
    elif program == "three_levels":
        for values in lab.by_key("out").values():
            assert values == sorted(set(values))
        assert lab.last_by_key("out") == expected
        letters: Counter[str] = Counter()
        for word, count in expected.items():
            letters[word[0]] += count
        assert lab.last_by_key("letters") == letters
    else:
        assert lab.by_key("out") == {word: list(range(1, count + 1)) for word, count in expected.items()}
    assert lab.committed() == sum(len(part) for part in parts)
