"""Where an epoch's time goes: a clock that is told when a stage ends."""

from __future__ import annotations

import time

__all__ = ["StageTimer"]


class StageTimer:
    """Seconds by stage. A stage lasts from the end of the one before it.

    >>> stages = StageTimer()
    >>> stages.ended("read")
    >>> list(stages.seconds)
    ['read']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def ended(self, stage: str) -> None:
        """The work since the last call belongs to this stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now
