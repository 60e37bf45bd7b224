"""Which seeds are tried: of 200 fixed ones every other (every fourth in both tiers), all of them in the soak,
others on demand, or that of a replay.

pytest tests/properties --seed 1234          only this one
MILLSTREAM_SEED=5000 pytest tests/properties of 200 from 5000 on
MILLSTREAM_SEED=random ...                   of 200 from anywhere on
"""

from __future__ import annotations

import os
import random
from zlib import crc32

import pytest

TOPOLOGIES = 200
FIRST_SEED = 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="the only random topology to try")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_soak, found = bool(os.environ.get("MILLSTREAM_SOAK")), seeds(metafunc.config)
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", found if is_soak else found[::2])
    if "seed_of_tiers" in metafunc.fixturenames:  # these take three times as long
        metafunc.parametrize("seed_of_tiers", found if is_soak else found[::4])


def seeds(config: pytest.Config) -> list[int]:
    """The seeds of this run."""
    only: int | None = config.getoption("--seed", default=None)
    if only is not None:
        return [only]
    first = _first_seed()
    return list(range(first, first + TOPOLOGIES))


def pytest_report_header() -> str:
    return f"random topologies: seeds from {_first_seed()} on"


def _first_seed() -> int:
    wanted = os.environ.get("MILLSTREAM_SEED", str(FIRST_SEED))
    if wanted != "random":
        return int(wanted)
    # All workers of a parallel run must agree on the tests.
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(random.random())
    return crc32(run.encode())
