"""`fresh_tasks=True`: what a processor keeps to itself is gone after every commit, as on a cluster."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from millstream import (
    FixedKeyProcessor,
    FixedKeyRecord,
    KStream,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    serdes,
    stores,
)
from millstream.testing import TopologyTestDriver

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
BOTH = pytest.mark.parametrize("fresh_tasks", [False, True])


class CountsInAField(FixedKeyProcessor[str, str, int]):
    def init(self, context: Any) -> None:
        super().init(context)
        self.count = 0

    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.count += 1
        self.context.forward(record.with_value(self.count))


class CountsInAStore(FixedKeyProcessor[str, str, int]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        store = self.context.state_store("counts")
        store.put("all", (store.get("all") or 0) + 1)
        self.context.forward(record.with_value(store.get("all")))


def counted(supplier: Any, *stores_of_it: str, fresh_tasks: bool) -> list[int]:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("counts", key=serdes.string, value=serdes.int64))
    stream: KStream[str, int] = builder.stream("in", **STRINGS).process_values(supplier, *stores_of_it)
    stream.to("out", value=serdes.int64)
    with TopologyTestDriver(builder.build(), fresh_tasks=fresh_tasks) as driver:
        driver.input_topic("in", **STRINGS).pipe_all([("k", "v")] * 3)
        return driver.output_topic("out", key=serdes.string, value=serdes.int64).read_values()


def test_a_field_lasts_as_long_as_its_task() -> None:
    assert counted(CountsInAField, fresh_tasks=False) == [1, 2, 3]
    assert counted(CountsInAField, fresh_tasks=True) == [1, 1, 1]


@BOTH
def test_a_store_lasts(fresh_tasks: bool) -> None:
    assert counted(CountsInAStore, "counts", fresh_tasks=fresh_tasks) == [1, 2, 3]


class Ticks(Processor[str, str, str, str]):
    """Ticks every 10 ms of stream time, until a record says stop."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.schedule = context.schedule(10, PunctuationType.STREAM_TIME, self.tick)

    def process(self, record: Record[str, str]) -> None:
        if record.value == "stop":
            self.schedule.cancel()

    def tick(self, timestamp: int) -> None:
        self.context.forward(Record("tick", str(self.context.current_stream_time_ms()), timestamp))


@BOTH
def test_stream_time_and_punctuators_go_on(fresh_tasks: bool) -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).process(Ticks).to("out", **STRINGS)
    with TopologyTestDriver(builder.build(), fresh_tasks=fresh_tasks) as driver:
        source = driver.input_topic("in", **STRINGS)
        for time in (5, 9, 12, 7, 30):
            source.pipe("k", "v", timestamp=time)
        source.pipe("k", "stop", timestamp=31)
        source.pipe("k", "v", timestamp=99)
        assert driver.output_topic("out", **STRINGS).read_values() == ["5", "12", "30"]


class Racing(Processor[str, str, str, str]):
    """Two punctuators that are due at the same time now and then."""

    def init(self, context: Any) -> None:
        super().init(context)
        for name, interval_ms in (("A", 70), ("B", 30)):
            context.schedule(interval_ms, PunctuationType.STREAM_TIME, partial(self.tick, name))

    def process(self, record: Record[str, str]) -> None:
        """Only time counts."""

    def tick(self, name: str, timestamp: int) -> None:
        self.context.forward(Record(name, name, timestamp))


@BOTH
def test_punctuators_that_are_due_together_are_called_in_kafkas_order(fresh_tasks: bool) -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).process(Racing).to("out", **STRINGS)
    with TopologyTestDriver(builder.build(), fresh_tasks=fresh_tasks) as driver:
        source = driver.input_topic("in", **STRINGS)
        for time in (0, 200, 210):
            source.pipe("k", "v", timestamp=time)
        assert driver.output_topic("out", **STRINGS).read_values() == ["A", "B", "B", "A", "B", "A"]


def test_a_new_task_inits_its_processors_and_the_old_one_closes_them() -> None:
    life: list[str] = []

    class Living(Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            life.append("init")

        def process(self, record: Record[str, str]) -> None:
            life.append("process")

        def close(self) -> None:
            life.append("close")

    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).process(Living)
    with TopologyTestDriver(builder.build(), fresh_tasks=True) as driver:
        driver.input_topic("in", **STRINGS).pipe("k", "v")
    assert life == ["init", "process", "close", "init", "close"]
