"""Clocks and repetitions."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

__all__ = ["alternately", "seconds"]


def seconds(work: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def alternately(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Run each of several works `rounds` times, one after the other, after one round of warming up.

    Taking turns, a slow minute of the machine falls on all of them alike.
    """
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            gc.collect()
            took = seconds(work)
            if number:
                taken[name].append(took)
    return taken
