"""What to do about a bad record: fail, skip it, or send it to the dead-letter topic.

A handler is a function of an `ErrorContext` and the exception; it answers with a `Verdict`. Three are
ready made and one is set for each kind of error in `StreamsConfig`. A record that is too late for its windows
goes to one as well:

>>> from millstream import StreamsConfig, handlers
>>> config = StreamsConfig(
...     deserialization_handler=handlers.dead_letter,
...     processing_handler=handlers.skip,
...     late_record_handler=handlers.dead_letter,
...     dead_letter_topic="bad-records",
... )
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.record import Headers


class ErrorKind(Enum):
    """Where a record failed."""

    DESERIALIZATION = "deserialization"
    PROCESSING = "processing"
    PRODUCTION = "production"
    LATE_RECORD = "late_record"
    """It did not fail: it came too late for its windows."""


class Verdict(Enum):
    """What to do."""

    FAIL = "fail"
    """The epoch fails. Nothing of it becomes visible."""
    CONTINUE = "continue"
    """Go on without the record and count it. What it did before the failing node stays done."""
    DEAD_LETTER = "dead letter"
    """Like `CONTINUE`, and the source record goes to the dead-letter topic, in the same commit."""


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """The record that failed, and where. The source's parts are None if no input record is to blame."""

    kind: ErrorKind
    node: str
    task_id: str
    topic: str | None
    partition: int | None
    offset: int | None
    key: Any
    """The key at the node that failed."""
    timestamp: int | None
    headers: Headers
    source_key: bytes | None
    source_value: bytes | None
    site: str = ""
    """The line of the program that added the operator."""


Handler = Callable[[ErrorContext, Exception], Verdict]


def fail(context: ErrorContext, error: Exception) -> Verdict:
    """Fail the epoch (the default).

    >>> from millstream import handlers
    >>> handlers.fail(None, ValueError())
    <Verdict.FAIL: 'fail'>
    """
    del context, error
    return Verdict.FAIL


def skip(context: ErrorContext, error: Exception) -> Verdict:
    """Go on without the record and count it.

    >>> from millstream import handlers
    >>> handlers.skip(None, ValueError())
    <Verdict.CONTINUE: 'continue'>
    """
    del context, error
    return Verdict.CONTINUE


def dead_letter(context: ErrorContext, error: Exception) -> Verdict:
    """Go on without the record, count it, and keep it in the dead-letter topic.

    >>> from millstream import handlers
    >>> handlers.dead_letter(None, ValueError())
    <Verdict.DEAD_LETTER: 'dead letter'>
    """
    del context, error
    return Verdict.DEAD_LETTER
