"""Streaming frames of Spark that feed topics: what a program says of them.

A frame lives in the driver alone, so it is no part of the plan and does not travel with it: tasks read the
topic that it is written to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FrameSource:
    """A streaming frame, and which of its columns are what of a record."""

    topic: str
    frame: Any
    """A streaming DataFrame with the columns `value`, and `key` and `timestamp` if there are any."""
    partitions: int | None
    """Of the topic, when it is made; None: as many as the application's topics have."""


@dataclass(slots=True)
class FrameSources:
    """All frames of a topology. A copy that travels to workers has none."""

    by_topic: dict[str, FrameSource] = field(default_factory=dict)

    def __iter__(self) -> Iterator[FrameSource]:
        return iter(self.by_topic.values())

    def __bool__(self) -> bool:
        return bool(self.by_topic)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()
