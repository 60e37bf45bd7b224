"""One task over several epochs: what it seals, what it remembers, and where its batches end."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from tests.task.kit import STRINGS, rows_of

from millstream import Processor, PunctuationType, Record, StreamsBuilder, StreamsConfig, serdes
from millstream.errors import ProcessingError
from millstream.state.backends.memory import MemoryBackend
from millstream.state.stores.factory import open_store
from millstream.task.metrics import Metrics
from millstream.task.serde_book import SerdeBook
from millstream.task.task import Task, TaskEnvironment, TaskResult, TaskState


class Bench:
    """A task of the only sub-topology of a program, by itself."""

    def __init__(self, builder: StreamsBuilder, state: TaskState | None = None) -> None:
        (self.sub,) = builder.build().plan().subtopologies
        self.now = 0
        book = SerdeBook()
        self.backends = {name: MemoryBackend() for name in self.sub.stores}
        self.stores = {
            name: open_store(
                spec,
                self.backends[name],
                book.bound(name, "key", spec.key),
                book.bound(name, "value", spec.value),
            )
            for name, spec in self.sub.stores.items()
        }
        self.environment = TaskEnvironment(
            application_id="app",
            config=StreamsConfig(),
            book=book,
            metrics=Metrics(),
            stores=self.stores,
            global_stores={},
            clock=lambda: self.now,
            partitions_of=lambda topic: 1,
            is_internal=lambda topic: False,
        )
        self.task = Task(self.sub, 3, self.environment, state)

    def epoch(self, *raws: Any, max_rows: int | None = None) -> TaskResult:
        self.task.process(raws, max_rows=max_rows)
        return self.task.seal()


def counting() -> StreamsBuilder:
    builder = StreamsBuilder()
    grouped = builder.stream("in", **STRINGS).group_by_key()
    grouped.count(store="counts").to_stream().to("out", value=serdes.int64)
    return builder


def test_a_task_is_named_by_sub_topology_and_partition() -> None:
    assert Bench(counting()).task.task_id == "0_3"


def test_an_epoch_seals_outputs_and_sorted_changelogs_and_leaves_the_backend_alone() -> None:
    bench = Bench(counting())
    sealed = bench.epoch(rows_of("in", ("b", "x"), ("a", "x"), ("b", "x")))
    assert [(out.topic, list(out.keys), list(out.timestamps)) for out in sealed.outputs] == [
        ("out", [b"a", b"b"], [1, 2])
    ]
    assert [key for key, _ in sealed.changelogs["counts"]] == [b"a", b"b"]
    assert bench.backends["counts"].get_many([b"a", b"b"]) == [None, None]


def test_a_changelog_entry_is_timestamp_and_value() -> None:
    sealed = Bench(counting()).epoch(rows_of("in", ("a", "x"), times=[9]))
    ((_, data),) = sealed.changelogs["counts"]
    assert data == (9).to_bytes(8, "big") + serdes.int64.serialize(1)


def test_outputs_are_sealed_once() -> None:
    bench = Bench(counting())
    bench.epoch(rows_of("in", ("a", "x")))
    assert bench.epoch().outputs == []


def test_the_state_of_a_task_is_its_times() -> None:
    sealed = Bench(counting()).epoch(rows_of("in", ("a", "x"), ("a", "x"), times=[9, 4]))
    assert sealed.state == TaskState(9, {("in", 0): 9}, {})


def test_a_task_goes_on_with_the_time_of_the_one_before_it() -> None:
    bench = Bench(counting(), TaskState(50, {("in", 0): 50}))
    assert bench.epoch(rows_of("in", ("a", "x"), times=[7])).state.stream_time == 50


class Ticks(Processor[str, str, str, str]):
    """Forwards each record, and at every 10 ms of stream time how many it has seen."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.seen = 0
        self.schedule = context.schedule(10, PunctuationType.STREAM_TIME, self.tick)

    def process(self, record: Record[str, str]) -> None:
        self.seen += 1
        self.context.forward(record)

    def tick(self, timestamp: int) -> None:
        self.context.forward(Record("tick", str(self.seen), timestamp))


def ticking() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).process(Ticks, name="ticks").to("out", **STRINGS)
    return builder


def rows(sealed: TaskResult) -> list[tuple[Any, Any, int]]:
    return [row for out in sealed.outputs for row in zip(out.keys, out.values, out.timestamps, strict=True)]


@pytest.mark.parametrize("max_rows", [1, 2, 3, None])
def test_a_batch_ends_where_a_punctuator_is_due(max_rows: int | None) -> None:
    raw = rows_of("in", *[("k", str(number)) for number in range(6)], times=[1, 5, 9, 25, 26, 31])
    assert rows(Bench(ticking()).epoch(raw, max_rows=max_rows)) == [
        (b"k", b"0", 1),
        (b"tick", b"1", 1),
        (b"k", b"1", 5),
        (b"k", b"2", 9),
        (b"k", b"3", 25),
        (b"tick", b"4", 25),
        (b"k", b"4", 26),
        (b"k", b"5", 31),
        (b"tick", b"6", 31),
    ]


def test_a_late_record_fires_no_punctuator() -> None:
    bench = Bench(ticking())
    bench.epoch(rows_of("in", ("k", "0"), times=[25]))
    assert rows(bench.epoch(rows_of("in", ("k", "1"), times=[3]))) == [(b"k", b"1", 3)]


def test_when_a_punctuator_is_due_next_is_part_of_the_state() -> None:
    sealed = Bench(ticking()).epoch(rows_of("in", ("k", "0"), times=[25]))
    assert sealed.state.punctuations == {("ticks stream time", 0): 30}
    later = Bench(ticking(), sealed.state)
    assert rows(later.epoch(rows_of("in", ("k", "1"), times=[29]))) == [(b"k", b"1", 29)]


def test_only_a_punctuator_of_the_wall_clock_needs_idle_epochs() -> None:
    class OnTheClock(Ticks):
        def init(self, context: Any) -> None:
            super().init(context)
            self.clock = context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

        def process(self, record: Record[str, str]) -> None:
            self.clock.cancel()

    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).process(OnTheClock)
    bench = Bench(builder)
    assert (Bench(ticking()).task.wants_wall_clock, bench.task.wants_wall_clock) == (False, True)
    bench.epoch(rows_of("in", ("k", "v")))
    assert not bench.task.wants_wall_clock


def test_a_punctuator_that_fails_is_named_without_a_record() -> None:
    class Fails(Ticks):
        def tick(self, timestamp: int) -> None:
            raise KeyError(timestamp)

    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).process(Fails, name="fails")
    with pytest.raises(ProcessingError) as caught:
        Bench(builder).epoch(rows_of("in", ("k", "v"), times=[5]))
    lines = str(caught.value).splitlines()
    assert lines[0] == "operator 'fails' of task 0_3 failed: KeyError: 5"
    assert lines[1].startswith("  record: no input record (a punctuator was running), key None")


def test_processors_are_closed_in_the_order_of_the_topology() -> None:
    closed: list[str] = []

    def closing(name: str) -> Any:
        class Closing(Processor[str, str, str, str]):
            def close(self) -> None:
                closed.append(name)

        return Closing

    builder = StreamsBuilder()
    stream = builder.stream("in", **STRINGS)
    stream.process(closing("parent")).process(closing("child"))
    Bench(builder).task.close()
    assert closed == ["parent", "child"]


def test_tasks_of_one_sub_topology_have_processors_of_their_own() -> None:
    class Remembering(Processor[str, str, str, str]):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def process(self, record: Record[str, str]) -> None:
            self.seen.append(record.value)
            self.context.forward(record.with_value(",".join(self.seen)))

    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).process(Remembering).to("out", **STRINGS)
    bench = Bench(builder)
    again = Task(bench.sub, 3, bench.environment)
    for task, expected in ((bench.task, [b"x"]), (again, [b"y"])):
        task.process([rows_of("in", ("a", expected[0].decode()))])
        (out,) = task.seal().outputs
        assert expected == list(out.values)
        task.close()


def test_what_a_task_held_is_freed_when_it_is_closed_without_a_search_for_garbage() -> None:
    bench = Bench(counting())
    bench.epoch(rows_of("in", ("a", "1"), ("b", "2")))
    held = weakref.ref(bench.task)
    gc.disable()
    try:
        bench.task.close()
        del bench.task
        assert held() is None
    finally:
        gc.enable()
