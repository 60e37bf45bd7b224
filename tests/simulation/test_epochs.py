"""The epoch runner: levels within an epoch, commits at its end, and nothing at all if it fails."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.epochs import EpochRunner
from tests.task.kit import STRINGS, rows_of, written

from millstream import KStream, Processor, PunctuationType, Record, Store, StreamsBuilder, serdes
from millstream.errors import ProcessingError, TopologyError
from millstream.log.partitioner import partition_for_key
from millstream.task.records import RawBatch


def counting(*, caching: bool = True) -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream("in", **STRINGS).flat_map_values(str.split)
    counts = words.group_by(lambda key, word: word, key=serdes.string).count(
        store=Store("counts", caching=caching)
    )
    counts.to_stream().map_values(str).to("out", **STRINGS)
    return builder


def test_what_a_repartition_moves_is_processed_in_the_same_epoch() -> None:
    with EpochRunner(counting().build(), partitions={"in": 1}) as runner:
        runner.run_epoch([rows_of("in", ("k", "to the river"), ("k", "to sea"))])
        assert written(runner) == [("the", "1"), ("river", "1"), ("to", "2"), ("sea", "1")]


def test_a_cached_table_sends_one_update_per_key_and_epoch() -> None:
    raw = rows_of("in", ("k", "a a"), ("k", "a"))
    for caching, expected in ((True, [("a", "3")]), (False, [("a", "1"), ("a", "2"), ("a", "3")])):
        with EpochRunner(counting(caching=caching).build(), partitions={"in": 1}) as runner:
            runner.run_epoch([raw])
            assert written(runner) == expected


def test_a_later_epoch_builds_on_what_was_committed() -> None:
    with EpochRunner(counting().build(), partitions={"in": 1}) as runner:
        runner.run_epoch([rows_of("in", ("k", "a b"))])
        runner.run_epoch([rows_of("in", ("k", "a"), offset=1)])
        assert written(runner) == [("a", "1"), ("b", "1"), ("a", "2")]
        assert [task.version for task in runner.tasks] == [2, 2]


def test_keys_go_to_the_partitions_where_kafka_puts_them() -> None:
    with EpochRunner(counting().build(), partitions={"in": 3}) as runner:
        runner.run_epoch([rows_of("in", ("k", "to the river and on"))])
        for partition, store in enumerate(runner.stores("counts")):
            assert {partition_for_key(key.encode(), 3) for key, _ in store.all()} <= {partition}
        assert {row.task_id for row in runner.outputs["out"]} <= {"1_0", "1_1", "1_2"}


def test_a_task_reads_its_own_partition() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).to("out", **STRINGS)
    with EpochRunner(builder.build(), partitions={"in": 2}) as runner:
        runner.run_epoch(
            [
                RawBatch("in", 1, (0,), (b"one",), (b"",), (1,)),
                RawBatch("in", 0, (0,), (b"zero",), (b"",), (2,)),
            ]
        )
        assert [(row.task_id, row.key) for row in runner.outputs["out"]] == [
            ("0_0", b"zero"),
            ("0_1", b"one"),
        ]


def test_an_epoch_that_fails_leaves_nothing_and_can_be_run_again() -> None:
    broken = [True]

    def fragile(value: str) -> str:
        if broken[0] and value == "2":
            raise ValueError(value)
        return value

    builder = StreamsBuilder()
    counts = builder.stream("in", **STRINGS).group_by_key().count(store="counts")
    counts.to_stream().map_values(str).map_values(fragile).to("out", **STRINGS)
    with EpochRunner(builder.build(), partitions={"in": 1}) as runner:
        runner.run_epoch([rows_of("in", ("k", "v"))])
        with pytest.raises(ProcessingError):
            runner.run_epoch([rows_of("in", ("k", "v"), offset=1)])
        assert written(runner) == [("k", "1")]
        assert [cell.value for _, cell in runner.stores("counts")[0].all()] == [1]
        broken[0] = False
        runner.run_epoch([rows_of("in", ("k", "v"), offset=1)])
        assert written(runner) == [("k", "1"), ("k", "2")]


def test_global_tables_take_their_records_first() -> None:
    class Looks(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            found = self.context.state_store("rates").get(record.key)
            self.context.forward(record.with_value("-" if found is None else found.value))

    builder = StreamsBuilder()
    builder.global_table("rates", store="rates", **STRINGS)
    builder.stream("in", **STRINGS).process(Looks).to("out", **STRINGS)
    with EpochRunner(builder.build(), partitions={"in": 1, "rates": 2}) as runner:
        late_rate = RawBatch("rates", 1, (0,), (b"k",), (b"7",), (99,))
        runner.run_epoch([rows_of("in", ("k", "v"), times=[5]), late_rate])
        assert written(runner) == [("k", "7")]


def test_the_clock_of_an_epoch_is_the_callers() -> None:
    class Ticks(Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

        def process(self, record: Record[str, str]) -> None: ...

        def tick(self, timestamp: int) -> None:
            self.context.forward(Record("tick", str(timestamp), timestamp))

    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).process(Ticks).to("out", **STRINGS)
    with EpochRunner(builder.build(), partitions={"in": 1}, start_ms=100, fresh_tasks=True) as runner:
        for now_ms in (109, 110, 135):
            runner.run_epoch(now_ms=now_ms)
        assert written(runner) == [("tick", "110"), ("tick", "135")]


def test_a_partitioner_of_the_users_own_decides() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **STRINGS).repartition(
        name="moved", partitions=3, partitioner=lambda topic, key, value, count: int(value)
    )
    stream.to("out", **STRINGS)
    with EpochRunner(builder.build(), partitions={"in": 1}) as runner:
        runner.run_epoch([rows_of("in", ("a", "2"), ("b", "0"))])
        assert [(row.task_id, row.key) for row in runner.outputs["out"]] == [("1_0", b"b"), ("1_2", b"a")]


def test_a_topic_without_a_number_of_partitions_is_refused() -> None:
    with pytest.raises(TopologyError):
        EpochRunner(counting().build(), partitions={})


def test_rows_of_a_repartition_are_never_lost() -> None:
    builder = StreamsBuilder()
    stream: KStream[str, str] = builder.stream("in", **STRINGS)
    stream.merge(stream.repartition(name="moved", **STRINGS)).to("out", **STRINGS)
    with EpochRunner(builder.build(), partitions={"in": 1}) as runner:
        runner.run_epoch([rows_of("in", ("k", "v"))])
        assert written(runner) == [("k", "v"), ("k", "v")]
