"""Worker processes are made ready before the first epoch: they import and unpack what they will need.

They say where they are, too: Spark decides that, and tasks are placed by it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from millstream.engine.spark.failures import not_ready
from millstream.engine.spark.homes import held_checkpoints
from millstream.engine.spark.node import node_name, tags_here
from millstream.engine.spark.session import is_alive
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.stage_function import MakeWorker
from millstream.errors import MillstreamError
from millstream.state.local.directory import Checkpoint


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """A slot as it says of itself."""

    instance: str
    executor: tuple[str, int]
    """Its host and the process that forks its workers: each executor has its own."""
    node: str
    """The host as standbys see it."""
    tags: Mapping[str, str]
    held: Mapping[str, Checkpoint]
    """The tasks whose state is there, and where their stores stand."""


def warm_up(
    context: SparkContext, slots: Slots, make_worker: MakeWorker, application_id: str
) -> list[SlotInfo]:
    """Make a worker wherever there is a slot. What is wrong with such a place is raised as it was there."""
    try:
        return ask_slots(slots, make_worker)
    except (Py4JError, PySparkException) as error:
        if not is_alive(context):
            raise
        raise not_ready(application_id, error) from error


def ask_slots(slots: Slots, make_worker: MakeWorker) -> list[SlotInfo]:
    """Where each slot is. The first job on the slots' rows: it puts them in place."""
    said: list[SlotInfo] = []
    for answer in slots.rows.mapPartitions(_Warm(make_worker)).collect():
        if isinstance(answer, MillstreamError):
            raise answer
        said.append(answer)
    return said


@dataclass(frozen=True, slots=True)
class _Warm:
    make_worker: MakeWorker

    def __call__(self, rows: Iterator[object]) -> list[SlotInfo | MillstreamError]:
        """Tell our own errors and don't raise them: Spark would try again, and then bury them."""
        for _ in rows:
            pass
        try:
            worker = self.make_worker()
            executor = (socket.gethostname(), os.getppid())
            instance, held = worker.directory.instance_id, held_checkpoints(worker)
            return [SlotInfo(instance, executor, node_name(), tags_here(), held)]
        except MillstreamError as error:
            return [error]
