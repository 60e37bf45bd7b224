"""An application on slots in threads, on several hosts that have nothing in common but the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.engine.slots_in_threads import SlotsInThreads
from tests.spark.lab import Lab

from millstream import StreamsConfig, Topology
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import ManifestChain
from millstream.commit.worker import Worker
from millstream.engine.assignment.rules import slot_assigner
from millstream.engine.loop import EpochLoop
from millstream.engine.program import Program, make_worker
from millstream.log import open_log
from millstream.state.backends import supplier
from millstream.types import Version


class Hosts:
    """`hosts` says of each slot on which host it is."""

    def __init__(self, lab: Lab, topology: Topology, hosts: Mapping[int, str], **settings: Any) -> None:
        self.lab = lab
        self.plan = topology.plan()
        config = StreamsConfig(state_dir=lab.state_dir, default_partitions=2, **settings)
        log = open_log(lab.folder / "log")
        self.storage = ApplicationStorage(log.root, "app")
        program = Program.of(topology, self.storage, log.address, config)

        def worker_on(host: str) -> Worker:
            return make_worker(replace(program, state_dir=self.state_of(host)))

        assigner = slot_assigner(config, self.plan)
        self.assigner = assigner
        # A slot that says nothing is killed by its process id, and that is the process of the test.
        self.engine = SlotsInThreads(worker_on, len(hosts), 600.0, assigner, hosts)
        self.loop = EpochLoop(self.storage, log, self.plan, self.engine, config)

    def state_of(self, host: str) -> Path:
        return self.lab.folder / f"state-{host}"

    def run(self) -> None:
        while self.loop.run_epoch(tick=False) is not None or self.loop.has_backlog:
            pass

    def active(self) -> dict[str, str]:
        """The host of each task."""
        return {task: one.active.host for task, one in self.engine.tasks.assignment.tasks.items()}

    def copies(self) -> dict[str, list[str]]:
        return {
            task: sorted(copy.host for copy in one.copies())
            for task, one in self.engine.tasks.assignment.tasks.items()
            if one.copies()
        }

    def lose(self, host: str) -> None:
        """As if all processes of a host were killed, for good."""
        launcher = self.engine.launcher
        with launcher.down:
            launcher.hosts_down.add(host)
        for number, member in self.engine.pool.live().items():
            if launcher.hosts[number] == host:
                member.connection.close()

    def bring_back(self, host: str) -> None:
        launcher = self.engine.launcher
        with launcher.down:
            launcher.hosts_down.discard(host)
            launcher.down.notify_all()

    def is_caught_up(self) -> bool:
        """Whether all copies have been reported to be at the head."""
        self.loop.run_epoch(tick=False)
        head = ManifestChain(self.storage).head()
        assert head is not None
        return all(
            self.assigner.version(task, copy.instance) == Version(head.tasks[task].version)
            for task, one in self.engine.tasks.assignment.tasks.items()
            for copy in one.copies()
            if task in head.tasks
        )

    def have_followed(self) -> bool:
        """Whether all copies are at the last commit, as their slots say; also in the middle of an epoch."""
        head, live = ManifestChain(self.storage).head(), self.engine.pool.live()
        assert head is not None
        return all(
            (here := live[copy.slot].followed.get(task)) is not None
            and here.version == Version(head.tasks[task].version)
            for task, one in self.engine.tasks.assignment.tasks.items()
            for copy in one.copies()
        )

    def bytes_of(self, task: str, host: str, store: str) -> list[tuple[bytes, bytes]]:
        """All rows of a store on a host, its marker included. Nobody may have it open."""
        folder = self.state_of(host) / "app" / task / "lmdb" / store
        with supplier("lmdb").open(folder) as backend:
            return [(b"marker", backend.marker() or b""), *backend.scan()]


@contextmanager
def running_on(lab: Lab, topology: Topology, hosts: Mapping[int, str], **settings: Any) -> Iterator[Hosts]:
    app = Hosts(lab, topology, hosts, **settings)
    app.loop.open()
    try:
        yield app
    finally:
        for host in set(hosts.values()):
            app.bring_back(host)
        app.loop.close()
