"""Slots as Spark jobs: one job with a single task each, in a group of its own so that it can be cancelled."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext

from millstream.engine.spark.attached import AttachedSpark
from millstream.engine.spark.failures import shortened
from millstream.engine.spark.resident.slot import SlotError, SlotSettings
from millstream.engine.spark.resident.slot_function import SlotFunction
from millstream.engine.spark.resident.slot_pool import Launcher
from millstream.engine.spark.resident.tls import TlsFiles
from millstream.engine.spark.stage_function import MakeWorker

_NO_PYTHON: Final = "PythonException"
"""A slot tells its errors to the coordinator. One that comes through Spark kept it from becoming one."""


def task_slots(context: SparkContext) -> int:
    """How many tasks Spark can run at once on the executors that have registered by now.

    That is its default parallelism, unless settings say otherwise: then the cores are counted.
    """
    conf = context.getConf()
    cores_per_task = int(conf.get("spark.task.cpus", "1"))
    if conf.get("spark.default.parallelism") is None and cores_per_task == 1:
        return int(context.defaultParallelism)
    status: Any = context._jsc.sc().statusStore()  # noqa: SLF001 - PySpark does not show it
    executors = status.executorList(True)
    cores = sum(executors.apply(number).totalCores() for number in range(executors.size()))
    return int(cores) // cores_per_task


class SparkLauncher(Launcher):
    """Submits slots to Spark. Each call of `run` is made in a thread of its own."""

    def __init__(
        self,
        spark: AttachedSpark,
        application_id: str,
        make_worker: MakeWorker,
        *,
        count: int,
        left_free: int,
        timeout_s: float,
        settings: SlotSettings,
        tls: TlsFiles | None,
    ) -> None:
        self._spark = spark
        self._application_id = application_id
        self._make_worker = make_worker
        self._count = count
        self._left_free = left_free
        self._timeout_s = timeout_s
        self._settings = settings
        self._tls = tls

    def run(self, number: int, incarnation: str, address: tuple[str, int], secret: bytes) -> None:
        context = self._spark.context
        function = SlotFunction(
            address, incarnation, self._make_worker, self._timeout_s, self._settings, secret, self._tls
        )
        context.setJobGroup(self._group(number), f"slot {number}", interruptOnCancel=True)
        try:
            context.parallelize([number], 1).mapPartitions(function).collect()
        except Py4JError as error:
            if _NO_PYTHON in str(error):
                raise SlotError(shortened(error)) from error
            raise

    def cancel(self, number: int) -> None:
        with suppress(Py4JError, OSError, AssertionError):  # Spark may be gone
            self._spark.context.cancelJobGroup(self._group(number))

    def is_alive(self) -> bool:
        return self._spark.is_alive()

    def wanted(self) -> int:
        """As many as were asked for; else one for each core of the executors that have registered by now.

        But for those that are left to other jobs of the application.
        """
        return self._count or max(1, task_slots(self._spark.context) - self._left_free)

    def _group(self, number: int) -> str:
        return f"millstream-{self._application_id}-slot-{number}"
