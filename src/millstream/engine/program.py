"""An application as it is given to whoever runs its tasks, and the worker that is made of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.worker import Worker
from millstream.config import StreamsConfig
from millstream.durable import check_place, disk_errors_named
from millstream.engine.restore_notes import RestoreNotes
from millstream.log import open_log
from millstream.maintenance.snapshots import storage_of
from millstream.state.backends.api import BackendSupplier
from millstream.state.backends.config_setter import config_setter
from millstream.state.local.directory import note_log, open_state_directory
from millstream.state.snapshots.storage import absolute_location
from millstream.state_dir import absolute_state_dir, state_dir_here, state_dir_if_known
from millstream.task.metrics import Metrics
from millstream.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Program:
    """All that a worker needs to know of an application."""

    topology: Topology
    config: StreamsConfig
    storage: ApplicationStorage
    log: str
    """Its address."""
    state_dir: Path
    """As it was set, for each host to make a folder of it."""
    backend: str | BackendSupplier

    @classmethod
    def of(cls, topology: Topology, storage: ApplicationStorage, log: str, config: StreamsConfig) -> Program:
        """A program that means the same in every process."""
        config_setter(config.rocksdb_config_setter)  # refused here, and not by the first worker
        if config.snapshot_uri is not None:
            config = replace(config, snapshot_uri=absolute_location(config.snapshot_uri))
        storage = replace(storage, root=storage.root.resolve())
        return cls(topology, config, storage, log, absolute_state_dir(config.state_dir), config.backend)

    def check_place(self) -> None:
        """Refuse a state directory that can't be made or used on this host. Makes nothing."""
        state_dir = state_dir_if_known(self.state_dir)
        if state_dir is not None:
            check_place(state_dir)

    @property
    def application_id(self) -> str:
        """Its app_id."""
        return self.storage.application_id


def make_worker(program: Program) -> Worker:
    """The worker of a program, in this process."""
    state_dir = state_dir_here(program.state_dir)
    with disk_errors_named(state_dir):
        directory = open_state_directory(state_dir)
        note_log(directory, program.application_id, program.storage.root)
    return Worker(
        plan=program.topology.plan(),
        config=program.config,
        storage=program.storage,
        log=open_log(program.log),
        directory=directory,
        backend=program.backend,
        metrics=Metrics(),
        listener=RestoreNotes(state_dir / program.application_id),
        snapshots=storage_of(program.config),
    )
