"""`StreamsConfig`: all settings of an application, in one frozen dataclass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

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
    commit_interval_ms
        How long an epoch that found little to do waits for more: the trigger interval.
    max_records_per_epoch
        How many records of each source partition an epoch takes at most.
    offset_reset
        Where a source that was never read begins: "earliest" or "latest".
    state_dir
        Where local state is kept, on a disk of each host.
    backend
        Which store backend keeps it: "lmdb", "rocksdb", "memory", or a supplier of your own.
    default_partitions
        Of topics that the application writes to and that do not exist yet.
    max_epoch_retries
        How often a failed epoch is run again before the uncaught exception handler is asked.
    lease_ttl_ms
        How long another machine waits for a driver that says nothing before it takes over.
    tick_ms
        The step of the wall clock that punctuators see.
    spark_settings
        More settings for the Spark that Millstream makes when none is given.

    >>> from millstream import StreamsConfig
    >>> StreamsConfig(dead_letter_topic="bad-records").dead_letter_topic
    'bad-records'
    """

    deserialization_handler: handlers.Handler = handlers.fail
    processing_handler: handlers.Handler = handlers.fail
    production_handler: handlers.Handler = handlers.fail
    dead_letter_topic: str | None = None
    timestamp_extractor: timestamps.TimestampExtractor = timestamps.fail_on_invalid_timestamp
    commit_interval_ms: int = 100
    max_records_per_epoch: int = 100_000
    offset_reset: Literal["earliest", "latest"] = "earliest"
    state_dir: Path = Path("millstream-state")
    backend: Any = "lmdb"
    default_partitions: int = 1
    max_epoch_retries: int = 3
    lease_ttl_ms: int = 30_000
    tick_ms: int = 1_000
    spark_settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (
            "commit_interval_ms",
            "max_records_per_epoch",
            "default_partitions",
            "lease_ttl_ms",
            "tick_ms",
        ):
            _check_at_least(name, getattr(self, name), 1)
        _check_at_least("max_epoch_retries", self.max_epoch_retries, 0)
        if self.offset_reset not in {"earliest", "latest"}:
            message = f"offset_reset is {self.offset_reset!r}. Remedy: use 'earliest' or 'latest'"
            raise ConfigError(message)
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


def _check_at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        message = f"{name} is {value!r}, but it must be a whole number of at least {least}"
        raise ConfigError(message)


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
