"""Faults of slots and of the network between them, drawn from a seed. Coordinator and workers are real.

Bundles do not go over Flight but through a network that loses, repeats, delays, damages and replays them.
Slots lose their connection or fall silent at any step; those that fall silent wake up when they are fenced.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from millstream.commit.worker import Worker
from millstream.engine.spark.resident.bundles import SCHEMA, BadBundleError, BundleHeader, packed, unpacked
from millstream.engine.spark.resident.connection import ConnectionLostError
from millstream.engine.spark.resident.flight import FlightClients, PeerLostError
from millstream.engine.spark.resident.inbox import Inbox
from millstream.engine.spark.resident.messages import EpochDone, Peer
from millstream.engine.spark.resident.slot import Slot
from millstream.engine.spark.resident.slot_pool import SlotPool
from millstream.task.shuffle_block import ShuffleBlock

ON_THE_WAY = {
    "": 24,
    "lost": 1,
    "timed out": 1,
    "repeated": 3,
    "late": 3,
    "replayed": 4,
    "damaged": 1,
    "slot lost": 1,
}
AT_WORK = {"": 60, "slow": 6, "slot lost": 1, "silent": 1}
AT_REPORT = {"": 20, "repeated report": 3, "old report": 3, "slot lost": 1}
AT_COMMIT = {"": 40, "slot lost": 1}
LONGEST_S = 60.0


@dataclass
class Sent:
    """A bundle on its way."""

    header: BundleHeader
    chunks: list[pa.RecordBatch]


@dataclass
class Faults:
    """Plants itself with `plant`; `counts` says what has happened."""

    seed: int
    most: int = 40
    """So many faults, and then none: the application has to come to its end."""
    counts: Counter[str] = field(default_factory=Counter)
    pools: list[SlotPool] = field(default_factory=list)
    """The last one is that of the application that runs."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._guard = threading.Lock()
        self._inboxes: dict[str, Inbox] = {}
        self._sent: list[Sent] = []
        self._reports: list[EpochDone] = []
        self._silent: set[str] = set()
        self._timers: list[threading.Timer] = []

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        """Until the end of the test."""
        make_inbox, run_task, apply = Inbox.__init__, Slot._run_task, Slot._apply
        run_slot = Slot.run

        def noted(inbox: Inbox, incarnation: str) -> None:
            make_inbox(inbox, incarnation)
            self._inboxes[incarnation] = inbox

        def faulty_task(slot: Slot, command: Any, worker: Worker, *args: Any) -> Any:
            self._at_work(slot)
            made = run_task(slot, command, worker, *args)
            self._at_work(slot)
            return made

        def faulty_apply(slot: Slot, command: Any) -> None:
            if self._draw(AT_COMMIT):
                slot._connection.close()
            apply(slot, command)

        def faulty_run(slot: Slot) -> None:
            send = slot._connection.send
            patch.setattr(slot._connection, "send", lambda message: self._say(slot, send, message))
            run_slot(slot)

        patch.setattr(Inbox, "__init__", noted)
        patch.setattr(FlightClients, "put", lambda _clients, *args: self._put(*args))
        patch.setattr(Slot, "_run_task", faulty_task)
        patch.setattr(Slot, "_apply", faulty_apply)
        patch.setattr(Slot, "run", faulty_run)

    def end(self) -> None:
        """Nothing is on its way any more."""
        for timer in self._timers:
            timer.join()

    def draw(self, kinds: dict[str, int]) -> str:
        """A kind of fault, or none."""
        return self._draw(kinds)

    def _draw(self, kinds: dict[str, int]) -> str:
        with self._guard:
            kind = self._chance.choices([*kinds], [*kinds.values()])[0]
            if not kind or self.counts.total() >= self.most:
                return ""
            self.counts[kind] += 1
            return kind

    # The network ---------------------------------------------------------------------------------------

    def _put(self, to: Peer, blocks: Sequence[ShuffleBlock], header: Callable[..., BundleHeader]) -> None:
        chunks, size, digest = packed(blocks)
        one = Sent(header(len(chunks), size, digest), chunks)
        kind = self._draw(ON_THE_WAY)
        with self._guard:
            old = self._chance.choice(self._sent) if self._sent else one
            pause = self._chance.uniform(0.001, 0.05)
            self._sent.append(one)
        if kind == "slot lost":
            self._lose_one()
        elif kind == "replayed":
            self._deliver(old)
        elif kind == "damaged":
            self._deliver(_damaged(one))
        elif kind == "late":
            time.sleep(pause)
        elif kind == "timed out":  # whoever sent it has given it up when it arrives
            self._timers.append(threading.Timer(pause, self._deliver, [one]))
            self._timers[-1].start()
        if kind in ("lost", "timed out", "damaged"):
            raise PeerLostError(kind)
        for _ in range(2 if kind == "repeated" else 1):
            self._deliver(one)

    def _deliver(self, one: Sent) -> None:
        """As the server of a slot does it."""
        inbox = self._inboxes[one.header.receiver_incarnation]
        try:
            header = BundleHeader.decoded(msgspec.msgpack.encode(one.header))
            if inbox.accepts(header):
                inbox.put(header, unpacked(header, one.chunks))
        except BadBundleError:
            self.counts["refused"] += 1

    # Slots ---------------------------------------------------------------------------------------------

    def _lose_one(self) -> None:
        members = [*self.pools[-1].live().values()]
        if members:
            with self._guard:
                self._chance.choice(members).connection.close()

    def _at_work(self, slot: Slot) -> None:
        kind = self._draw(AT_WORK)
        if kind == "slow":
            time.sleep(0.01)
        elif kind == "slot lost":
            slot._connection.close()
        elif kind == "silent":
            self._fall_silent(slot)

    def _fall_silent(self, slot: Slot) -> None:
        """Until somebody else has its place. Then it goes on as if nothing had happened."""
        self._silent.add(slot._incarnation)
        deadline = time.monotonic() + LONGEST_S
        while any(
            member.incarnation == slot._incarnation for pool in self.pools for member in pool.live().values()
        ):
            assert time.monotonic() < deadline, "a slot that says nothing was not fenced"
            time.sleep(0.01)
        self._silent.discard(slot._incarnation)

    def _say(self, slot: Slot, send: Callable[[object], None], message: object) -> None:
        if slot._incarnation in self._silent:
            return
        kind = self._draw(AT_REPORT) if isinstance(message, EpochDone) else ""
        if isinstance(message, EpochDone):
            if kind == "old report" and self._reports:
                send(self._reports[0])
            self._reports.append(message)
        if kind == "slot lost":
            slot._connection.close()
            raise ConnectionLostError(kind)
        for _ in range(2 if kind == "repeated report" else 1):
            send(message)


def _damaged(one: Sent) -> Sent:
    data = bytearray(one.chunks[0].column(0)[0].as_py())
    data[len(data) // 2] ^= 0xFF
    first = pa.record_batch([pa.array([bytes(data)], pa.large_binary())], schema=SCHEMA)
    return Sent(one.header, [first, *one.chunks[1:]])
