"""Records that are too late for their windows: counted, and whatever the handler says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.simulation.epochs import EpochRunner
from tests.task.kit import rows_of
from tests.task.late_operator import drop_late

from millstream import StreamsBuilder, StreamsConfig, Topology, handlers, serdes
from millstream.engine.memory import MemoryRecord
from millstream.errors import ConfigError, LateRecordError, MillstreamError
from millstream.handlers import ErrorContext, ErrorKind, Verdict
from millstream.testing import TopologyTestDriver


def dropping(*, named: int = 1, twice: bool = False) -> Topology:
    """In front of the operator each record may become two rows."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.flat_map_values(lambda value: [value, value] if twice else [value], name="rows")
    return (drop_late(builder.build(), "rows", grace_ms=10, named=named)).add_sink(
        "sink", "out", "drop-late", key=serdes.string, value=serdes.string
    )


def letters_of(runner: EpochRunner) -> list[tuple[bytes | None, bytes | None, int]]:
    return [(row.key, row.value, row.timestamp) for row in runner.outputs.get("late", ())]


def run(
    topology: Topology, times: Sequence[int], handler: handlers.Handler = handlers.dead_letter, **options: Any
) -> EpochRunner:
    config = StreamsConfig(late_record_handler=handler, dead_letter_topic="late")
    runner = EpochRunner(topology, partitions={"in": 1, "out": 1, "late": 1}, config=config, **options)
    pairs = [(f"k{number}", f"v{number}") for number in range(len(times))]
    runner.run_epoch([rows_of("in", *pairs, times=times)])
    return runner


def headers_of(record: MemoryRecord) -> dict[str, str]:
    return {name: value.decode() for name, value in record.headers if value is not None}


def test_late_records_are_left_out_and_counted_and_nothing_else_happens() -> None:
    runner = run(dropping(), [100, 89, 90], handlers.skip)
    assert [row.timestamp for row in runner.outputs["out"]] == [100, 90]
    assert runner.metrics.get("drop-late", "records-late") == 1
    assert runner.metrics.get("drop-late", "records-dropped") == 0
    assert letters_of(runner) == []


def test_a_dead_letter_says_which_operator_dropped_the_record_and_why() -> None:
    runner = run(dropping(), [100, 89, 90, 5])
    assert letters_of(runner) == [(b"k1", b"v1", 89), (b"k3", b"v3", 5)]
    headers = headers_of(runner.outputs["late"][0])
    assert headers.pop("__streams.errors.stacktrace").startswith("millstream.errors.LateRecordError: ")
    assert headers == {
        "__streams.errors.exception": "LateRecordError",
        "__streams.errors.message": (
            "a record of time 89 came when its windows had closed: stream time was beyond their end and grace"
        ),
        "__streams.errors.topic": "in",
        "__streams.errors.partition": "0",
        "__streams.errors.offset": "1",
        "__streams.errors.operator": "drop-late",
    }
    assert runner.metrics.get("drop-late", "records-late") == 2


@pytest.mark.parametrize("max_rows", [None, 1])
@pytest.mark.parametrize("topology", [dropping(named=3), dropping(twice=True)])
def test_a_record_that_is_late_for_several_windows_or_in_several_rows_has_one_letter(
    topology: Topology, max_rows: int | None
) -> None:
    runner = run(topology, [100, 89, 88], max_rows=max_rows)
    assert letters_of(runner) == [(b"k1", b"v1", 89), (b"k2", b"v2", 88)]
    assert runner.metrics.get("drop-late", "records-late") in (4, 6)


def test_a_handler_of_ones_own_is_shown_the_record_and_decides() -> None:
    seen: list[ErrorContext] = []

    def only_old_ones(context: ErrorContext, error: Exception) -> Verdict:
        assert isinstance(error, LateRecordError)
        seen.append(context)
        return Verdict.DEAD_LETTER if context.timestamp == 5 else Verdict.CONTINUE

    runner = run(dropping(), [100, 89, 5], only_old_ones)
    assert letters_of(runner) == [(b"k2", b"v2", 5)]
    assert [(context.kind, context.node, context.key, context.offset) for context in seen] == [
        (ErrorKind.LATE_RECORD, "drop-late", "k1", 1),
        (ErrorKind.LATE_RECORD, "drop-late", "k2", 2),
    ]


def test_an_application_may_end_on_a_late_record() -> None:
    with pytest.raises(LateRecordError) as caught:
        run(dropping(), [100, 89], handlers.fail)
    message = str(caught.value)
    assert message.startswith(
        "operator 'drop-late' of task 0_0: a record of time 89 came when its windows had closed"
    )
    assert "record: topic 'in', partition 0, offset 1, key 'k1'" in message
    assert message.endswith(
        "Remedy: give the windows a longer grace, or choose a late_record_handler that skips or dead-letters "
        "such records."
    )


def test_a_dead_letter_topic_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match=r"late_record_handler is handlers.dead_letter, but there is no"):
        StreamsConfig(late_record_handler=handlers.dead_letter)
    with pytest.raises(MillstreamError, match="Remedy: use one of dead_letter, fail, skip"):
        StreamsConfig.from_env({"MILLSTREAM_LATE_RECORD_HANDLER": "drop"})


def test_the_test_driver_sends_late_records_to_the_dead_letter_topic() -> None:
    config = StreamsConfig(late_record_handler=handlers.dead_letter, dead_letter_topic="late")
    with TopologyTestDriver(dropping(), config=config) as driver:
        lines = driver.input_topic("in", key=serdes.string, value=serdes.string)
        for time in (100, 89, 90):
            lines.pipe("k", str(time), timestamp=time)
        outputs = driver.output_topic("out", key=serdes.string, value=serdes.string).read_values()
        letters = driver.output_topic("late", key=serdes.string, value=serdes.string).read_values()
    assert (outputs, letters) == (["100", "90"], ["89"])
