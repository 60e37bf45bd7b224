"""The golden cases through Spark: the same outputs per key and the same stores as Kafka Streams' own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark import SparkContext
from tests.engine.slots_in_threads import SlotsInThreads
from tests.semantics import families, golden
from tests.semantics.registry import TOPOLOGIES
from tests.semantics.test_golden_cases import CASES, RIGHTED
from tests.spark.golden_case import COLLAPSED, GoldenCase, last_lines, segments
from tests.spark.lab import ENGINE
from tests.spark.many import ManyApplications

from millstream.commit.epoch import CommittedEpoch
from millstream.commit.epoch_job import TaskReport
from millstream.engine.program import make_worker
from millstream.errors import MillstreamError

pytestmark = pytest.mark.xdist_group("spark")

assert families.FAMILIES  # importing them registers the topologies

# A processor lasts one epoch: what it keeps in fields, or schedules after `init`, is gone with it. The test
# driver with `fresh_tasks=True` does the same.
FORGETFUL = {
    "punctuate_scheduled_by_a_punctuator": "the second schedule is made by the first",
    "punctuate_wall_clock_scheduled_by_a_record": "the schedule is kept in a list",
    "punctuate_wall_clock_until_cancelled_by_itself": "the times are kept in a list",
}
# An epoch on Spark costs more than one in the test driver: long inputs are played where a few epochs do. The
# soak plays longer ones.
MOST_EPOCHS = 25 if os.environ.get("MILLSTREAM_SOAK") else 10
LONG = {
    name
    for name, case in CASES.items()
    if not case.refused and len(list(segments(case, TOPOLOGIES[name]().plan()))) > MOST_EPOCHS
}
# The log takes no negative timestamps; the test driver does without a log on disk.
NEGATIVE = {name for name, case in CASES.items() if any(time < 0 for time in case.times)}
LEFT_OUT = RIGHTED.keys() | FORGETFUL.keys() | LONG | NEGATIVE
RUN = [name for name, case in CASES.items() if not case.refused and name not in LEFT_OUT]


@pytest.fixture(scope="module")
def played(spark: SparkContext, shared_folder: Path) -> Iterator[dict[str, GoldenCase]]:
    """All cases, played to their ends together: one Spark job for the next epoch of each."""
    folder = _private(shared_folder / "golden")
    cases = {
        name: GoldenCase(CASES[name], TOPOLOGIES[name](), _private(folder / name), f"case-{number}")
        for number, name in enumerate(RUN)
    }
    if ENGINE == "resident":
        for case in cases.values():
            play_in_slots(case)
    else:
        many = ManyApplications(spark, {name: case.program for name, case in cases.items()})
        while jobs := {name: job for name, case in cases.items() if (job := case.next_job()) is not None}:
            for name, answer in many.run(jobs).items():
                cases[name].take(jobs[name], answer)
        many.close()
    yield cases
    for case in cases.values():
        case.close()


def play_in_slots(case: GoldenCase) -> None:
    """A case in slots that are threads: its tasks, bundles and stores are those of slots on Spark.

    Global stores are shared by processes, not by threads: there, in one slot.
    """
    has_global = bool(case.program.topology.plan().global_subtopologies)
    engine = SlotsInThreads(partial(make_worker, case.program), slots=1 if has_global else 2)
    engine.open()
    while (job := case.next_job()) is not None:
        answer: list[TaskReport] | MillstreamError
        try:
            answer = [report for report in engine.run_tasks(job) if isinstance(report, TaskReport)]
        except MillstreamError as error:
            answer = error
        manifest = case.take(job, answer)
        if manifest is not None and isinstance(answer, list):
            engine.apply(CommittedEpoch(job, answer, manifest, {}))
    engine.close()


@pytest.mark.parametrize("name", RUN)
def test_outputs_of_each_key_and_stores_are_kafkas(name: str, played: dict[str, GoldenCase]) -> None:
    case = played[name]
    if case.golden.completes and case.failed is not None:
        raise case.failed
    actual, expected = case.outputs(), case.expected_outputs()
    if name in COLLAPSED:
        actual, expected = last_lines(actual), last_lines(expected)
    assert actual == expected
    assert (case.failed is None) == case.golden.completes
    if case.golden.completes:
        assert _lines(case.stores()) == _lines(case.golden.stores)


def _lines(dumps: list[golden.Dump] | tuple[golden.Dump, ...]) -> dict[str, list[str]]:
    """Each store's rows, in an order of their own: a store may be spread over several partitions."""
    return {dump.name: sorted(str(entry) for entry in dump.entries) for dump in dumps}


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder
