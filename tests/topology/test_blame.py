"""Errors point at the user's line, not into the library."""

from __future__ import annotations

from millstream.topology.blame import call_site, on_behalf_of


def test_the_call_site_is_the_line_outside_the_package() -> None:
    assert call_site().startswith(f"{__file__}:")


def test_a_fixed_site_wins_while_it_lasts() -> None:
    with on_behalf_of("program.py:7"):
        assert call_site() == "program.py:7"
    assert call_site() != "program.py:7"
