"""The Spark that an engine works with: made here or given, checked, replaced when its JVM has died."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from millstream.commit.reports import EpochMismatchError, WrongInstanceError
from millstream.durable import DiskFullError
from millstream.engine.program import Program
from millstream.engine.spark.failures import SparkGoneError, given_up, not_started
from millstream.engine.spark.jvm_loss import log_jvm_loss_at_debug
from millstream.engine.spark.packing import pack
from millstream.engine.spark.program_broadcast import WorkerBroadcast, broadcast
from millstream.engine.spark.session import (
    check_context,
    check_settings,
    context_of,
    forget_dead_context,
    is_alive,
    make_context,
)
from millstream.errors import MillstreamError

_LOGGER = logging.getLogger("millstream")

RUN_AGAIN: Final = (
    EpochMismatchError,
    WrongInstanceError,
    DiskFullError,
    Py4JError,
    PySparkException,
    OSError,
)
"""Failures of the machinery: the same epoch may well succeed when it is run again."""

_FEW_RECORDS: Final = 1_000_000
"""A run that ends after so many has no use for a JVM that takes its time to become fast."""
_CANCEL_EVERY_S: Final = 0.2
"""Between two calls there may be no job to cancel, and the next one on its way."""


class AttachedSpark:
    """A SparkContext for the life of an engine. If `spark` is None, it makes one and ends it."""

    def __init__(self, program: Program, spark: Any) -> None:
        self._program = program
        self._packed = b""
        self._is_short_run = False
        self._application_id = program.application_id
        self._config = program.config
        self._spark = spark
        self._context: SparkContext | None = None
        self._is_cancelled = False

    @property
    def is_given(self) -> bool:
        """Whether the Spark is the user's own."""
        return self._spark is not None

    @property
    def context(self) -> SparkContext:
        """The context."""
        assert self._context is not None  # attach() comes first
        return self._context

    def check(self) -> None:
        """See `Engine.check`: a program that can't be sent to workers is found before Spark is started."""
        if self._context is not None:
            return
        self._packed = pack(self._program)
        if self._spark is None:
            check_settings(self._config.spark_settings)
            self._program.check_place()
        else:
            context_of(self._spark)

    def expect_records(self, count: int) -> None:
        """See `Engine.expect_records`."""
        self._is_short_run = count <= _FEW_RECORDS

    def broadcast(self) -> WorkerBroadcast:
        """Send the program to wherever there are workers."""
        packed, self._packed = self._packed or pack(self._program), b""
        return broadcast(self.context, packed)

    def attach(self) -> bool:
        """Get a Spark that is alive; whether it is another one than before."""
        if self._context is not None and not is_alive(self._context):
            self._forget()
        if self._context is not None:
            return False
        if self._spark is None:
            settings = self._config.spark_settings
            self._context = make_context(self._application_id, settings, is_short_run=self._is_short_run)
            return True
        log_jvm_loss_at_debug()
        context = context_of(self._spark)
        if not is_alive(context):
            raise SparkGoneError(
                f"The Spark session that application {self._application_id!r} was given has ended. Remedy: "
                "make a new one and a new Streams object; the application goes on from its last commit."
            )
        check_context(context)
        self._context = context
        return True

    def failure_of_start(self, error: Exception) -> Exception:
        """The error to raise when an engine could not be opened."""
        context = self._context
        if isinstance(error, MillstreamError) or context is None or is_alive(context):
            return error
        _LOGGER.debug("The JVM died while Spark was made ready", exc_info=error)
        return not_started(self._application_id)

    def check_goes_on(
        self, what: str, error: Exception, tries: int, run_again: tuple[type[Exception], ...] = RUN_AGAIN
    ) -> None:
        """Raise, unless what has failed so many times may succeed when it is run again."""
        if not is_alive(self.context):
            _LOGGER.debug("Spark is gone", exc_info=error)
            raise given_up(what, error, tries, spark_is_alive=False) from None
        if self._is_cancelled or not isinstance(error, run_again):
            raise error
        if tries > self._config.max_epoch_retries:
            raise given_up(what, error, tries, spark_is_alive=True) from error

    def cancel_jobs(self, group: str) -> bool:
        """Cancel the jobs of a group, from now until Spark is let go of; False if there is none yet.

        In a thread of its own: the one that waits for a job holds its connection to the JVM.
        """
        context = self._context
        if context is None:
            return False
        self._is_cancelled = True
        args = (context, group)
        threading.Thread(
            target=self._keep_cancelling, args=args, name="millstream-cancel", daemon=True
        ).start()
        return True

    def _keep_cancelling(self, context: SparkContext, group: str) -> None:
        if not self.is_given:  # it is ended next: what it says of its broken tasks helps nobody
            with suppress(Exception):
                context.setLogLevel("OFF")
        while self._context is context:
            with suppress(Exception):  # Spark may be gone, or going
                context.cancelJobGroup(group)
            time.sleep(_CANCEL_EVERY_S)

    def is_alive(self) -> bool:
        """Whether there is a Spark, and it answers."""
        return self._context is not None and is_alive(self._context)

    def detach(self) -> None:
        """Let go of it, and end it if it was made here."""
        context = self._context
        if context is None:
            return
        if not is_alive(context):
            self._forget()
            return
        self._context = None
        if self._spark is None:
            context.stop()

    def _forget(self) -> None:
        context, self._context = self._context, None
        if self._spark is None and context is not None:
            forget_dead_context(context)
