"""The fixture that makes drivers and closes them."""

from __future__ import annotations

from collections.abc import Callable

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


MADE: list[TopologyTestDriver] = []


def test_it_makes_drivers_with_settings(
    topology_test_driver: Callable[..., TopologyTestDriver],
) -> None:
    driver = topology_test_driver(copying().build(), start_ms=7)
    driver.input_topic("in", key=serdes.bytes, value=serdes.bytes).pipe(b"k", b"v")
    out = driver.output_topic("out", key=serdes.bytes, value=serdes.bytes)
    assert [record.timestamp for record in out.read_all()] == [7]
    MADE.append(driver)
    MADE.append(topology_test_driver(copying().build()))


def test_it_has_closed_all_drivers_of_the_test_before() -> None:
    assert len(MADE) == 2
    for driver in MADE:
        with pytest.raises(DriverClosedError):
            driver.store_names()
