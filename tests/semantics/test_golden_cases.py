"""Millstream against the golden files: the same outputs, stores and descriptions as Kafka Streams' own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.semantics import families, golden
from tests.semantics.registry import TOPOLOGIES

from millstream.errors import MillstreamError
from millstream.testing import TopologyTestDriver

FILES = sorted((Path(__file__).parents[1] / "golden").glob("*.txt"))
CASES = {file.stem: golden.parse(file.read_text(encoding="utf-8")) for file in FILES}

# Where Kafka is wrong and Millstream is not; docs/kafka_streams_map.md tells why.
RIGHTED = {
    "table_group_by_of_uncached_aggregate": "the first update's old value is the initializer's, never added",
    "table_group_by_counting_uncached_counts": "the same: a group never counts its second row",
}

ACCEPTED = [name for name, case in CASES.items() if not case.refused]
REFUSED = [name for name, case in CASES.items() if case.refused]


def test_every_case_is_written_in_both_languages() -> None:
    assert families.FAMILIES
    assert sorted(TOPOLOGIES) == [file.stem for file in FILES]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_is_understood_to_the_last_word(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert str(golden.parse(text)) == golden.without_comments(text)


@pytest.mark.parametrize("name", [name for name in ACCEPTED if name not in RIGHTED])
def test_outputs_of_each_input_and_stores_in_the_end_are_kafkas(name: str) -> None:
    case = CASES[name]
    steps, stores = golden.play(case, TOPOLOGIES[name]())
    assert _lines(steps) == _lines(case.script)
    if case.completes:
        assert [str(dump) for dump in stores] == [str(dump) for dump in case.stores]


@pytest.mark.parametrize("name", ACCEPTED)
def test_description_is_kafkas_to_the_last_character(name: str) -> None:
    assert TOPOLOGIES[name]().describe() == CASES[name].description


@pytest.mark.parametrize("name", REFUSED)
def test_what_kafka_refuses_is_refused(name: str) -> None:
    with pytest.raises(MillstreamError):
        TopologyTestDriver(TOPOLOGIES[name](), start_ms=0)


@pytest.mark.parametrize(
    ("name", "kafkas", "right"),
    [
        ("table_group_by_of_uncached_aggregate", 1053, 2053),
        ("table_group_by_counting_uncached_counts", 1, 2),
    ],
)
def test_a_group_holds_what_was_added_where_kafkas_does_not(name: str, kafkas: int, right: int) -> None:
    case = CASES[name]
    steps, _ = golden.play(case, TOPOLOGIES[name]())
    assert _lines(case.script)[-1] == f'  -> out "all" {kafkas} @31'
    assert _lines(steps)[-1] == f'  -> out "all" {right} @31'


def _lines(steps: list[golden.Step] | tuple[golden.Step, ...]) -> list[str]:
    return [line for step in steps for line in str(step.by_topic()).splitlines()]
