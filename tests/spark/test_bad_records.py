"""A user function that raises: the message names the record and the line; handlers go on without it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.spark.lab import Lab, Pair

from millstream import Store, StreamsBuilder, Topology, handlers, serdes
from millstream.errors import DeserializationError, ProcessingError

pytestmark = pytest.mark.xdist_group("spark")

BAD = 1_234
RECORDS = 2_000


def numbers() -> list[Pair]:
    return [(f"key-{number % 7}", str(number)) for number in range(RECORDS)]


def halves(kill_once: Path | None = None) -> Topology:
    """Fails on one record; may kill its worker once, after that record."""

    def halve(value: str) -> int:
        if int(value) == BAD + 5 and kill_once is not None and not kill_once.exists():
            kill_once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if int(value) == BAD:
            raise ValueError("an unlucky number")
        return int(value) // 2

    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    counts = stream.map_values(halve, name="halve").group_by_key(key=serdes.string, value=serdes.int64)
    counts.count(store=Store("counts", caching=False)).to_stream().to("out", value=serdes.int64)
    return builder.build()


def check_all_but_the_bad_one(lab: Lab) -> None:
    expected: dict[str, list[int]] = {}
    for number, (key, _) in enumerate(numbers()):
        if number != BAD:
            counts = expected.setdefault(str(key), [])
            counts.append(len(counts) + 1)
    assert lab.by_key("out") == expected


def test_the_message_names_the_record_the_operator_and_the_users_line(lab: Lab) -> None:
    lab.topic("in", [[], numbers()])
    with lab.app(halves(), max_records_per_epoch=600) as app:
        with pytest.raises(ProcessingError) as failure:
            app.run(until="caught-up")
        assert app.error is failure.value
    message = str(failure.value)
    assert "operator 'halve' of task 0_1 failed: ValueError: an unlucky number" in message
    assert f"topic 'in', partition 1, offset {BAD}, key 'key-{BAD % 7}', timestamp {BAD}" in message
    assert "test_bad_records.py" in message
    assert 'raise ValueError("an unlucky number")' in message
    assert lab.committed() == 1_200, "the epochs before stay committed, nothing of this one is visible"


def test_a_skipped_record_is_counted_once_even_if_its_epoch_runs_twice(lab: Lab) -> None:
    lab.topic("in", [numbers(), []])
    marker = lab.folder / "killed"
    with lab.app(halves(marker), processing_handler=handlers.skip, max_records_per_epoch=600) as app:
        app.run(until="caught-up")
        assert app.metrics()["nodes"]["halve"]["records-dropped"] == 1
    assert marker.exists()
    check_all_but_the_bad_one(lab)


def test_a_dead_letter_is_there_exactly_once_even_if_its_epoch_runs_twice(lab: Lab) -> None:
    lab.topic("in", [numbers(), []])
    marker = lab.folder / "killed"
    lab.run(
        halves(marker),
        processing_handler=handlers.dead_letter,
        dead_letter_topic="dead",
        max_records_per_epoch=600,
    )
    assert marker.exists()
    (letter,) = lab.rows("dead")
    assert (letter.text, letter.value) == (f"key-{BAD % 7}", str(BAD).encode())
    headers = dict(letter.headers)
    assert headers["__streams.errors.topic"] == b"in"
    assert headers["__streams.errors.offset"] == str(BAD).encode()
    assert headers["__streams.errors.message"] == b"an unlucky number"
    check_all_but_the_bad_one(lab)


def test_bytes_that_are_no_value_name_topic_partition_and_offset(lab: Lab) -> None:
    lab.topic("in", [[("a", "not eight bytes long")]])
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.int64).to("out")
    with lab.app(builder.build()) as app, pytest.raises(DeserializationError) as failure:
        app.run(until="caught-up")
    assert "topic 'in'" in str(failure.value) or "in-0" in str(failure.value)
    assert failure.value.offset == 0
