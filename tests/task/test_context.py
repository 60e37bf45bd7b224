"""What a processor's context allows, tells and refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.epochs import EpochRunner
from tests.task.kit import STRINGS, rows_of, written

from millstream import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    serdes,
    stores,
)
from millstream.errors import InvalidTimestampError, ProcessingError


def run(process: Callable[[Any, Any], None], *stores_of_it: str, fixed_key: bool = False) -> EpochRunner:
    """One record ("k", "v") at time 5 through a processor that does as told."""

    class Free(Processor[str, str, Any, Any]):
        def process(self, record: Record[str, str]) -> None:
            process(self.context, record)

    class Fixed(FixedKeyProcessor[str, str, Any]):
        def process(self, record: FixedKeyRecord[str, str]) -> None:
            process(self.context, record)

    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("mine", key=serdes.string, value=serdes.string))
    builder.add_state_store(stores.key_value("other", key=serdes.string, value=serdes.string))
    stream = builder.stream("in", **STRINGS)
    stream.process(Free, "other", name="owner-of-other")
    processed: Any = (
        stream.process_values(Fixed, *stores_of_it, name="mill")
        if fixed_key
        else stream.process(Free, *stores_of_it, name="mill")
    )
    processed.map_values(lambda value: value, name="left").to("left", **STRINGS)
    processed.map_values(lambda value: value, name="right").to("right", **STRINGS)
    runner = EpochRunner(builder.build(), partitions={"in": 1}, application_id="app", start_ms=1_000)
    with runner:
        runner.run_epoch([rows_of("in", ("k", "v"), times=[5])])
    return runner


def refused(process: Callable[[Any, Any], None], *stores_of_it: str, fixed_key: bool = False) -> str:
    with pytest.raises(ProcessingError) as caught:
        run(process, *stores_of_it, fixed_key=fixed_key)
    return str(caught.value)


def in_mill(do: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Only the processor "mill" does it, not its neighbour."""

    def process(context: Any, record: Any) -> None:
        if context._node == "mill":
            do(context, record)

    return process


def test_forward_reaches_all_children() -> None:
    runner = run(in_mill(lambda context, record: context.forward(record)))
    assert (written(runner, "left"), written(runner, "right")) == ([("k", "v")], [("k", "v")])


def test_forward_to_a_named_child_reaches_only_that_one() -> None:
    runner = run(in_mill(lambda context, record: context.forward(record, "right")))
    assert (written(runner, "left"), written(runner, "right")) == ([], [("k", "v")])


def test_forward_to_a_stranger_names_the_children() -> None:
    message = refused(in_mill(lambda context, record: context.forward(record, "wrong")))
    expected = (
        "operator 'mill' of task 0_0 failed: ProcessingError: node 'mill' forwards to 'wrong', which is no "
        "child of it. Children are: left, right\n"
        "  record: topic 'in', partition 0, offset 0, key 'k', timestamp 5\n"
    )
    assert message.startswith(expected)
    assert __file__ in message


def test_only_records_can_be_forwarded() -> None:
    message = refused(in_mill(lambda context, record: context.forward(("k", "v"))))
    expected = "node 'mill' forwards ('k', 'v'); forward a Record, made with record.with_value() and its like"
    assert expected in message


def test_a_fixed_key_processor_can_t_forward_a_record_of_its_own_making() -> None:
    message = refused(in_mill(lambda context, record: context.forward(Record("x", "v", 5))), fixed_key=True)
    assert "forward a FixedKeyRecord, made with record.with_value() and its like" in message


def test_forwarding_when_nobody_processes_is_refused() -> None:
    kept: list[Any] = []
    run(in_mill(lambda context, record: kept.append(context)))
    with pytest.raises(ProcessingError) as caught:
        kept[0].forward(Record("k", "v", 5))
    assert str(caught.value) == "node 'mill' forwards outside of process() and of a punctuator"


def test_a_negative_timestamp_can_t_be_made() -> None:
    message = refused(in_mill(lambda context, record: context.forward(record.with_timestamp(-1))))
    assert message.startswith(
        "operator 'mill' of task 0_0 failed: InvalidTimestampError: A record's timestamp is -1, but "
        "timestamps are milliseconds since 1970, never negative."
    )
    with pytest.raises(InvalidTimestampError):
        Record("k", "v", -1)


def test_a_store_is_there_for_those_it_is_connected_to() -> None:
    def process(context: Any, record: Any) -> None:
        context.state_store("mine").put(record.key, record.value)

    assert dict(run(in_mill(process), "mine").stores("mine")[0].all()) == {"k": "v"}


@pytest.mark.parametrize("name", ["other", "nowhere"])
def test_a_store_that_is_not_connected_is_refused_and_the_connected_ones_are_named(name: str) -> None:
    message = refused(in_mill(lambda context, record: context.state_store(name)), "mine")
    expected = (
        f"UnknownStoreError: processor 'mill' asks for the state store '{name}', which is not connected to "
        "it (connected: mine).\n  Remedy: name the store where the processor is added"
    )
    assert expected in message


def test_the_context_tells_where_and_when() -> None:
    told: list[Any] = []

    def process(context: Any, record: Any) -> None:
        told.append((context.application_id, context.task_id, context.record_metadata.topic))
        told.append((context.record_metadata.partition, context.record_metadata.offset))
        told.append((context.current_stream_time_ms(), context.current_system_time_ms()))

    run(in_mill(process))
    assert told == [("app", "0_0", "in"), (0, 0), (5, 1_000)]


def test_a_commit_that_is_asked_for_is_in_what_the_task_seals() -> None:
    requested: list[bool] = []

    class Noting(EpochRunner):
        def run_task(self, task: Any, raws: Any) -> Any:
            sealed = super().run_task(task, raws)
            requested.append(sealed.commit_requested)
            return sealed

    class Committing(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            if record.value == "enough":
                self.context.commit()

    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).process(Committing)
    with Noting(builder.build(), partitions={"in": 1}) as runner:
        for value in ("more", "enough", "more"):
            runner.run_epoch([rows_of("in", ("k", value))])
    assert requested == [False, True, False]


def test_a_punctuator_has_no_record_no_headers_and_may_forward() -> None:
    told: list[Any] = []

    class Ticking(Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

        def process(self, record: Record[str, str]) -> None: ...

        def tick(self, timestamp: int) -> None:
            told.append((timestamp, self.context.record_metadata, self.context.headers))
            self.context.forward(Record("tick", str(timestamp), timestamp))

    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).process(Ticking).to("out", **STRINGS)
    with EpochRunner(builder.build(), partitions={"in": 1}) as runner:
        runner.run_epoch([rows_of("in", ("k", "v"))], now_ms=25)
        assert told == [(25, None, ())]
        assert written(runner) == [("tick", "25")]


def test_a_transformer_can_t_forward() -> None:
    class Forwarding:
        def init(self, context: Any) -> None:
            self.context = context

        def transform(self, key: str, value: str) -> str:
            self.context.forward(Record(key, value, 5))
            return value

        def close(self) -> None: ...

    builder = StreamsBuilder()
    builder.table("in", **STRINGS).transform_values(Forwarding, name="mill").to_stream().to("out")
    with (
        EpochRunner(builder.build(), partitions={"in": 1}) as runner,
        pytest.raises(ProcessingError) as caught,
    ):
        runner.run_epoch([rows_of("in", ("k", "v"))])
    expected = "transform_values() at 'mill' can't forward records: return the new value instead"
    assert expected in str(caught.value)
