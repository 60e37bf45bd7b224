"""Golden cases of sub-topologies that feed themselves, through the real commit on the local engine.

The test driver takes each record to its end; epochs run level by level, in steps. Each record is an epoch of
its own here, so outputs per key and stores are Kafka's all the same.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.semantics import families
from tests.semantics.registry import TOPOLOGIES
from tests.semantics.test_golden_cases import CASES, RIGHTED
from tests.spark.golden_case import COLLAPSED, GoldenCase, last_lines

from millstream.engine.local import LocalEngine
from millstream.engine.program import make_worker

assert families.FAMILIES  # importing them registers the topologies


def is_cut_into_steps(name: str) -> bool:
    topology = TOPOLOGIES[name]()
    return len(topology.plan().subtopologies) > len(topology.undivided_plan().subtopologies)


IN_STEPS = [
    name for name, case in CASES.items() if case.completes and name not in RIGHTED and is_cut_into_steps(name)
]
# Each takes a second or two: the soak plays all of them.
SHORT = [name for name in IN_STEPS if not name.startswith("foreign_key")] + [
    "foreign_key_join_key_equal_to_reference",
    "foreign_key_join_null_keys",
    "foreign_key_join_of_a_join",
    "foreign_key_join_of_itself",
    "foreign_key_join_of_versioned",
    "foreign_key_join_reference_becomes_null",
    "foreign_key_left_join_of_itself",
    "foreign_key_left_join_of_views",
    "foreign_key_left_join_reference_changes",
    "foreign_key_left_join_then_group_by",
    "foreign_key_left_join_then_joined_back",
    "foreign_key_left_join_twice",
]
RUN = IN_STEPS if os.environ.get("MILLSTREAM_SOAK") else SHORT


@pytest.mark.parametrize("name", RUN)
def test_outputs_of_each_key_and_stores_are_kafkas(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir(mode=0o700)
    case = GoldenCase(CASES[name], TOPOLOGIES[name](), folder, "case")
    engine = LocalEngine(lambda: make_worker(case.program))
    while (job := case.next_job()) is not None:
        case.take(job, engine.run_tasks(job))
    actual, expected = case.outputs(), case.expected_outputs()
    if name in COLLAPSED:
        actual, expected = last_lines(actual), last_lines(expected)
    assert actual == expected
    assert [str(dump) for dump in case.stores()] == [str(dump) for dump in case.golden.stores]
    case.close()
