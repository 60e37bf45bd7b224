"""What a run leaves on the screen when it ends."""

from __future__ import annotations

from io import StringIO

import pytest

from millstream.console import Figures
from millstream.run_screen import RunScreen


@pytest.mark.parametrize(
    ("state", "lag", "end"),
    [
        ("running", {"lines": 0}, "caught up"),
        ("running", {"lines": 4}, "stopped"),
        ("rebalancing", {}, "stopped"),  # ended while it started: nobody knows what is waiting
    ],
)
def test_the_last_line_says_how_it_ended(state: str, lag: dict[str, int], end: str) -> None:
    stream = StringIO()
    figures = Figures("words", state, 3, 7, 0.0, 0.0, lag, {})
    with RunScreen(lambda: figures, what_starts="Spark", stream=stream, clock=lambda: 5.0):
        pass
    assert stream.getvalue().splitlines()[-1] == f"words: {end}, 0 records in 0.0 s, epoch 3"
