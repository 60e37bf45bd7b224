"""Streaming frames of Spark that feed topics: what a program says of them.

A frame lives in the driver alone, so it is no part of the plan and does not travel with it: tasks read the
topic that it is written to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FrameSource:
    """A streaming frame, and the topic that it is written to."""

    topic: str
    frame: Any
    """A streaming DataFrame with the columns `value`, and `key` and `timestamp` if there are any."""
    partitions: int | None
    """Of the topic, when it is made; None: as many as the application's topics have."""

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy that travels to workers has no frame.
        return type(self), (self.topic, None, self.partitions)
