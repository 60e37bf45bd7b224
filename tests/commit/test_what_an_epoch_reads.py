"""Step 2: how much an epoch takes, and where a source begins that was never read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.simulation.executor import InProcessExecutor

from millstream import StreamsBuilder, Topology, serdes
from millstream.commit.coordinator import CoordinatorSettings
from millstream.errors import TopologyError
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.offset_reset import OffsetReset
from millstream.testing import TopologyTestDriver
from millstream.types import Offset, Partition

NOW = 100_000


@dataclass
class Bench:
    """Topics, and applications that read them."""

    folder: Path

    def __post_init__(self) -> None:
        self.log = FileLog(self.folder / "log")

    def topic(self, name: str, times: list[int], *, size: int = 1, partitions: int = 1) -> None:
        """A topic whose partition 0 has records at these times, each a batch of its own."""
        self.log.create_topic(name, TopicConfig(partitions=partitions))
        for time in times:
            self.append(name, time, size=size)

    def append(self, name: str, time: int, *, size: int = 1, partition: int = 0) -> None:
        place = TopicPartition(name, Partition(partition))
        self.log.append(place, record_batch([b"k"], [str(time).encode().rjust(size)], [time]))

    def open(self, topology: Topology, settings: CoordinatorSettings) -> InProcessExecutor:
        return InProcessExecutor(
            topology,
            application_id="app",
            log_root=self.folder / "log",
            state_dir=self.folder / "state",
            settings=settings,
            clock=lambda: NOW,
        )

    def copied(
        self, settings: CoordinatorSettings | None = None, reset: OffsetReset | None = None
    ) -> list[int]:
        """The times of the records that a new application copies from `in` to `out`."""
        with self.open(copying(reset), settings or CoordinatorSettings()) as app:
            app.run_until_caught_up()
        return self.written()

    def written(self) -> list[int]:
        """The times of the records in `out`."""
        place = TopicPartition("out", Partition(0))
        return [int(value or b"") for batch in self.log.read(place, Offset(0)) for value in batch.values()]


def copying(reset: OffsetReset | None = None) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string, offset_reset=reset).to("out")
    return builder.build()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_an_epoch_takes_no_more_bytes_than_it_may(bench: Bench) -> None:
    bench.topic("in", list(range(30)), size=1_000)
    cuts: list[tuple[int, int]] = []
    with bench.open(copying(), CoordinatorSettings(max_bytes=5_000)) as app:
        while (job := app.coordinator.plan_epoch()) is not None:
            cuts.append(job.cut["in"][Partition(0)])
            assert app.run_epoch() is not None
    assert [end - start for start, end in cuts] == [3] * 10
    assert bench.copied() == list(range(30))


def test_a_record_that_is_larger_than_an_epoch_goes_alone(bench: Bench) -> None:
    bench.topic("in", [])
    for time, size in enumerate((10, 9_000, 10, 9_000, 9_000)):
        bench.append("in", time, size=size)
    with bench.open(copying(), CoordinatorSettings(max_bytes=1_000)) as app:
        assert app.run_until_caught_up() == 5
    assert bench.copied() == [0, 1, 2, 3, 4]


def test_partitions_that_meet_stay_in_order_when_bytes_bound_one_of_them(bench: Bench) -> None:
    """Else the small records of one topic would run ahead of the large ones of the other."""
    bench.topic("large", list(range(0, 40, 2)), size=2_000)
    bench.topic("small", list(range(1, 40, 2)))
    builder = StreamsBuilder()
    large, small = (builder.stream(name, value=serdes.string) for name in ("large", "small"))
    large.merge(small).map_values(str.strip).to("out", value=serdes.string)
    with bench.open(builder.build(), CoordinatorSettings(max_bytes=10_000)) as app:
        assert app.run_until_caught_up() > 4
    assert bench.written() == list(range(40))


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        ("earliest", [10_000, 50_000, 30_000, 90_000]),
        ("latest", []),
        (0, [10_000, 50_000, 30_000, 90_000]),
        (40_000, [50_000, 30_000, 90_000]),
        (60_000, [90_000]),
        (90_001, []),
        (datetime.fromtimestamp(60, UTC), [90_000]),
        (timedelta(milliseconds=NOW - 60_000), [90_000]),
        (timedelta(days=1), [10_000, 50_000, 30_000, 90_000]),
    ],
)
@pytest.mark.parametrize("of_source", [True, False])
def test_a_source_begins_where_it_is_told(
    bench: Bench, reset: OffsetReset, expected: list[int], of_source: bool
) -> None:
    bench.topic("in", [10_000, 50_000, 30_000, 90_000])
    if of_source:
        assert bench.copied(CoordinatorSettings(offset_reset="latest"), reset) == expected
    else:
        assert bench.copied(CoordinatorSettings(offset_reset=reset)) == expected


def test_what_comes_later_is_read_whatever_its_time(bench: Bench) -> None:
    bench.topic("in", [10, 20])
    with bench.open(copying(), CoordinatorSettings(offset_reset=15)) as app:
        bench.append("in", 5)
        app.run_until_caught_up()
    bench.append("in", 3)
    assert bench.copied(CoordinatorSettings(offset_reset=99)) == [20, 5, 3]


def test_a_time_at_the_end_is_chosen_once(bench: Bench) -> None:
    """A record that comes before the first epoch is not passed over, though it is older than the time."""
    bench.topic("in", [10])
    with bench.open(copying(), CoordinatorSettings(offset_reset=50)) as app:
        assert app.run_epoch() is None
        bench.append("in", 20)
        bench.append("in", 60)
        app.run_until_caught_up()
    assert bench.copied() == [20, 60]


def test_the_end_of_a_topic_is_chosen_once_also_if_the_program_starts_again(bench: Bench) -> None:
    bench.topic("in", [10])
    bench.open(copying(), CoordinatorSettings(offset_reset="latest")).close()
    bench.append("in", 20)
    assert bench.copied(CoordinatorSettings(offset_reset="latest")) == [20]


@pytest.mark.parametrize("make", [lambda: "first", lambda: datetime(2026, 1, 1), lambda: -1])  # noqa: DTZ001
def test_a_source_that_can_begin_nowhere_is_refused(make: Callable[[], OffsetReset]) -> None:
    with pytest.raises(
        TopologyError, match=r"(?s)has offset_reset=.*Remedy: use 'earliest', 'latest', a time"
    ):
        copying(make())


def test_the_test_driver_takes_every_record_that_it_is_given() -> None:
    with TopologyTestDriver(copying(50_000)) as coordinator:
        lines = coordinator.input_topic("in", key=serdes.string, value=serdes.string)
        copies = coordinator.output_topic("out", key=serdes.string, value=serdes.string)
        lines.pipe("k", "old", timestamp=5)
        assert [record.value for record in copies.read_all()] == ["old"]
