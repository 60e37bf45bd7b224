"""Streaming queries that write frames to the topics that an application reads.

One query per frame, with its checkpoint in the application's own folder. Its sink is the data source
``millstream``, which commits each batch once, by its number (:mod:`millstream.commit.batch_writes`). So the
topic has every row of the frame exactly once, wherever driver or tasks die, as far as the source of the frame
replays what it gave: what was committed is never asked for again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from millstream.commit.application_storage import ApplicationStorage
from millstream.durable import ensure_private_folder
from millstream.engine.spark.failures import shortened
from millstream.errors import ConfigError, MillstreamError
from millstream.log import FileLog, TopicConfig, TopicPartition
from millstream.topology.frame_sources import FrameSource
from millstream.types import Partition

_LOGGER = logging.getLogger("millstream")
_LOOK_S: Final = 0.2


class FrameQueryError(MillstreamError):
    """The streaming query that feeds a topic has failed."""


class FrameQueries:
    """The queries of one application."""

    def __init__(
        self,
        storage: ApplicationStorage,
        log: FileLog,
        sources: Sequence[FrameSource],
        default_partitions: int,
    ) -> None:
        self._storage = storage
        self._log = log
        self._sources = sources
        self._default_partitions = default_partitions
        self._running: list[tuple[FrameSource, Any]] = []
        self._changing = threading.Lock()

    @property
    def session(self) -> Any:
        """The session of the frames: a process has one Spark."""
        return self._sources[0].frame.sparkSession

    def create_topics(self) -> None:
        """Make the topics that the frames are written to."""
        for source in self._sources:
            known = self._log.topics() if (self._log.root / "topics").is_dir() else []
            if source.topic not in known:
                self._log.create_topic(
                    source.topic, TopicConfig(source.partitions or self._default_partitions)
                )

    def run_available(self, is_stopped: Callable[[], bool]) -> None:
        """Write what the sources have now, and no more."""
        for source in self._sources:
            query = self._start(source, {"availableNow": True})
            while not is_stopped() and query.isActive:
                with suppress(Exception):  # it is told by _check
                    query.awaitTermination(_LOOK_S)
            if is_stopped():
                query.stop()
            _check(source, query)

    def start(self) -> None:
        """Write what comes, beside the epochs, until `stop`."""
        with self._changing:
            if not self._running:
                self._running = [
                    (source, self._start(source, {"processingTime": "0 seconds"})) for source in self._sources
                ]

    def check(self) -> None:
        """Raise if a query has failed."""
        for source, query in self._running:
            if not query.isActive:
                _check(source, query)

    def stop(self) -> None:
        """End the queries; each goes on where it was when it is started again."""
        with self._changing:
            running, self._running = self._running, []
        for source, query in running:
            try:
                query.stop()
            except Exception as error:  # noqa: BLE001 - Spark may be gone, and then so is the query
                _LOGGER.debug("The query of %r did not end: %s", source.topic, error)

    def _start(self, source: FrameSource, trigger: dict[str, Any]) -> Any:
        from millstream.engine.spark.datasource.source import register  # noqa: PLC0415 - imports Spark's SQL

        self._refuse_other_writers(source)
        register(source.frame.sparkSession)
        folder = self._storage.path / "frames" / source.topic
        ensure_private_folder(folder)
        return (
            source.frame.writeStream.format("millstream")
            .option("log", self._log.address)
            .option("topic", source.topic)
            .option("checkpointLocation", str((folder / "checkpoint").resolve()))
            .queryName(f"{self._storage.application_id}: {source.topic}")
            .trigger(**trigger)
            .start()
        )

    def _refuse_other_writers(self, source: FrameSource) -> None:
        """Two queries that do not know each other would mix their rows."""
        mark = self._storage.path / "frames" / source.topic
        if mark.is_dir():
            return
        for number in range(self._log.config(source.topic).partitions):
            place = TopicPartition(source.topic, Partition(number))
            if self._log.latest(place):
                raise ConfigError(
                    f"Topic {source.topic!r} has records already that application "
                    f"{self._storage.application_id!r} has not written. Likely cause: another application "
                    "has a stream_from() of the same name. Remedy: stream_from(..., topic='...') of this "
                    "application's own"
                )


def _check(source: FrameSource, query: Any) -> None:
    error = query.exception()
    if error is not None:
        raise FrameQueryError(
            f"The streaming query that writes topic {source.topic!r} has failed: {shortened(error)}. What it "
            "has committed is in the topic, and it goes on from there when the application is started "
            "again. Likely cause: the source of the frame, or a row that can't be written"
        )
