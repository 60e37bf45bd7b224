"""How the program gets to the workers: once per application, as a broadcast variable.

User functions are lambdas and closures, which only Spark's own serializer takes. They travel in Spark's
closures and broadcasts and are never stored.
"""

from __future__ import annotations

import gc
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.serializers import CloudPickleSerializer

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.worker import Worker
from millstream.config import StreamsConfig
from millstream.engine.restore_notes import RestoreNotes
from millstream.log.embedded.file_log import FileLog
from millstream.maintenance.snapshots import storage_of
from millstream.state.backends.api import BackendSupplier
from millstream.state.backends.config_setter import config_setter
from millstream.state.local.directory import open_state_directory
from millstream.state.local.log_note import note_log
from millstream.state.snapshots import absolute_location
from millstream.task.metrics import Metrics
from millstream.topology.topology import Topology

__all__ = ["Program", "make_worker", "pack", "ship", "unpack"]

_MOST_WORKERS = 16
_OBJECTS_BETWEEN_COLLECTIONS = 100_000
_WORKERS: dict[str, Worker] = {}
"""Per worker process: the programs of the last applications, each unpacked once."""


@dataclass(frozen=True, slots=True)
class Program:
    """All that a worker needs to know of an application."""

    topology: Topology
    config: StreamsConfig
    application_id: str
    log_root: Path
    state_dir: Path
    backend: str | BackendSupplier

    @classmethod
    def of(cls, topology: Topology, application_id: str, log_root: Path, config: StreamsConfig) -> Program:
        """A program that means the same in every process."""
        config_setter(config.rocksdb_config_setter)  # refused here, and not by the first worker
        if config.snapshot_uri is not None:
            config = replace(config, snapshot_uri=absolute_location(config.snapshot_uri))
        return cls(
            topology, config, application_id, log_root.resolve(), config.state_dir.resolve(), config.backend
        )


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


def make_worker(program: Program) -> Worker:
    """The worker of a program, in this process."""
    return Worker(
        plan=program.topology.plan(),
        config=program.config,
        folder=ApplicationStorage(program.log_root, program.application_id),
        log=FileLog(program.log_root),
        directory=note_log(open_state_directory(program.state_dir), program.application_id, program.log_root),
        backend=program.backend,
        metrics=Metrics(),
        listener=RestoreNotes(program.state_dir / program.application_id),
        snapshots=storage_of(program.config),
    )


def pack(program: Program) -> bytes:
    """A program as Spark moves it."""
    packed: bytes = CloudPickleSerializer().dumps(program)
    return packed


def unpack(packed: bytes) -> Program:
    """The program again. Only ever called on what this application's own driver has packed."""
    program: Program = CloudPickleSerializer().loads(packed)
    return program


def ship(context: SparkContext, program: Program) -> _MakeWorker:
    """Broadcast the program; the result makes its worker wherever it is called."""
    return _MakeWorker(secrets.token_hex(8), context.broadcast(pack(program)))
