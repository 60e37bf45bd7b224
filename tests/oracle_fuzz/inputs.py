"""Random inputs: few keys, late records, equal times, None for keys and values, and a clock."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.oracle_fuzz.spec import Action

KEYS = ("k0", "k1", "k2", "k3")
_FEWEST, _MOST = 10, 120


def random_actions(rng: random.Random, inputs: Mapping[str, str], durations: set[int]) -> tuple[Action, ...]:
    """Actions for topics with values of some types.

    `durations` are those that the topology knows: times often differ by one of them, or by one more or less.
    """
    keys = rng.sample(KEYS, rng.randint(1, len(KEYS)))
    jumps = [1, *sorted(durations)]
    late_share = rng.choice((0.0, 0.1, 0.3))
    now = rng.choice((0, 0, 3, 1_000_000))
    actions: list[Action] = []
    for _ in range(rng.randint(_FEWEST, rng.choice((20, 40, _MOST)))):
        if rng.random() < 0.05:
            actions.append({"clock": rng.choice((1, 100, 1500))})
        now += _progress(rng, jumps)
        at = max(0, now - _near(rng, jumps)) if rng.random() < late_share else now
        topic = rng.choice(list(inputs))
        actions.append(
            {
                "topic": topic,
                "key": None if rng.random() < 0.06 else rng.choice(keys),
                "value": _value(rng, inputs[topic]),
                "at": at,
                "headers": [[rng.choice("xy"), str(rng.randrange(3))]] if rng.random() < 0.1 else [],
            }
        )
    return tuple(actions)


def _progress(rng: random.Random, jumps: list[int]) -> int:
    chosen = rng.random()
    if chosen < 0.35:
        return 0
    if chosen < 0.8:
        return rng.choice((1, 1, 2, 3, 5))
    return _near(rng, jumps) if chosen < 0.98 else rng.choice((1_000, 70_000))


def _near(rng: random.Random, jumps: list[int]) -> int:
    return max(0, rng.choice(jumps) + rng.choice((-1, 0, 0, 1)))


def _value(rng: random.Random, kind: str) -> Any:
    if rng.random() < 0.12:
        return None
    return rng.randrange(12) if kind == "int64" else rng.choice("abcde")
