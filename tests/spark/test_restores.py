"""Restores are seen while they go on: a note beside the state, in the metrics and in the live table."""

from __future__ import annotations

import io
from itertools import count
from pathlib import Path

from tests.spark.processes import until
from tests.spark.programs import one_level

from millstream import Streams, StreamsConfig
from millstream.console import Figures, Watcher, line_of, table_of
from millstream.engine.restore_notes import RestoreNotes, restores_in, restores_told
from millstream.state.changelog.follow import Progress

HALF = Progress("counts", 3, 50_000, 100_000, 1 << 20, 1_000.0, 50.0)


def figures(**restores: tuple[int, int]) -> Figures:
    return Figures("copy", "running", 7, 1000, 250.0, 0.125, {}, {}, restores)


def test_a_restore_that_takes_a_while_is_seen_until_it_ends(tmp_path: Path) -> None:
    ticks = count(0.0, 0.2)
    notes = RestoreNotes(tmp_path, clock=lambda: next(ticks))
    notes.on_start(HALF)
    notes.on_batch(HALF)
    assert restores_in(tmp_path) == []
    notes.on_batch(HALF)
    assert restores_in(tmp_path) == [HALF]
    notes.on_end(HALF)
    assert restores_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_the_application_tells_its_restores(tmp_path: Path) -> None:
    app = Streams(one_level(), app_id="copy", config=StreamsConfig(state_dir=tmp_path))
    (tmp_path / "copy").mkdir()
    notes = RestoreNotes(tmp_path / "copy", clock=lambda: 0.0)
    notes.on_batch(HALF)
    assert app.metrics()["restores"]["counts-3"]["records"] == 50_000
    assert app.figures().restores == {"counts-3": (50_000, 100_000)}


def test_a_note_that_was_torn_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".restoring-counts-3").write_bytes(b'{"store": "cou')
    assert restores_in(tmp_path) == []


def test_listeners_are_told_while_it_goes_on(tmp_path: Path) -> None:
    RestoreNotes(tmp_path, clock=lambda: 0.0).on_batch(HALF)
    told: list[Progress] = []
    with restores_told(tmp_path, [told.append]):
        until(lambda: HALF in told, "a listener is told")


def test_restores_are_shown_in_lines_and_tables() -> None:
    assert line_of(figures(counts=(50, 200))).endswith("restoring counts 25%")
    assert table_of(figures(counts=(50, 200))).row_count == table_of(figures()).row_count + 1


def test_a_watcher_follows_by_itself_while_an_epoch_runs() -> None:
    stream = io.StringIO()
    with Watcher(stream) as watcher, watcher.following(lambda: figures(counts=(50, 200))):
        until(lambda: "restoring counts 25%" in stream.getvalue(), "a line is shown")
