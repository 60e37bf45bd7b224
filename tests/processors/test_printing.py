"""`print()`."""

from __future__ import annotations

import io

import pytest

from millstream.processors.printing import PrintLine


def test_a_line_is_label_key_and_value() -> None:
    file = io.StringIO()
    PrintLine("orders", file, None)("k", 1)
    assert file.getvalue() == "[orders]: k, 1\n"


def test_a_mapper_writes_its_own_text() -> None:
    file = io.StringIO()
    PrintLine("orders", file, lambda key, value: f"{key}={value}")("k", None)
    assert file.getvalue() == "[orders]: k=None\n"


def test_without_a_file_it_is_standard_output_as_it_is_then(capsys: pytest.CaptureFixture[str]) -> None:
    PrintLine("orders", None, None)("k", 1)
    assert capsys.readouterr().out == "[orders]: k, 1\n"
