"""docs/life_of_a_record.md is true: the README's program runs on Spark, and its calls are traced."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from tests.spark.lab import Lab, about_jobs
from tests.spark.tracing import Call, calls_in, traced, traced_workers

pytestmark = [pytest.mark.xdist_group("spark"), about_jobs]

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`((?:[\w-]+/)*\w+\.py)(?::([\w.]+))?`")
MOST_FILES_ON_THE_WALK = 45
DISTINCT_WORDS = 3_000


def sections() -> dict[str, str]:
    """The document's text by heading, without its diagram."""
    text = (ROOT / "docs" / "life_of_a_record.md").read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    _, *parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


SECTIONS = sections()


def files_of(*headings: str) -> set[str]:
    return {path for heading in headings for path, _ in NAMED.findall(SECTIONS[heading])}


def stations_of(heading: str) -> list[str]:
    return [f"{path}:{name}" for path, name in NAMED.findall(SECTIONS[heading]) if name]


def passed(stations: Sequence[str], calls: Sequence[Call]) -> list[str]:
    """The stations up to the first one that was not called after those before it."""
    seen = iter(call.station for call in calls)
    return [station for station in stations if station in seen]  # `in` goes on where the last one was found


@dataclass(frozen=True, slots=True)
class Trace:
    """What was called while the program was built, in the epochs of two lines, and in one of many words."""

    program: list[Call]
    epoch: list[Call]
    many: list[Call]
    counts_of_river: list[int]


@pytest.fixture(scope="module")
def trace(spark: SparkContext, shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    building, running = tmp_path_factory.mktemp("building"), tmp_path_factory.mktemp("running")
    program = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert program is not None
    names: dict[str, Any] = {}
    with traced(building):
        exec(program[1], names)  # noqa: S102 - our own README

    lab = Lab(shared_folder / "life", spark)
    lab.topic("lines", [[("page 1", "A line that comes first.")]])
    words = " ".join(f"word{number}" for number in range(DISTINCT_WORDS))
    with lab.app(names["topology"], default_partitions=1, maintenance_interval_epochs=0) as app:
        app.run(until="caught-up")  # from here on workers have the program, and modules are imported
        with traced_workers(spark, running), traced(running):
            for page, line in (("page 2", "To the river!"), ("page 3", "The river.")):
                lab.append("lines", [(page, line)])
                app.run(until="caught-up")
            at = time.monotonic_ns()
            lab.append("lines", [("book", words), ("book", words)])
            app.run(until="caught-up")
    calls = calls_in(running)
    return Trace(
        calls_in(building),
        [call for call in calls if call.time_ns < at],
        [call for call in calls if call.time_ns >= at],
        lab.by_key("word-counts")["river"],
    )


def test_the_record_that_is_traced_is_counted(trace: Trace) -> None:
    assert trace.counts_of_river == [1, 2]


def test_the_program_is_built_by_the_functions_named_and_in_this_order(trace: Trace) -> None:
    assert passed(stations_of("The program"), trace.program) == stations_of("The program")


def test_the_epoch_calls_the_functions_named_in_this_order(trace: Trace) -> None:
    assert passed(stations_of("The epoch"), trace.epoch) == stations_of("The epoch")


def test_many_records_take_the_functions_named_in_this_order(trace: Trace) -> None:
    assert passed(stations_of("With many records"), trace.many) == stations_of("With many records")


def test_every_file_on_the_walk_is_passed(trace: Trace) -> None:
    ran = {call.file for call in (*trace.program, *trace.epoch)}
    assert files_of("The program", "The epoch") - ran == set()


def test_every_file_that_took_part_is_named(trace: Trace) -> None:
    ran = {call.file for call in (*trace.program, *trace.epoch, *trace.many)}
    named = files_of("The program", "The epoch", "With many records", "Beside the way")
    assert ran - named == set(), "name them in docs/life_of_a_record.md"


def test_no_file_is_both_on_the_walk_and_beside_it() -> None:
    walk = files_of("The program", "The epoch", "With many records")
    assert walk & files_of("Beside the way") == set()


def test_the_walk_is_short() -> None:
    assert len(files_of("The program", "The epoch")) <= MOST_FILES_ON_THE_WALK


def test_a_station_that_is_named_too_early_is_found() -> None:
    calls = [Call(number, "a.py", name) for number, name in enumerate("xyz")]
    assert passed(["a.py:x", "a.py:z"], calls) == ["a.py:x", "a.py:z"]
    assert passed(["a.py:x", "a.py:z", "a.py:y"], calls) == ["a.py:x", "a.py:z"]
