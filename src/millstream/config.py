"""`StreamsConfig`: all settings of an application, in one frozen dataclass."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream import handlers, timestamps
from millstream.errors import ConfigError

_APPLICATION_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """Settings of an application.

    deserialization_handler, processing_handler, production_handler
        What to do about a record that can't be read, that a function of yours fails on, or that can't
        be written: see `millstream.handlers`.
    dead_letter_topic
        Where `handlers.dead_letter` sends records.
    timestamp_extractor
        Where event time comes from, for sources that say nothing else: see `millstream.timestamps`.

    >>> from millstream import StreamsConfig
    >>> StreamsConfig(dead_letter_topic="bad-records").dead_letter_topic
    'bad-records'
    """

    deserialization_handler: handlers.Handler = handlers.fail
    processing_handler: handlers.Handler = handlers.fail
    production_handler: handlers.Handler = handlers.fail
    dead_letter_topic: str | None = None
    timestamp_extractor: timestamps.TimestampExtractor = timestamps.fail_on_invalid_timestamp

    def __post_init__(self) -> None:
        for kind in handlers.ErrorKind:
            field = f"{kind.value}_handler"
            handler = getattr(self, field)
            if not callable(handler):
                message = (
                    f"{field} is {handler!r}, which can't be called. Remedy: use one of millstream.handlers"
                )
                raise ConfigError(message)
            if handler is handlers.dead_letter and self.dead_letter_topic is None:
                message = (
                    f"{field} is handlers.dead_letter, but there is no dead_letter_topic. Remedy: set one"
                )
                raise ConfigError(message)

    def handler_of(self, kind: handlers.ErrorKind) -> handlers.Handler:
        """The handler of a kind of error.

        >>> from millstream import StreamsConfig, handlers
        >>> StreamsConfig().handler_of(handlers.ErrorKind.PROCESSING) is handlers.fail
        True
        """
        handler: handlers.Handler = getattr(self, f"{kind.value}_handler")
        return handler


def check_application_id(application_id: str) -> str:
    """The id itself, if it can name folders and topics.

    >>> check_application_id("word-count")
    'word-count'
    """
    if not _APPLICATION_ID.fullmatch(application_id):
        message = (
            f"{application_id!r} can't be an application id: it names folders and topics. "
            "Remedy: use letters, digits, '.', '_' and '-', at most 200 of them"
        )
        raise ConfigError(message)
    return application_id
