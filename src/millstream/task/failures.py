"""Bad records: ask the handler, count, and keep dead letters for the commit."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.config import StreamsConfig
from millstream.errors import ConfigError, LateRecordError, MillstreamError, ProcessingError, ProductionError
from millstream.handlers import ErrorContext, ErrorKind, Verdict
from millstream.processors.batch import OrderKey
from millstream.processors.columns.column import Column
from millstream.processors.operator_chain import GENERATED
from millstream.record import Headers
from millstream.task.metrics import Metrics
from millstream.task.records import OutputBatch

_PACKAGE = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True, slots=True)
class _DeadLetter:
    order: OrderKey
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class Failures:
    """One task's dealings with bad records."""

    def __init__(self, config: StreamsConfig, task_id: str, metrics: Metrics) -> None:
        self._config = config
        self._task_id = task_id
        self._metrics = metrics
        self._letters: list[_DeadLetter] = []
        self._late: set[tuple[str, str | None, int | None, int | None]] = set()
        """Where each late record has a letter of this epoch already."""

    def handle(self, context: ErrorContext, error: Exception, order: OrderKey) -> None:
        """Raise, or return to go on without the record."""
        verdict = self._config.handler_of(context.kind)(context, error)
        if verdict is Verdict.FAIL:
            raise explained(context, error) from error
        if not isinstance(verdict, Verdict):
            raise ConfigError(
                f"the {context.kind.value} handler answered {verdict!r}. Remedy: return a handlers.Verdict"
            ) from error
        if context.kind is not ErrorKind.LATE_RECORD:
            self._metrics.add(self._task_id, context.node, "records-dropped", 1)
        if verdict is Verdict.DEAD_LETTER and not self._has_letter(context):
            self._letters.append(_dead_letter(context, error, order))

    def _has_letter(self, context: ErrorContext) -> bool:
        """Whether a late record has its letter: several rows that were made of it may be late."""
        record = (context.node, context.topic, context.partition, context.offset)
        if context.kind is not ErrorKind.LATE_RECORD or context.topic is None:
            return False
        is_known = record in self._late
        self._late.add(record)
        return is_known

    def mark(self) -> int:
        """Where the dead letters end now."""
        return len(self._letters)

    def reset_to(self, mark: int) -> None:
        """Forget the dead letters since a mark, which was made before the epoch's first row."""
        del self._letters[mark:]
        self._late.clear()

    def take_dead_letters(self) -> OutputBatch | None:
        """The dead letters since the last call, in the order of their records."""
        letters, self._letters = sorted(self._letters, key=lambda letter: letter.order), []
        self._late.clear()
        if not letters:
            return None
        topic = self._config.dead_letter_topic
        if topic is None:
            message = (
                "a handler answered DEAD_LETTER, but there is no dead_letter_topic. "
                "Remedy: set one in StreamsConfig"
            )
            raise ProcessingError(message)
        return OutputBatch(
            topic=topic,
            keys=Column([letter.key for letter in letters]),
            values=Column([letter.value for letter in letters]),
            timestamps=Column([letter.timestamp for letter in letters]),
            headers=[letter.headers for letter in letters],
            partitions=None,
        )


def explained(context: ErrorContext, error: Exception) -> MillstreamError:
    """The error to show the user: where it happened, on which record, and what was raised."""
    if isinstance(error, MillstreamError) and context.kind is ErrorKind.DESERIALIZATION:
        return error  # it names the record itself
    where = (
        f"topic {context.topic!r}, partition {context.partition}, offset {context.offset}"
        if context.topic is not None
        else "no input record (a punctuator was running)"
    )
    if context.kind is ErrorKind.LATE_RECORD:
        return LateRecordError(
            f"operator {context.node!r} of task {context.task_id}: {error}\n"
            f"  record: {where}, key {_short(context.key)}\n"
            f"  added at {context.site}\n"
            "  Remedy: give the windows a longer grace, or choose a late_record_handler that skips or "
            "dead-letters such records."
        )
    message = (
        f"operator {context.node!r} of task {context.task_id} failed: {type(error).__name__}: {error}\n"
        f"  record: {where}, key {_short(context.key)}, timestamp {context.timestamp}\n"
        f"{_user_lines(error)}"
        f"  added at {context.site}\n"
        f"  Remedy: mend the function, or choose a {context.kind.value}_handler that skips or dead-letters "
        "such records."
    )
    if context.kind is not ErrorKind.PRODUCTION:
        return ProcessingError(message)
    return type(error)(message) if isinstance(error, MillstreamError) else ProductionError(message)


def _dead_letter(context: ErrorContext, error: Exception, order: OrderKey) -> _DeadLetter:
    text = "".join(traceback.format_exception(error))
    described = {
        "exception": type(error).__name__,
        "message": str(error),
        "stacktrace": text,
        "topic": context.topic or "",
        "partition": "" if context.partition is None else str(context.partition),
        "offset": "" if context.offset is None else str(context.offset),
    }
    if context.kind is ErrorKind.LATE_RECORD:
        described["operator"] = context.node
    headers = tuple((f"__streams.errors.{name}", value.encode()) for name, value in described.items())
    return _DeadLetter(
        order, context.source_key, context.source_value, context.timestamp or 0, (*context.headers, *headers)
    )


def _user_lines(error: Exception) -> str:
    """The frames of the traceback that are not this package's."""
    frames: Sequence[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
    lines = [
        f"  at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}\n"
        for frame in frames
        if not frame.filename.startswith((_PACKAGE, GENERATED))
    ]
    return "".join(lines[-5:])


def _short(key: object) -> str:
    text = repr(key)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004 - a line's worth
