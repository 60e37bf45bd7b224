"""What Spark runs for a slot: a function that stays until the coordinator ends it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark import TaskContext

from millstream.commit.process import process_started
from millstream.commit.worker import Worker
from millstream.engine.spark.homes import held_checkpoints
from millstream.engine.spark.node import node_name, tags_here
from millstream.engine.spark.resident.connection import ConnectionLostError, connect, flight_token
from millstream.engine.spark.resident.flight import FlightClients, FlightServer
from millstream.engine.spark.resident.inbox import Inbox
from millstream.engine.spark.resident.messages import Hello, NotReady
from millstream.engine.spark.resident.parent import ended_with_parent
from millstream.engine.spark.resident.slot import Slot, SlotSettings, portable
from millstream.engine.spark.resident.tls import TlsFiles
from millstream.engine.spark.stage_function import MakeWorker
from millstream.state.local.directory import boot_id
from millstream.state.local.open_stores import OpenStores, most_tasks
from millstream.state.local.readable_stores import ReadableStores


@dataclass(frozen=True, slots=True)
class SlotFunction:
    """One incarnation of a slot. Travels in Spark's closure, and with it the secret."""

    address: tuple[str, int]
    incarnation: str
    make_worker: MakeWorker
    timeout_s: float
    """How long to wait for a peer that stands still."""
    settings: SlotSettings
    secret: bytes = field(repr=False)
    tls: TlsFiles | None = None

    def __call__(self, rows: Iterable[Any]) -> list[None]:
        """Serve, unless Spark runs it for the second time: the coordinator submits a new incarnation."""
        for _ in rows:
            pass
        context = TaskContext.get()
        if context is None or context.attemptNumber() == 0:
            with ended_with_parent():
                self.serve()
        return []

    def serve(self) -> None:
        """Connect, get ready, say so, and obey."""
        try:
            connection = connect(self.address, self.incarnation, self.secret, self.timeout_s, self.tls)
        except ConnectionLostError:
            return  # the application was closed meanwhile, or the incarnation was given up
        with ExitStack() as resources:
            resources.callback(connection.close)
            try:
                worker = resident(self.make_worker())
                inbox, token = Inbox(self.incarnation), flight_token(self.secret)
                server = FlightServer(connection.local_address, token, inbox, self.tls)
                resources.callback(server.close)
                clients = FlightClients(token, self.timeout_s, self.tls)
                resources.callback(clients.close)
            except Exception as error:  # noqa: BLE001 - told to the coordinator
                answer: Hello | NotReady = NotReady(portable(error))
            else:
                answer = hello(worker, server.location, self.settings.node)
            try:
                connection.send(answer)
            except ConnectionLostError:
                return
            if isinstance(answer, Hello):
                Slot(self.incarnation, worker, connection, inbox, clients, self.settings).run()


def resident(worker: Worker) -> Worker:
    """A worker whose stores stay open from epoch to epoch, and can be read from outside."""
    stores = OpenStores(most_tasks())
    return replace(worker, open_stores=stores, readable=ReadableStores(), shares_process=True)


def hello(worker: Worker, flight: str, node: str = "") -> Hello:
    """Who this slot is."""
    return Hello(
        worker.directory.instance_id,
        socket.gethostname(),
        boot_id() or "",
        os.getpid(),
        process_started(os.getpid()) or "",
        flight,
        held_checkpoints(worker),
        node or node_name(),
        tags_here(),
    )
