"""What workers of Spark say when Spark ends: nothing; and about everything else, what PySpark's say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark import daemon

from millstream.engine.spark.worker_path.millstream_worker_daemon import QuietTraceback, quiet_print


def said_about(error: BaseException, capsys: pytest.CaptureFixture[str], say: Callable[[], None]) -> str:
    try:
        raise error  # noqa: TRY301 - as short as that
    except BaseException:  # noqa: BLE001 - as the daemon does
        say()
    return capsys.readouterr().err


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(), EOFError()])
def test_the_end_of_spark_is_not_told(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert said_about(error, capsys, QuietTraceback.print_exc) == ""


def test_everything_else_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_about(ValueError("bad"), capsys, QuietTraceback.print_exc)
    assert said.startswith("Traceback (most recent call last):")
    assert said.endswith("ValueError: bad\n")
    quiet_print("a word")
    assert capsys.readouterr().out == "a word\n"


def test_pyspark_s_daemon_still_tells_by_these_names() -> None:
    """The daemon is taught to be quiet by replacing them."""
    names = daemon.worker.__code__.co_names + daemon.manager.__code__.co_names
    assert {"traceback", "print"} <= set(names)
