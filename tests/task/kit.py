"""Short ways to run a topology by epochs, with text in and text out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation.epochs import EpochRunner

from millstream import serdes
from millstream.task.records import RawBatch

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def rows_of(
    topic: str, *pairs: tuple[str | None, str | None], times: Sequence[int] | None = None, offset: int = 0
) -> RawBatch:
    """Records of partition 0, one millisecond apart."""
    numbers = range(len(pairs))
    return RawBatch(
        topic,
        0,
        [offset + number for number in numbers],
        [None if key is None else key.encode() for key, _ in pairs],
        [None if value is None else value.encode() for _, value in pairs],
        list(numbers) if times is None else times,
    )


def written(runner: EpochRunner, topic: str = "out") -> list[tuple[str, str]]:
    """Key and value of everything that was written to a topic."""
    return [
        ((row.key or b"-").decode(), "-" if row.value is None else row.value.decode())
        for row in runner.outputs.get(topic, ())
    ]
