"""How the program gets to the workers: once per application, packed, as a broadcast variable."""

from __future__ import annotations

import gc
import secrets
from dataclasses import dataclass, replace
from typing import Any

from pyspark import SparkContext

from millstream.commit.worker import Worker
from millstream.engine.program import make_worker
from millstream.engine.spark.packing import unpack
from millstream.task.metrics import Metrics

_MOST_WORKERS = 16
_OBJECTS_BETWEEN_COLLECTIONS = 100_000
_WORKERS: dict[str, Worker] = {}
"""Per worker process: the programs of the last applications, each unpacked once."""


@dataclass(frozen=True, slots=True)
class _MakeWorker:
    key: str
    """Names the program: one Spark may run several, one after the other."""
    packed: Any
    """A broadcast variable."""

    def __call__(self) -> Worker:
        worker = _WORKERS.get(self.key)
        if worker is None:
            worker = _WORKERS[self.key] = make_worker(unpack(self.packed.value))
            _collect_less_often()
            if len(_WORKERS) > _MOST_WORKERS:
                del _WORKERS[next(iter(_WORKERS))]
        return replace(worker, metrics=Metrics())

    def release(self) -> None:
        """Let Spark forget the program."""
        self.packed.unpersist()


def _collect_less_often() -> None:
    """Batches are many objects and no cycles: looking for these every 700 objects finds nothing."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 20, 20)


def broadcast(context: SparkContext, packed: bytes) -> _MakeWorker:
    """Broadcast the packed program; the result makes its worker wherever it is called."""
    return _MakeWorker(secrets.token_hex(8), context.broadcast(packed))
