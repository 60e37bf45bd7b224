"""What is wrong where Spark runs tasks is told before the first epoch: by name, without Java's traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.lab import Lab
from tests.spark.programs import one_level

from millstream import Answer
from millstream.commit.worker import Worker
from millstream.engine.spark.failures import WorkersNotReadyError
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.warmup import warm_up
from millstream.state.errors import StateDirectoryError

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    (folder / "letters.txt").touch()
    return folder


def test_a_foreign_state_folder_is_refused_by_name(lab: Lab, foreign: Path) -> None:
    lab.topic("in", [[("a", "x")]])
    app = lab.app(one_level(), state_dir=foreign)
    with pytest.raises(StateDirectoryError) as refused:
        app.run(until="caught-up")
    assert str(refused.value).startswith(f"{foreign} cannot become a state directory: it holds other things")
    assert refused.value.__cause__ is None
    assert app.error is refused.value


def test_a_foreign_state_folder_is_refused_by_name_when_it_is_tried_again(lab: Lab, foreign: Path) -> None:
    lab.topic("in", [[("a", "x")]])
    app = lab.app(one_level(), state_dir=foreign)
    seen: list[type[Exception]] = []

    def once_more(error: Exception) -> Answer:
        seen.append(type(error))
        return Answer.REPLACE if len(seen) == 1 else Answer.SHUTDOWN

    app.on_uncaught(once_more)
    with pytest.raises(StateDirectoryError, match=r"letters\.txt"):
        app.run(until="caught-up")
    assert seen == [StateDirectoryError, StateDirectoryError]


def test_workers_that_fail_otherwise_are_told_in_a_line(lab: Lab) -> None:
    def no_worker() -> Worker:
        raise ModuleNotFoundError("No module named 'beside_the_program'")

    slots = Slots(lab.spark, 2)
    with pytest.raises(WorkersNotReadyError) as failure:
        warm_up(lab.spark, slots, no_worker, "app")
    slots.release()
    assert str(failure.value) == (
        "Application 'app' could not start: its workers failed with: ModuleNotFoundError: No module named "
        "'beside_the_program'. Likely cause: what the program imports or opens is not there where Spark runs "
        "it."
    )
