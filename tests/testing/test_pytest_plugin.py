"""The fixture that makes drivers and closes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from millstream import StreamsBuilder, serdes
from millstream.errors import DriverClosedError
from millstream.testing import TopologyTestDriver
from millstream.testing.pytest_plugin import topology_test_driver

__all__ = ["topology_test_driver"]  # found by its entry point where the package is installed


def copying() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder


@pytest.fixture
def closed_in_the_end() -> Iterator[list[TopologyTestDriver]]:
    """A list; the drivers put into it must be closed when the fixtures asked for after it have ended."""
    made: list[TopologyTestDriver] = []
    yield made
    assert len(made) == 2
    for driver in made:
        with pytest.raises(DriverClosedError):
            driver.store_names()


def test_it_makes_drivers_with_settings_and_closes_them(
    closed_in_the_end: list[TopologyTestDriver],
    topology_test_driver: Callable[..., TopologyTestDriver],
) -> None:
    driver = topology_test_driver(copying().build(), start_ms=7)
    driver.input_topic("in", key=serdes.bytes, value=serdes.bytes).pipe(b"k", b"v")
    out = driver.output_topic("out", key=serdes.bytes, value=serdes.bytes)
    assert [record.timestamp for record in out.read_all()] == [7]
    closed_in_the_end += [driver, topology_test_driver(copying().build())]
