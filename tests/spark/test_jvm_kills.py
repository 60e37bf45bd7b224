"""The JVM dies while Spark is started: the start is tried again, or the application ends with one message."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from py4j import clientserver, java_gateway
from py4j.protocol import Py4JNetworkError
from pyspark.accumulators import AccumulatorTCPServer
from tests.spark.lab import Lab
from tests.spark.processes import FAREWELL, Child, until
from tests.spark.programs import check_exact, one_level, words

from millstream import State
from millstream.engine.spark.failures import not_started
from millstream.engine.spark.jvm_loss import log_jvm_loss_at_debug

pytestmark = pytest.mark.xdist_group("spark")

NOT_STARTED = (
    "Application 'app' could not start: Spark's JVM ended while it was being started. Likely cause: it was "
    "killed, for example for lack of memory, or Java refused an option in config.spark_settings and has said "
    "so above. Remedy: see that there is memory for the JVM (`spark.driver.memory` in config.spark_settings) "
    "and start the application again; it goes on from its last commit."
)
AGAIN = (
    "Application 'app' could not start: Spark's JVM ended while it was being started. "
    "Application 'app' is started again from its last commit ({} of at most {} times)."
)
INTERRUPTED = (
    "Epoch 3 of application 'app' was interrupted: Spark is gone. Nothing of the epoch is visible. "
    "Application 'app' is started again from its last commit (1 of at most 2 times)."
)
SETTINGS: dict[str, Any] = {"max_records_per_epoch": 20}


def lines_of(child: Child) -> list[str]:
    """What the child and its JVMs said, but for the epochs, and for a start that takes long."""
    said = FAREWELL.sub("", child.said())
    left_out = re.compile(r"epoch \d+|Application 'app' waits for Spark to give it a core: .*")
    return [line for line in said.splitlines() if not left_out.fullmatch(line)]


def test_a_jvm_killed_while_spark_is_started_is_replaced(bare_lab: Lab) -> None:
    bare_lab.topic("in", parts := words(100, seed=41))
    kills = ["launch", "context"]
    with Child(bare_lab, "two_levels", jvm_kills=kills, max_restarts=2, **SETTINGS) as child:
        assert child.wait() == 0, child.said()
        assert lines_of(child) == [
            "created -> rebalancing",
            "the JVM is killed: launch",
            AGAIN.format(1, 2),
            "the JVM is killed: context",
            AGAIN.format(2, 2),
            "rebalancing -> running",
            "running -> pending shutdown",
            "pending shutdown -> not running",
        ]
    check_exact(bare_lab, "two_levels", parts)


def test_a_jvm_killed_while_spark_is_started_again_is_replaced(bare_lab: Lab) -> None:
    bare_lab.topic("in", parts := words(100, seed=42))
    kills = ["epoch", "slots"]
    with Child(bare_lab, "two_levels", jvm_kills=kills, max_restarts=2, **SETTINGS) as child:
        assert child.wait() == 0, child.said()
        assert lines_of(child) == [
            "created -> rebalancing",
            "rebalancing -> running",
            "the JVM is killed: epoch",
            INTERRUPTED,
            "running -> rebalancing",
            "the JVM is killed: slots",
            AGAIN.format(2, 2),
            "rebalancing -> running",
            "running -> pending shutdown",
            "pending shutdown -> not running",
        ]
    check_exact(bare_lab, "two_levels", parts)


def test_a_jvm_that_is_killed_too_often_ends_the_application_with_one_message(bare_lab: Lab) -> None:
    bare_lab.topic("in", words(100, seed=43))
    with Child(bare_lab, "two_levels", jvm_kills=["launch", "gateway"], max_restarts=1, **SETTINGS) as child:
        assert child.wait() == 1, child.said()
        lines = lines_of(child)
    traceback = lines.index("Traceback (most recent call last):")  # Python's own: nobody caught the error
    assert lines[:traceback] == [
        "created -> rebalancing",
        "the JVM is killed: launch",
        AGAIN.format(1, 1),
        "the JVM is killed: gateway",
        "rebalancing -> error",
    ]
    assert lines[-1] == f"millstream.engine.spark.failures.SparkGoneError: {NOT_STARTED}"
    assert [line for line in lines[traceback + 1 :] if not line.startswith("  ")] == lines[-1:]
    assert "py4j" not in child.said().lower()
    assert bare_lab.committed() == 0


def test_in_the_background_it_is_one_line_of_the_log(
    bare_lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = bare_lab.app(one_level(), max_restarts=0)

    def fail(**_: object) -> None:
        raise not_started("app")

    monkeypatch.setattr(app._loop, "open", fail)
    app.start()
    until(lambda: app.state is State.ERROR, "the application fails")
    assert app._thread is not None
    app._thread.join()
    told = [(record.getMessage(), record.exc_info) for record in caplog.records]
    assert told == [(f"Application 'app' has ended: {NOT_STARTED}", None)]


@pytest.mark.parametrize("logger", [java_gateway.logger, clientserver.logger], ids=["gateway", "client"])
def test_what_py4j_says_about_a_dead_jvm_goes_to_the_debug_log(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log_jvm_loss_at_debug()
    caplog.set_level(logging.INFO)
    lost, other = Py4JNetworkError("Answer from Java side is empty"), ValueError("no such method")
    logger.info("Error while sending or receiving.", exc_info=lost)
    logger.error("There was an exception", exc_info=other)
    assert [record.getMessage() for record in caplog.records] == ["There was an exception"]
    caplog.set_level(logging.DEBUG, "millstream")
    logger.error("Exception while sending command.", exc_info=lost)
    assert caplog.record_tuples[1:] == [
        ("millstream", logging.DEBUG, "py4j: Exception while sending command.")
    ]


def test_py4j_does_not_set_up_the_logging_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    log_jvm_loss_at_debug()
    monkeypatch.setattr(logging, "basicConfig", lambda **_: pytest.fail("logging was set up"))
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    java_gateway.logging.exception("Exception while sending command.", exc_info=EOFError())


def test_what_the_accumulator_server_says_about_a_dead_jvm_goes_to_the_debug_log(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    log_jvm_loss_at_debug()
    caplog.set_level(logging.DEBUG, "millstream")
    server = AccumulatorTCPServer.__new__(AccumulatorTCPServer)
    assert handled(EOFError(), server.handle_error) == "EOFError"
    assert [record.getMessage() for record in caplog.records] == ["PySpark's accumulator server lost the JVM"]
    assert capsys.readouterr().err == ""
    assert handled(ValueError("a wrong token"), server.handle_error) == "ValueError"
    assert "ValueError: a wrong token" in capsys.readouterr().err


def handled(error: Exception, handle_error: Callable[..., None]) -> str:
    """Handle an error as `socketserver` does: while it is the current one."""
    try:
        raise error
    except (EOFError, ValueError):
        handle_error(None, ("localhost", 0))
    return type(error).__name__
