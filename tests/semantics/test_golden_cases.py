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

ACCEPTED = [name for name, case in CASES.items() if not case.refused]
COMPLETING = [name for name, case in CASES.items() if case.completes]
REFUSED = [name for name, case in CASES.items() if case.refused]


def test_every_case_is_written_in_both_languages() -> None:
    assert families.FAMILIES
    assert sorted(TOPOLOGIES) == sorted(CASES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_is_understood_to_the_last_word(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert str(golden.parse(text)) == golden.without_comments(text)


@pytest.mark.parametrize("name", ACCEPTED)
def test_outputs_of_each_input_are_kafkas(name: str) -> None:
    case = CASES[name]
    steps, _ = golden.play(case, TOPOLOGIES[name]())
    assert _lines(steps) == _lines(case.script)


@pytest.mark.parametrize("name", COMPLETING)
def test_stores_end_as_kafkas(name: str) -> None:
    case = CASES[name]
    _, stores = golden.play(case, TOPOLOGIES[name]())
    assert [str(dump) for dump in stores] == [str(dump) for dump in case.stores]


@pytest.mark.parametrize("name", ACCEPTED)
def test_description_is_kafkas_to_the_last_character(name: str) -> None:
    assert TOPOLOGIES[name]().describe() == CASES[name].description


@pytest.mark.parametrize("name", REFUSED)
def test_what_kafka_refuses_is_refused(name: str) -> None:
    with pytest.raises(MillstreamError):
        TopologyTestDriver(TOPOLOGIES[name](), start_ms=0)


def _lines(steps: list[golden.Step] | tuple[golden.Step, ...]) -> list[str]:
    return [line for step in steps for line in str(step.by_topic()).splitlines()]
