"""`Streams.run(until=...)`: what is an end, and what is refused before anything is started."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream import State, Streams, StreamsBuilder
from millstream.errors import ConfigError
from millstream.until import seconds_to_run


def copying(folder: Path) -> Streams:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return Streams(builder.build(), app_id="copy", log=folder / "log")


@pytest.mark.parametrize(
    ("until", "seconds"),
    [
        (3, 3.0),
        (0, 0.0),
        (0.25, 0.25),
        (timedelta(milliseconds=1500), 1.5),
        ("caught-up", None),
        (None, None),
        (lambda _: True, None),
    ],
)
def test_a_number_is_in_seconds_and_only_time_has_a_length(until: object, seconds: float | None) -> None:
    assert seconds_to_run(until) == seconds


@pytest.mark.parametrize("until", ["caughtup", "caught_up", "Caught-Up", "catched-up"])
def test_a_near_miss_is_refused_with_the_right_word(tmp_path: Path, until: Any) -> None:
    app = copying(tmp_path)
    with pytest.raises(ConfigError, match="Did you mean 'caught-up'"):
        app.run(until=until)
    assert app.state is State.CREATED


@pytest.mark.parametrize(
    "until",
    ["for ever", True, False, -1, -0.5, float("nan"), float("inf"), timedelta(seconds=-1), b"caught-up", [3]],
)
def test_what_is_no_end_is_refused_without_a_guess(tmp_path: Path, until: Any) -> None:
    app = copying(tmp_path)
    with pytest.raises(ConfigError, match="use 'caught-up', seconds") as refused:
        app.run(until=until)
    assert "Did you mean" not in str(refused.value)
    assert app.state is State.CREATED
