"""Some seeds through Kafka Streams itself, where `make fuzz-oracle` has compiled its side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.oracle_fuzz.check import check, report
from tests.oracle_fuzz.generate import random_case
from tests.oracle_fuzz.kafka import Kafka, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"Kafka is not asked: {missing()}")


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka() as running:
        yield running


@pytest.mark.parametrize("seed", range(30))
def test_kafka_gives_the_same(kafka: Kafka, seed: int) -> None:
    checked = check(random_case(seed), kafka)
    if checked.wrong is not None:
        pytest.fail(report(checked, kafka, seed), pytrace=False)
