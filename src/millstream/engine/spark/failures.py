"""Failures of the machinery that carries an epoch: told briefly, with what is known of the cause."""

from __future__ import annotations

import re

from millstream.engine.api import EpochFailedError
from millstream.errors import MillstreamError

_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*$", re.MULTILINE)
_LONGEST = 2_000
_GO_ON = (
    "Remedy: see that there is memory for the JVM (`spark.driver.memory` in config.spark_settings) and start "
    "the application again; it goes on from its last commit."
)


class SparkGoneError(EpochFailedError):
    """Spark has ended, or its JVM was killed."""


class WorkersNotReadyError(MillstreamError):
    """Spark could not start the processes that run tasks, or they could not load the program."""


def not_started(application_id: str) -> SparkGoneError:
    """The error to raise when the JVM died before Spark was ready."""
    return SparkGoneError(
        f"Application {application_id!r} could not start: Spark's JVM ended while it was being started. "
        "Likely cause: it was killed, for example for lack of memory, or Java refused an option in "
        f"config.spark_settings and has said so above. {_GO_ON}"
    )


def not_ready(application_id: str, error: Exception) -> WorkersNotReadyError:
    """The error to raise when there are no workers to begin with."""
    return WorkersNotReadyError(
        f"Application {application_id!r} could not start: its workers failed with: {shortened(error)}. "
        "Likely cause: what the program imports or opens is not there where Spark runs it."
    )


def waited_in_vain(application_id: str, seconds: float, last: Exception | None) -> WorkersNotReadyError:
    """The error to raise when Spark gives no core to run tasks on, and how a slot has failed last."""
    failure = "" if last is None else f" The last failure: {shortened(last)}"
    return WorkersNotReadyError(
        f"Application {application_id!r} has no slot to run tasks in, after {seconds:.0f} s. Likely cause: "
        "no executor has registered, or other jobs hold all cores. Remedy: give it cores, and start it again."
        f"{failure}"
    )


def given_up(what: str, error: Exception, tries: int, *, spark_is_alive: bool) -> EpochFailedError:
    """The error to raise when an epoch, or the planning of one, is not run again."""
    if not spark_is_alive:
        return SparkGoneError(
            f"{what} was interrupted: Spark is gone. Nothing of the epoch is visible. Likely cause: its JVM "
            f"was killed, for example for lack of memory, or the session was stopped. {_GO_ON}"
        )
    return EpochFailedError(
        f"{what} failed {tries} times; nothing of it is visible. The last failure: {shortened(error)}"
    )


def shortened(error: Exception) -> str:
    r"""The line of a long Java and Python stack trace that matters.

    >>> shortened(Exception("Job aborted\n  at Scheduler.java\nOSError: No space left on device\n"))
    'OSError: No space left on device'
    """
    text = str(error)
    python = _PYTHON_ERROR.findall(text)
    return (python[-1] if python else text)[:_LONGEST]
