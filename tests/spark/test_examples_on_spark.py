"""Every example on Spark gives what it gives in the test driver."""

from __future__ import annotations

import pytest
from tests.example_programs import EXAMPLES, Example
from tests.spark.lab import Lab


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs_on_spark(lab: Lab, example: Example) -> None:
    example.write_inputs(lab.log)
    lab.run(example.topology)
    assert example.read_outputs(lab.log) == {topic: dict(rows) for topic, rows in example.expected.items()}
