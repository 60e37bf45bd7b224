"""Random topologies over random inputs: batches and commits are invisible, and the engine equals the oracle.

A failure prints its seed, a command that replays it, and a smaller example.
"""

from __future__ import annotations

import pytest
from tests.properties.check import check_seed


def test_topology_of_seed(seed: int) -> None:
    print(f"seed {seed}")
    report = check_seed(seed)
    if report is not None:
        pytest.fail(report, pytrace=False)
