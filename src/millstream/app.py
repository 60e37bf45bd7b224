"""`Streams`: a topology as a running application. Where everything is put together."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import Enum
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, Self

from millstream.config import StreamsConfig, check_application_id
from millstream.console import Figures
from millstream.errors import ConfigError, MillstreamError
from millstream.query.replica import StoreReplica
from millstream.runtime.application_folder import ApplicationFolder
from millstream.spark.epochs import EpochLoop, EpochResult
from millstream.state.directory import open_state_directory
from millstream.topology.topology import Topology

__all__ = ["State", "Streams"]

Until = Literal["caught-up"] | timedelta | Callable[["Streams"], bool] | None


class State(Enum):
    """Where an application is in its life."""

    CREATED = "created"
    REBALANCING = "rebalancing"
    RUNNING = "running"
    PENDING_SHUTDOWN = "pending shutdown"
    NOT_RUNNING = "not running"
    ERROR = "error"


class Answer(Enum):
    """What to do about an error that nothing else handled."""

    REPLACE = "replace"
    """Start the loop again from the last commit."""
    SHUTDOWN = "shutdown"
    """End the application."""


class Streams:
    """Runs a topology on Spark.

    log
        "file:<folder>" for the embedded log.
    spark
        A SparkSession or SparkContext of yours; without one Millstream makes it and ends it.

    >>> from millstream import Streams, StreamsBuilder
    >>> builder = StreamsBuilder()
    >>> builder.stream("lines").to("copies")
    >>> Streams(builder.build(), app_id="copy").state.value
    'created'
    """

    def __init__(
        self,
        topology: Topology,
        *,
        app_id: str,
        log: str | Path = "file:./millstream-data",
        spark: Any = None,
        config: StreamsConfig | None = None,
    ) -> None:
        self.app_id = check_application_id(app_id)
        self._topology = topology
        self._config = config if config is not None else StreamsConfig()
        self._log_root = _log_root(log)
        self._loop = EpochLoop(
            topology, application_id=app_id, log_root=self._log_root, spark=spark, config=self._config
        )
        self._state = State.CREATED
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._replicas: dict[str, StoreReplica] = {}
        self._state_listeners: list[Callable[[State, State], None]] = []
        self._epoch_listeners: list[Callable[[EpochResult], None]] = []
        self._uncaught: Callable[[Exception], Answer] = _shut_down
        self._records = 0
        self._epochs = 0
        self._last: EpochResult | None = None

    @property
    def state(self) -> State:
        """Where the application is in its life."""
        return self._state

    def on_state(self, listener: Callable[[State, State], None]) -> None:
        """Tell `listener(before, after)` about every change of state."""
        self._state_listeners.append(listener)

    def on_epoch(self, listener: Callable[[EpochResult], None]) -> None:
        """Tell `listener(result)` about every epoch that was committed and published."""
        self._epoch_listeners.append(listener)

    def on_uncaught(self, handler: Callable[[Exception], Answer]) -> None:
        """Ask `handler(error)` what to do about an error that nothing else handled."""
        self._uncaught = handler

    def start(self) -> None:
        """Run in the background until `close()`."""
        self._check_state(State.CREATED)
        self._thread = threading.Thread(target=self._run_quietly, name=f"streams-{self.app_id}", daemon=True)
        self._thread.start()

    def run(self, until: Until = None) -> None:
        """Run here: for ever, until all input is committed ("caught-up"), for a time, or until a condition.

        Ctrl-C and SIGTERM end it in order, after the epoch at work.
        """
        self._check_state(State.CREATED, State.RUNNING)
        with self._signals():
            self._run(until)

    def close(self) -> None:
        """End in order: the epoch at work is finished, the lease is let go, our Spark is ended."""
        if self._state in {State.NOT_RUNNING, State.ERROR}:
            return
        was_created = self._state is State.CREATED
        self._change(State.PENDING_SHUTDOWN)
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if not was_created:
            self._loop.close()
        self._change(State.NOT_RUNNING)

    def cleanup(self) -> None:
        """Delete the local state of this application. It is restored from the changelogs."""
        self._check_state(State.CREATED, State.NOT_RUNNING, State.ERROR)
        directory = open_state_directory(self._config.state_dir)
        folder = directory.path / self.app_id
        if folder.is_dir():
            shutil.rmtree(folder)

    def store(self, name: str) -> StoreReplica:
        """A replica of a store, at the last commit; built when first asked for."""
        replica = self._replicas.get(name)
        if replica is None:
            folder = ApplicationFolder(self._log_root, self.app_id)
            replica = self._replicas[name] = StoreReplica(folder, self._loop.log, self._topology.plan(), name)
        return replica

    def metrics(self) -> dict[str, Any]:
        """Figures about the application so far."""
        last = self._last
        return {
            "state": self._state.value,
            "epochs": self._epochs,
            "records": self._records,
            "records_per_second": 0.0 if last is None else last.records / max(last.seconds, 1e-9),
            "last_epoch": None if last is None else last.manifest.epoch,
            "last_epoch_seconds": None if last is None else last.seconds,
            "last_epoch_records": None if last is None else last.records,
            "lag": self._loop.driver.lag() if self._state is State.RUNNING else {},
        }

    def figures(self, **rows: object) -> Figures:
        """The metrics, for `millstream.console.Watcher` to show; `rows` are shown beside them."""
        metrics = self.metrics()
        return Figures(
            self.app_id,
            metrics["state"],
            metrics["last_epoch"] or 0,
            metrics["records"],
            metrics["records_per_second"],
            metrics["last_epoch_seconds"] or 0.0,
            metrics["lag"],
            rows,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run_quietly(self) -> None:
        with suppress(BaseException):  # kept in self._error, and told to the handler
            self._run(None)

    def _run(self, until: Until) -> None:
        deadline = None if not isinstance(until, timedelta) else time.monotonic() + until.total_seconds()
        while not self._stop.is_set():
            try:
                self._open()
                self._run_epochs(until, deadline)
            except Exception as error:
                self._error = error
                if self._uncaught(error) is Answer.REPLACE and not self._stop.is_set():
                    self._change(State.REBALANCING)
                    self._loop.driver.close()
                    self._state = State.CREATED
                    continue
                self._change(State.ERROR)
                with suppress(Exception):
                    self._loop.close()
                raise
            else:
                return

    def _open(self) -> None:
        if self._state is State.CREATED:
            self._change(State.REBALANCING)
            self._loop.open()
            self._change(State.RUNNING)

    def _run_epochs(self, until: Until, deadline: float | None) -> None:
        while not self._stop.is_set():
            result = self._loop.run_epoch(tick=until != "caught-up")
            if result is not None:
                self._note(result)
            elif until == "caught-up":
                return
            else:
                self._stop.wait(self._config.commit_interval_ms / 1000)
            if deadline is not None and time.monotonic() >= deadline:
                return
            if callable(until) and until(self):
                return

    def _note(self, result: EpochResult) -> None:
        self._last = result
        self._records += result.records
        self._epochs += 1
        for listener in self._epoch_listeners:
            listener(result)

    def _change(self, state: State) -> None:
        before, self._state = self._state, state
        for listener in self._state_listeners:
            listener(before, state)

    def _check_state(self, *allowed: State) -> None:
        if self._state not in allowed:
            raise MillstreamError(
                f"application {self.app_id!r} is {self._state.value}; this needs it to be "
                f"{' or '.join(state.value for state in allowed)}. Remedy: make a new Streams object to run "
                "it again."
            )

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            del number, frame
            self._stop.set()

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _log_root(log: str | Path) -> Path:
    text = str(log)
    if text.startswith("kafka:"):
        raise ConfigError(f"log={text!r}: Kafka is not supported yet. Remedy: use log='file:<folder>'")
    return Path(text.removeprefix("file:"))


def _shut_down(error: Exception) -> Answer:
    del error
    return Answer.SHUTDOWN
