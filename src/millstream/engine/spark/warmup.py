"""Worker processes are made ready before the first epoch: they import and unpack what they will need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from millstream.engine.spark.failures import not_ready
from millstream.engine.spark.session import is_alive
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.stage_function import MakeWorker
from millstream.errors import MillstreamError


def warm_up(context: SparkContext, slots: Slots, make_worker: MakeWorker, application_id: str) -> None:
    """Make a worker wherever there is a slot. What is wrong with such a place is raised as it was there."""
    try:
        answers = slots.rows.mapPartitions(_Warm(make_worker)).collect()
    except (Py4JError, PySparkException) as error:
        if not is_alive(context):
            raise
        raise not_ready(application_id, error) from error
    for answer in answers:
        if answer is not None:
            raise answer


@dataclass(frozen=True, slots=True)
class _Warm:
    make_worker: MakeWorker

    def __call__(self, rows: Iterator[object]) -> list[MillstreamError | None]:
        """Tell our own errors and don't raise them: Spark would try again, and then bury them."""
        for _ in rows:
            pass
        try:
            self.make_worker()
        except MillstreamError as error:
            return [error]
        return [None]
