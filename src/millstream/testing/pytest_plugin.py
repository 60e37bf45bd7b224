"""A pytest fixture that makes test drivers and closes them when the test ends.

It is found by its entry point, so a test only has to name it::

    def test_word_count(topology_test_driver):
        driver = topology_test_driver(build_word_count(), start_ms=0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from millstream.testing.driver import TopologyTestDriver
    from millstream.topology.topology import Topology


@pytest.fixture
def topology_test_driver() -> Iterator[Callable[..., TopologyTestDriver]]:
    """A function that makes a `TopologyTestDriver` with the given topology and settings."""
    from millstream.testing.driver import TopologyTestDriver  # noqa: PLC0415 - not before a test asks for it

    with ExitStack() as drivers:

        def make(topology: Topology, **settings: Any) -> TopologyTestDriver:
            return drivers.enter_context(TopologyTestDriver(topology, **settings))

        yield make
