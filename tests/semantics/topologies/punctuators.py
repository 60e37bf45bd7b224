"""schedule: punctuators in stream time and in wall-clock time."""

from __future__ import annotations

from collections.abc import Callable

from tests.semantics.registry import dsl
from tests.semantics.shapes import NUMBERS, WORDS, each, number_store, starting, word_store, words

from millstream import Processor, ProcessorContext, PunctuationType, Record, StreamsBuilder, serdes, stores
from millstream.processors.api import Cancellable

STREAM_TIME = PunctuationType.STREAM_TIME
WALL_CLOCK_TIME = PunctuationType.WALL_CLOCK_TIME

WordContext = ProcessorContext[str, str]
WordSupplier = Callable[[], Processor[str, str, str, str]]


def _forward(context: WordContext, record: Record[str, str]) -> None:
    context.forward(record)


def _schedule(context: WordContext, kind: PunctuationType, name: str, interval_ms: int) -> Cancellable:
    return context.schedule(interval_ms, kind, lambda time: context.forward(Record(name, str(time), time)))


def _ticking(kind: PunctuationType, name: str, interval_ms: int) -> WordSupplier:
    """Passes records on, and its own name and the time at every punctuation."""
    return starting(lambda context: _schedule(context, kind, name, interval_ms), _forward)


def _at_every_tick(kind: PunctuationType, tick: Callable[[WordContext, int], None]) -> WordSupplier:
    """Passes records on, and does `tick(context, time)` every 10 ms."""

    def start(context: WordContext) -> None:
        context.schedule(10, kind, lambda time: tick(context, time))

    return starting(start, _forward)


@dsl
def punctuate_stream_time(b: StreamsBuilder) -> None:
    words(b, "in").process(_ticking(STREAM_TIME, "tick", 10)).to("out", **WORDS)


@dsl
def punctuate_stream_time_starting_late(b: StreamsBuilder) -> None:
    words(b, "in").process(_ticking(STREAM_TIME, "tick", 10)).to("out", **WORDS)


@dsl
def punctuate_wall_clock(b: StreamsBuilder) -> None:
    words(b, "in").process(_ticking(WALL_CLOCK_TIME, "tick", 10)).to("out", **WORDS)


@dsl
def punctuate_both_kinds(b: StreamsBuilder) -> None:
    stream = words(b, "in").process(_ticking(STREAM_TIME, "stream", 10))
    stream.process(_ticking(WALL_CLOCK_TIME, "wall", 10)).to("out", **WORDS)


def _two_intervals(kind: PunctuationType) -> WordSupplier:
    def start(context: WordContext) -> None:
        _schedule(context, kind, "slow", 15)
        _schedule(context, kind, "fast", 10)

    return starting(start, _forward)


@dsl
def punctuate_two_intervals(b: StreamsBuilder) -> None:
    words(b, "in").process(_two_intervals(STREAM_TIME)).to("out", **WORDS)


@dsl
def punctuate_wall_clock_two_intervals(b: StreamsBuilder) -> None:
    words(b, "in").process(_two_intervals(WALL_CLOCK_TIME)).to("out", **WORDS)


@dsl
def punctuate_in_two_processors(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.process(_ticking(STREAM_TIME, "first", 10)).to("out", **WORDS)
    stream.process(_ticking(STREAM_TIME, "second", 10)).to("out", **WORDS)


@dsl
def punctuate_in_parent_and_child(b: StreamsBuilder) -> None:
    parent = words(b, "in").process(_ticking(STREAM_TIME, "parent", 10))
    parent.process(_ticking(STREAM_TIME, "child", 10)).to("out", **WORDS)


@dsl
def punctuate_wall_clock_in_two_processors(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.process(_ticking(WALL_CLOCK_TIME, "first", 10)).to("out", **WORDS)
    stream.process(_ticking(WALL_CLOCK_TIME, "second", 10)).to("out", **WORDS)


def _cancelling(kind: PunctuationType) -> WordSupplier:
    """Cancels its punctuator at the second punctuation."""

    def start(context: WordContext) -> None:
        times: list[int] = []

        def tick(time: int) -> None:
            times.append(time)
            context.forward(Record("tick", str(times), time))
            if len(times) == 2:
                schedule.cancel()

        schedule = context.schedule(10, kind, tick)

    return starting(start, _forward)


@dsl
def punctuate_until_cancelled_by_itself(b: StreamsBuilder) -> None:
    words(b, "in").process(_cancelling(STREAM_TIME)).to("out", **WORDS)


@dsl
def punctuate_wall_clock_until_cancelled_by_itself(b: StreamsBuilder) -> None:
    words(b, "in").process(_cancelling(WALL_CLOCK_TIME)).to("out", **WORDS)


def _switched(kind: PunctuationType) -> WordSupplier:
    """The record "start" schedules a punctuator, "stop" cancels it."""
    running: list[Cancellable] = []

    def process(context: WordContext, record: Record[str, str]) -> None:
        context.forward(record)
        if record.value == "start":
            running.append(_schedule(context, kind, "tick", 10))
        elif record.value == "stop":
            running.pop().cancel()

    return each(process)


@dsl
def punctuate_until_cancelled_by_a_record(b: StreamsBuilder) -> None:
    words(b, "in").process(_switched(STREAM_TIME)).to("out", **WORDS)


@dsl
def punctuate_wall_clock_scheduled_by_a_record(b: StreamsBuilder) -> None:
    words(b, "in").process(_switched(WALL_CLOCK_TIME)).to("out", **WORDS)


def _handing_over(kind: PunctuationType) -> WordSupplier:
    """The first punctuation cancels its schedule and starts another."""

    def start(context: WordContext) -> None:
        def tick(time: int) -> None:
            context.forward(Record("first", str(time), time))
            schedule.cancel()
            _schedule(context, kind, "second", 4)

        schedule = context.schedule(10, kind, tick)

    return starting(start, _forward)


@dsl
def punctuate_scheduled_by_a_punctuator(b: StreamsBuilder) -> None:
    words(b, "in").process(_handing_over(WALL_CLOCK_TIME)).to("out", **WORDS)


@dsl
def punctuate_stream_time_scheduled_by_a_punctuator(b: StreamsBuilder) -> None:
    words(b, "in").process(_handing_over(STREAM_TIME)).to("out", **WORDS)


def _buffering(kind: PunctuationType) -> Callable[[], Processor[str, str, str, int]]:
    """Counts records per key; every 10 ms it emits the counts and forgets them."""

    def start(context: ProcessorContext[str, int]) -> None:
        def emit(time: int) -> None:
            buffer = context.state_store("buffer")
            with buffer.all() as entries:
                rows = list(entries)
            for key, count in rows:
                context.forward(Record(key, count, time))
                buffer.delete(key)

        context.schedule(10, kind, emit)

    def process(context: ProcessorContext[str, int], record: Record[str, str]) -> None:
        buffer = context.state_store("buffer")
        buffer.put(record.key, (buffer.get(record.key) or 0) + 1)

    return starting(start, process)


@dsl
def punctuate_emits_a_store(b: StreamsBuilder) -> None:
    b.add_state_store(stores.key_value("buffer", key=serdes.string, value=serdes.int64))
    words(b, "in").process(_buffering(STREAM_TIME), "buffer").to("out", **NUMBERS)


@dsl
def punctuate_wall_clock_emits_a_store(b: StreamsBuilder) -> None:
    b.add_state_store(stores.key_value("buffer", key=serdes.string, value=serdes.int64))
    words(b, "in").process(_buffering(WALL_CLOCK_TIME), "buffer").to("out", **NUMBERS)


def _observing(kind: PunctuationType) -> WordSupplier:
    """Swallows records; at every punctuation it tells what the context knows."""

    def start(context: WordContext) -> None:
        def tell(time: int) -> None:
            topic = "none" if context.record_metadata is None else context.record_metadata.topic
            stream, system = context.current_stream_time_ms(), context.current_system_time_ms()
            seen = f"metadata {topic} stream {stream} system {system} time {time}"
            context.forward(Record("seen", seen, time))

        context.schedule(10, kind, tell)

    def swallow(context: WordContext, record: Record[str, str]) -> None:
        pass

    return starting(start, swallow)


@dsl
def punctuate_context(b: StreamsBuilder) -> None:
    words(b, "in").process(_observing(STREAM_TIME)).to("out", **WORDS)


@dsl
def punctuate_wall_clock_context(b: StreamsBuilder) -> None:
    words(b, "in").process(_observing(WALL_CLOCK_TIME)).to("out", **WORDS)


@dsl
def punctuate_before_any_record(b: StreamsBuilder) -> None:
    words(b, "in").process(_observing(WALL_CLOCK_TIME)).to("out", **WORDS)


@dsl
def punctuate_with_headers(b: StreamsBuilder) -> None:
    def tick(context: WordContext, time: int) -> None:
        context.forward(Record("with", "headers", time, (("h", b"1"),)))
        context.forward(Record("without", "headers", time))

    ticks = words(b, "in").process(_at_every_tick(WALL_CLOCK_TIME, tick))
    ticks.map_values(lambda v: v + "!").to("out", **WORDS)


@dsl
def punctuate_to_named_child(b: StreamsBuilder) -> None:
    def tick(context: WordContext, time: int) -> None:
        context.forward(Record("tick", str(time), time), "right")
        context.forward(Record("tock", str(time), time))

    ticks = words(b, "in").process(_at_every_tick(WALL_CLOCK_TIME, tick))
    ticks.map_values(lambda v: "left " + v, name="left").to("out", **WORDS)
    ticks.map_values(lambda v: "right " + v, name="right").to("out", **WORDS)


@dsl
def punctuate_into_a_count(b: StreamsBuilder) -> None:
    ticks = words(b, "in").process(_ticking(WALL_CLOCK_TIME, "tick", 10))
    counts = ticks.group_by_key(**WORDS).count(store=number_store("counts"))
    counts.to_stream().to("out", **NUMBERS)


@dsl
def punctuate_into_a_table(b: StreamsBuilder) -> None:
    ticks = words(b, "in").process(_ticking(WALL_CLOCK_TIME, "tick", 10))
    rows = ticks.to_table(store=word_store("rows"))
    rows.filter(lambda k, v: not v.startswith("2")).to_stream().to("out")


@dsl
def punctuate_commits(b: StreamsBuilder) -> None:
    def tick(context: WordContext, time: int) -> None:
        context.commit()
        context.forward(Record("tick", str(time), time))

    words(b, "in").process(_at_every_tick(WALL_CLOCK_TIME, tick)).to("out", **WORDS)


@dsl
def punctuate_raising_fails(b: StreamsBuilder) -> None:
    def tick(context: WordContext, time: int) -> None:
        raise ValueError("no")

    words(b, "in").process(_at_every_tick(WALL_CLOCK_TIME, tick)).to("out", **WORDS)


@dsl
def punctuate_every_zero_is_refused(b: StreamsBuilder) -> None:
    words(b, "in").process(_ticking(WALL_CLOCK_TIME, "tick", 0)).to("out", **WORDS)
