"""What `Streams` says about instances, and what it is told: where tasks and copies are, which hosts drain."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import ManifestChain
from millstream.config import StreamsConfig
from millstream.engine.assignment.view import AssignedTask, KeyMetadata, Rebalance
from millstream.engine.loop import EpochLoop
from millstream.query.key_location import task_of_key
from millstream.topology.topology import Topology

_DRAIN_LOOKS_S: Final = 0.05


class InstancesOfStreams:
    """The methods of `Streams` that are about instances. What they look at is made by `Streams`."""

    _config: StreamsConfig
    _topology: Topology
    _storage: ApplicationStorage
    _loop: EpochLoop
    _stop: threading.Event

    def _check_running(self) -> None:
        """Refuse what only an application that runs can do."""
        raise NotImplementedError

    def on_rebalance(self, listener: Callable[[Rebalance], None]) -> None:
        """Tell `listener(rebalance)` when tasks get other places, with the reason, and when that is over."""
        self._loop.rebalance_listeners.append(listener)

    def assignment(self) -> list[AssignedTask]:
        """Where each task runs and who keeps copies of its state, how far they are, and why there.

        Empty where there is no Spark, and before the first epoch.

        >>> from millstream import Streams, StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("lines").to("copies")
        >>> Streams(builder.build(), app_id="copy").assignment()
        []
        """
        return list(self._loop.engine.assigned())

    def query_metadata(self, store: str, key: Any) -> KeyMetadata:
        """Where a key of a store is: its task, the host that runs it, and those that have copies.

        By the key's hash: where Millstream, and Kafka's default partitioner, put it.

        >>> from millstream import Streams, StreamsBuilder, serdes
        >>> builder = StreamsBuilder()
        >>> words = builder.stream("words", key=serdes.string)
        >>> _ = words.group_by_key().count(store="counts")
        >>> app = Streams(builder.build(), app_id="count")
        >>> app.query_metadata("counts", "river").task
        '0_0'
        """
        head = ManifestChain(self._storage).latest()
        counts = self._loop.coordinator.counts
        task, partition = task_of_key(self._topology.plan(), store, key, counts, head)
        places = [one for one in self.assignment() if one.task == task]
        active = next((one.host for one in places if one.role == "active"), None)
        standbys = [one for one in places if one.role == "standby"]
        return KeyMetadata(
            store=store,
            partition=partition,
            task=task,
            active_host=active,
            standby_hosts=tuple(one.host for one in standbys),
            lags={one.host: one.lag or 0 for one in standbys},
        )

    def drain(self, host: str, timeout_s: float | None = None) -> bool:
        """Let a host give its tasks away, so that it can be stopped without a failed epoch; whether it has.

        Those with a standby move at once, others when a copy elsewhere has caught up. Waits for it for
        `drain_timeout_ms`, or for so many seconds. The host gets tasks again after `undrain`.
        """
        self._check_running()
        self._loop.engine.drain(host)
        seconds = self._config.drain_timeout_ms / 1000 if timeout_s is None else timeout_s
        deadline = time.monotonic() + seconds
        while any(one.host == host for one in self.assignment()):
            if time.monotonic() >= deadline:
                return False
            self._stop.wait(_DRAIN_LOOKS_S)
        return True

    def undrain(self, host: str) -> None:
        """Let a host that was drained have tasks again."""
        self._check_running()
        self._loop.engine.drain(host, is_over=True)
