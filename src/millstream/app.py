"""`Streams`: a topology as a running application. Where everything is put together."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from enum import Enum
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Self

from millstream.arguments import checks_arguments
from millstream.clock import now_ms
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.lease import LeaseHeldError, check_not_run, lease_holder
from millstream.commit.manifest import ManifestChain
from millstream.config import Engine as EngineName
from millstream.config import StreamsConfig, check_application_id, check_config, is_setting
from millstream.console import Figures
from millstream.durable import DiskFullError, disk_errors_named
from millstream.engine.api import Engine, EpochFailedError
from millstream.engine.assignment.view import instance_rows
from millstream.engine.epoch_result import EpochResult
from millstream.engine.local import LocalEngine
from millstream.engine.loop import EpochLoop
from millstream.engine.program import Program, make_worker
from millstream.engine.restore_notes import restores_in, restores_told
from millstream.engine.spark.engine import SparkEngine
from millstream.engine.spark.frame_queries import FrameQueries
from millstream.engine.spark.resident.engine import ResidentSparkEngine
from millstream.engine.totals import Totals
from millstream.errors import ConfigError, MillstreamError
from millstream.instances import InstancesOfStreams
from millstream.kafka_names import KafkaNames
from millstream.log import open_log
from millstream.notebook import table_bundle
from millstream.query.commit_times import CommitTimes
from millstream.query.host_stores import (
    Hosts,
    KeyValueHostStore,
    ReadFrom,
    SessionHostStore,
    VersionedHostStore,
    WindowHostStore,
)
from millstream.query.replica import SessionReplica, StoreReplica, VersionedReplica, WindowReplica
from millstream.query.store_handles import StoreHandles
from millstream.run_screen import RunScreen
from millstream.state.changelog.follow import Progress
from millstream.state.errors import StateDirectoryError, StateInUseError
from millstream.state.local.cleaning import clean
from millstream.state.local.directory import open_state_directory
from millstream.state_dir import state_dir_here, state_dir_if_known
from millstream.stop_signals import StopSignals, say
from millstream.topology.configured import as_configured
from millstream.topology.topology import Topology
from millstream.until import Until, seconds_to_run

_LOGGER = logging.getLogger("millstream")
_LONGEST_PAUSE_S = 5.0
_STANDBY_LOOKS_S = 0.2
"""How often a standby process looks whether its turn has come."""
_MACHINERY = (EpochFailedError, DiskFullError)
"""What is tried again without asking: it has nothing to do with the program."""


class State(Enum):
    """Where an application is in its life."""

    CREATED = "created"
    REBALANCING = "rebalancing"
    RUNNING = "running"
    PENDING_SHUTDOWN = "pending shutdown"
    NOT_RUNNING = "not running"
    ERROR = "error"


class Answer(Enum):
    """What to do about an error that nothing else handled: see `Streams.on_uncaught`."""

    REPLACE = "replace"
    """Start the loop again from the last commit."""
    SHUTDOWN = "shutdown"
    """End the application."""


def _where_it_belongs(name: str) -> str | None:
    return f"it is a setting: config=StreamsConfig({name}=...)" if is_setting(name) else None


@checks_arguments(_where_it_belongs)
class Streams(InstancesOfStreams, KafkaNames):
    """Runs a topology, on Spark unless told otherwise.

    log
        "file:<folder>" for the embedded log.
    spark
        A SparkSession or SparkContext of yours; without one Millstream makes it and ends it.
    engine
        In place of the one that the config names: "jobs" or "resident" on Spark, or "local": all tasks one
        after the other in this process, with the same commit and the same state, without Spark and Java. For
        small data, and to step through a program with a debugger.
    standby
        True: if another process runs the application, wait until it ends, or dies, and go on then. Else such
        a process is refused.
    quiet
        True: `run()` shows nothing in a terminal. Elsewhere it never does; start, takeover and stop are told
        at INFO by the logger "millstream".

    >>> from millstream import Answer, Streams, StreamsBuilder
    >>> builder = StreamsBuilder()
    >>> builder.stream("lines").to("copies")
    >>> app = Streams(builder.build(), app_id="copy")
    >>> app.state.value, app.error
    ('created', None)
    >>> app.on_state(lambda before, after: print(before.value, "->", after.value))
    >>> app.on_epoch(lambda result: print(result.manifest.epoch, result.records, result.latency_ms))
    >>> app.on_restore(lambda progress: print(progress.store, progress.records, progress.total_records))
    >>> app.on_uncaught(lambda error: Answer.REPLACE if isinstance(error, OSError) else Answer.SHUTDOWN)
    >>> app.cleanup()  # to begin without local state
    >>> def copy_all() -> None:
    ...     with app:  # closes it at the end
    ...         app.run(until="caught-up")
    >>> def copy_in_the_background() -> None:
    ...     app.start()
    ...     input("Press Enter to end it")
    ...     app.close()
    >>> app.close()
    created -> pending shutdown
    pending shutdown -> not running
    """

    def __init__(
        self,
        topology: Topology,
        *,
        app_id: str,
        log: str | Path = "file:./millstream-data",
        spark: Any = None,
        engine: EngineName | None = None,
        config: StreamsConfig | None = None,
        quiet: bool = False,
        standby: bool = False,
    ) -> None:
        self.app_id = check_application_id(app_id)
        self._config = check_config(config)
        engine = engine or self._config.engine
        self._topology = topology = as_configured(topology, self._config, "Streams")
        self._log = open_log(_address(log))
        state_dir = state_dir_if_known(self._config.state_dir)
        self._state_folder = None if state_dir is None else state_dir / app_id
        self._storage = ApplicationStorage(self._log.root, app_id)
        self._totals = Totals()
        self._commits = CommitTimes(ManifestChain(self._storage).latest)
        frames = [*topology.graph.frames.values()]
        partitions = self._config.default_partitions
        self._frames = FrameQueries(self._storage, self._log, frames, partitions) if frames else None
        if self._frames is not None and spark is None and engine != "local":
            spark = self._frames.session  # a process has one
        if engine is None:  # cores of a session that others use, too, are not for us to hold
            engine = "resident" if spark is None else "jobs"
        self._config = replace(self._config, engine=engine)
        program = Program.of(topology, self._storage, self._log.address, self._config)
        self._loop = EpochLoop(
            self._storage,
            self._log,
            topology.plan(),
            _engine_of(program, spark),
            self._config,
            listeners=(self._note_commit, self._totals.note, self._tell),
        )
        self._quiet = quiet
        self._is_standby = standby
        self._engine_name = "the local engine" if self._config.engine == "local" else "Spark"
        self._state = State.CREATED
        self._changing = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._signals: StopSignals | None = None
        coordinator = self._loop.coordinator
        hosts = Hosts(app_id, topology.plan(), self._loop.engine, self._commits, lambda: coordinator.counts)
        self._handles = StoreHandles(self._storage, self._log, hosts, engine, _frame_of_parts)
        self._state_listeners: list[Callable[[State, State], None]] = []
        self._epoch_listeners: list[Callable[[EpochResult], None]] = []
        self._restore_listeners: list[Callable[[Progress], None]] = []
        self._uncaught: Callable[[Exception], Answer] = _shut_down

    @property
    def state(self) -> State:
        """Where the application is in its life."""
        return self._state

    @property
    def error(self) -> Exception | None:
        """The last error that nothing else handled, if there was one."""
        return self._error

    def on_state(self, listener: Callable[[State, State], None]) -> None:
        """Tell `listener(before, after)` about every change of state."""
        self._state_listeners.append(listener)

    def on_epoch(self, listener: Callable[[EpochResult], None]) -> None:
        """Tell `listener(result)` about every epoch that was committed and published."""
        self._epoch_listeners.append(listener)

    def on_restore(self, listener: Callable[[Progress], None]) -> None:
        """Tell `listener(progress)` about stores that are restored, a few times a second while it takes.

        Set it before the application runs.
        """
        self._restore_listeners.append(listener)

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

        until
            None, "caught-up", a timedelta or a number of seconds from this call, or a function that is called
            with the application after each epoch and ends it with True. Anything else is refused.

        Ctrl-C and SIGTERM end it in order, after the epoch at work; the second time they give that up. Then
        nothing of it is visible, and the next start does it again.

        >>> from millstream import Streams, StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("lines").to("copies")
        >>> app = Streams(builder.build(), app_id="copy")
        >>> app.run(until="caughtup")
        Traceback (most recent call last):
        millstream.errors.ConfigError: run(until='caughtup'): ... Did you mean 'caught-up'? ...
        """
        seconds = seconds_to_run(until)
        self._check_state(State.CREATED, State.RUNNING)
        if self._thread is not None:
            raise MillstreamError(f"application {self.app_id!r} runs in the background already")
        screen = self._screen()
        tell = say if screen is None else screen.say
        with StopSignals(self.app_id, self._stop, cancel=self._loop.engine.cancel, say=tell) as signals:
            self._signals = signals
            with nullcontext() if screen is None else screen:
                self._run(until, seconds)

    def close(self) -> None:
        """End in order: the epoch at work is finished, the lease is let go, our Spark is ended."""
        with self._changing:
            if self._state in {State.PENDING_SHUTDOWN, State.NOT_RUNNING, State.ERROR}:
                return
            was_created = self._state is State.CREATED and self._thread is None
            self._change(State.PENDING_SHUTDOWN)
        self._stop.set()
        with StopSignals(self.app_id, self._stop, cancel=None):
            if self._thread is not None:
                self._thread.join()
            if self.state is State.ERROR:  # that is how the thread ended
                return
            if not was_created:
                self._stop_frames()
                self._close_loop()
                _LOGGER.info("Application %r has stopped after %d epochs", self.app_id, self._totals.epochs)
        self._change(State.NOT_RUNNING)

    def cleanup(self) -> None:
        """Delete the local state of this application. It is restored from the changelogs.

        Only before it runs, or after `close()`; refused while any other process runs it, too.
        """
        is_begun = self._state is State.CREATED and self._thread is not None
        if is_begun or self._state not in {State.CREATED, State.NOT_RUNNING, State.ERROR}:
            raise StateInUseError(
                f"Application {self.app_id!r} is {self._state.value}, so its local state is in use. Nothing "
                "was deleted. Remedy: close() it first."
            )
        state_dir = state_dir_here(self._config.state_dir)
        if state_dir.is_dir():
            directory = open_state_directory(state_dir)  # refuses a folder that is not ours
            us = self._loop.coordinator.owner
            check_not_run(directory, self.app_id, now_ms=now_ms(), log_root=self._log.root, us=us)
            folder = state_dir / self.app_id
            if folder.is_dir():
                clean(directory, self.app_id, unused_for_ms=0)
                left = directory.tasks(self.app_id)
                if left:
                    raise StateDirectoryError(
                        f"Tasks {', '.join(left)} of application {self.app_id!r} are being worked on in "
                        f"{folder}. Their state stays; that of all others was deleted. Likely "
                        "cause: the application runs in another process. Remedy: stop it first."
                    )
                shutil.rmtree(folder)

    def store(
        self, name: str, *, read_from: ReadFrom = "replica", max_staleness_ms: int = 0
    ) -> StoreReplica | KeyValueHostStore:
        """A store at the last commit: a replica in this process, or asked for where it is.

        read_from
            "replica": a copy of all of it in this process, built when first asked for. "active": whoever runs
            its tasks answers. "standby": whoever keeps a copy that is fresh enough, else the active one. The
            latter two need `engine="resident"`, and that the application runs in this process.
        max_staleness_ms
            An answer may be from a commit that was the last one so long ago: then the log is looked at that
            often at most, or a standby may be so far behind. `version` says which commit it is. Each bound
            has a replica of its own. Objects that ask hosts are made anew by each call, one for each thread
            that asks; none goes back behind what it has answered itself.

        >>> from millstream import Streams, StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("words").group_by_key().count(store="counts")
        >>> app = Streams(builder.build(), app_id="count")
        >>> counts = app.store("counts")
        >>> counts.get("river"), counts.version
        (None, 0)
        """
        return self._handles.get(StoreReplica, KeyValueHostStore, name, read_from, max_staleness_ms)

    def window_store(
        self, name: str, *, read_from: ReadFrom = "replica", max_staleness_ms: int = 0
    ) -> WindowReplica | WindowHostStore:
        """A window store: see `store`.

        >>> from millstream import Processor, Streams, StreamsBuilder, stores
        >>> builder = StreamsBuilder()
        >>> _ = builder.add_state_store(stores.window("clicks", window_size_ms=10, retention_ms=60))
        >>> _ = builder.stream("pages").process(Processor, "clicks")
        >>> app = Streams(builder.build(), app_id="count")
        >>> list(app.window_store("clicks").fetch("ann", 0, 100))
        []
        """
        return self._handles.get(WindowReplica, WindowHostStore, name, read_from, max_staleness_ms)

    def session_store(
        self, name: str, *, read_from: ReadFrom = "replica", max_staleness_ms: int = 0
    ) -> SessionReplica | SessionHostStore:
        """A session store: see `store`.

        >>> from millstream import Processor, Streams, StreamsBuilder, stores
        >>> builder = StreamsBuilder()
        >>> _ = builder.add_state_store(stores.session("visits", retention_ms=60))
        >>> _ = builder.stream("pages").process(Processor, "visits")
        >>> app = Streams(builder.build(), app_id="count")
        >>> list(app.session_store("visits").fetch("ann"))
        []
        """
        return self._handles.get(SessionReplica, SessionHostStore, name, read_from, max_staleness_ms)

    def versioned_store(
        self, name: str, *, read_from: ReadFrom = "replica", max_staleness_ms: int = 0
    ) -> VersionedReplica | VersionedHostStore:
        """A versioned store: see `store`.

        >>> from millstream import Processor, Streams, StreamsBuilder, stores
        >>> builder = StreamsBuilder()
        >>> _ = builder.add_state_store(stores.versioned_key_value("prices", history_retention_ms=60))
        >>> _ = builder.stream("pages").process(Processor, "prices")
        >>> app = Streams(builder.build(), app_id="count")
        >>> app.versioned_store("prices").get("bread", as_of=5) is None
        True
        """
        return self._handles.get(VersionedReplica, VersionedHostStore, name, read_from, max_staleness_ms)

    def metrics(self) -> dict[str, Any]:
        """Figures about the application so far; `nodes` has the counters of each node over all tasks.

        `enforced_processing` counts how often partitions that meet were read though some of them had no
        records. `latency_ms` is the time from the moment when the newest record of the last epoch came into
        the log to the moment when its results were visible. `state_entries` says about how many rows the
        stores have after the last epoch, `state_bytes` what they take on disk, where a task's changes arrive
        when it runs the next time; both as far as tasks have run since the start.

        >>> from millstream import Streams, StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("lines").to("copies")
        >>> app = Streams(builder.build(), app_id="copy")
        >>> metrics = app.metrics()
        >>> metrics["state"], metrics["records"], metrics["latency_ms"], metrics["state_bytes"]
        ('created', 0, None, 0)
        """
        lag = self._loop.coordinator.lag() if self._state is State.RUNNING else {}
        restores = {
            f"{restore.store}-{restore.partition}": asdict(restore)
            for restore in restores_in(self._state_folder)
        }
        return {"state": self._state.value, **self._totals.as_dict(), "lag": lag, "restores": restores}

    def figures(self, **rows: object) -> Figures:
        """The metrics, for `millstream.console.Watcher` to show; `rows` are shown beside them.

        >>> from millstream.console import line_of
        >>> from millstream import Streams, StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("lines").to("copies")
        >>> app = Streams(builder.build(), app_id="copy")
        >>> line_of(app.figures(of=1))
        'copy: created, epoch 0, 0 records, 0/s, latency -, last epoch 0 ms, state 0 B, lag none, of 1'
        """
        metrics = self.metrics()
        rows = {**instance_rows(self.assignment()), **rows}
        return Figures(
            self.app_id,
            metrics["state"],
            metrics["last_epoch"] or 0,
            metrics["records"],
            metrics["records_per_second"],
            metrics["last_epoch_seconds"] or 0.0,
            metrics["lag"],
            rows,
            {name: (one["records"], one["total_records"]) for name, one in metrics["restores"].items()},
            metrics["latency_ms"],
            metrics["state_entries"],
            metrics["state_bytes"],
        )

    def __repr__(self) -> str:
        return f"<Streams {self.app_id!r}: {self._state.value}, {self._totals.epochs} epochs>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """For notebooks: its figures as a table."""
        del include, exclude
        metrics = self.metrics()
        lag = ", ".join(f"{topic}: {count}" for topic, count in metrics.pop("lag").items()) or "none"
        del metrics["nodes"], metrics["restores"]
        rows = [(name.replace("_", " "), found) for name, found in metrics.items() if found is not None]
        return table_bundle(repr(self).strip("<>"), (("", ""), [*rows, ("lag", lag)]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _screen(self) -> RunScreen | None:
        """What shows a run: nothing, unless there is a terminal."""
        if self._quiet or not RunScreen.is_seen():
            return None
        return RunScreen(self.figures, what_starts=self._engine_name)

    def _note_commit(self, result: EpochResult) -> None:
        self._commits.note(result.manifest)

    def _tell(self, result: EpochResult) -> None:
        for listener in self._epoch_listeners:
            listener(result)

    def _run_quietly(self) -> None:
        try:
            self._run(None, None)
        except MillstreamError as error:  # it says all there is to know
            _LOGGER.error("Application %r has ended: %s", self.app_id, error)  # noqa: TRY400
            _LOGGER.debug("Where that was", exc_info=True)
        except Exception:
            _LOGGER.exception("Application %r has ended", self.app_id)

    def _run(self, until: Until, seconds: float | None) -> None:
        deadline = None if seconds is None else time.monotonic() + seconds
        failures = 0
        while not self._stop.is_set():
            epochs = self._totals.epochs
            try:
                with disk_errors_named(self._log.root):
                    if not self._open(until_caught_up=until == "caught-up"):
                        return
                    self._read_frames(until)
                    with restores_told(self._state_folder, self._restore_listeners):
                        # The next epoch may begin early if nothing but a stop can come before it.
                        self._loop.goes_on = until in (None, "caught-up") and deadline is None
                        self._run_epochs(until, deadline)
                        self._loop.finish()
            except Exception as error:
                if self._is_given_up():
                    _LOGGER.debug("Application %r was given up", self.app_id, exc_info=True)
                    return
                failures = 1 if self._totals.epochs > epochs else failures + 1
                if not self._goes_on(error, failures):
                    self._fail()
                    raise
                self._restart(failures)
            else:
                return

    def _open(self, *, until_caught_up: bool) -> bool:
        """Take the application over; False if it is to end before its turn has come."""
        if self._state is State.RUNNING:
            return True
        with self._changing:
            if self._state is State.CREATED:
                self._change(State.REBALANCING)
        _LOGGER.info("Application %r starts on %s", self.app_id, self._engine_name)
        if self._frames is not None:
            self._frames.create_topics()
        while True:
            if self._is_standby and not self._wait_for_lease():
                return False
            try:
                self._loop.open(until_caught_up=until_caught_up)
                break
            except LeaseHeldError:
                if not self._is_standby:
                    raise
        self._tell_start()
        with self._changing:
            if self._state is State.REBALANCING:
                self._change(State.RUNNING)
        return True

    def _wait_for_lease(self) -> bool:
        """Wait, ready to go on, for as long as another process runs the application; False if told to end."""
        chain, is_ready = ManifestChain(self._storage), False
        while not self._stop.is_set():
            owner = lease_holder(self._storage, now_ms=now_ms())
            if owner is None:
                return True
            if not is_ready:
                _LOGGER.info("Application %r is run by %s. This process is its standby.", self.app_id, owner)
                self._loop.prepare()
                is_ready = True
            chain.latest()  # it remembers what it has read, so that little is left to read in the end
            self._stop.wait(_STANDBY_LOOKS_S)
        return False

    def _tell_start(self) -> None:
        lease, head = self._loop.coordinator.lease, self._loop.coordinator.head
        if lease.predecessor is not None:
            _LOGGER.info(
                "Application %r is taken over from %s, which ended without letting go",
                self.app_id,
                lease.predecessor,
            )
        _LOGGER.info("Application %r runs from epoch %d on (term %d)", self.app_id, head.epoch, lease.term)

    def _read_frames(self, until: Until) -> None:
        """Let what Spark streams come into its topics: what is there now, or beside the epochs."""
        if self._frames is not None and until == "caught-up":
            self._frames.run_available(self._stop.is_set)
        elif self._frames is not None:
            self._frames.start()

    def _stop_frames(self) -> None:
        if self._frames is not None:
            self._frames.stop()

    def _run_epochs(self, until: Until, deadline: float | None) -> None:
        while not self._stop.is_set():
            if self._frames is not None:
                self._frames.check()
            began = time.monotonic()
            result = self._loop.run_epoch(tick=until != "caught-up")
            if (
                result is None
                and until == "caught-up"
                and not (self._loop.has_backlog or self._loop.is_idling)
            ):
                return
            if callable(until) and until(self):
                return
            if until != "caught-up" or result is None:  # what is waited for does not come any sooner
                self._wait_out_interval(began, result, deadline)
            if deadline is not None and time.monotonic() >= deadline:
                return

    def _wait_out_interval(self, began: float, result: EpochResult | None, deadline: float | None) -> None:
        """Wait for the next trigger, unless records are waiting or a processor has asked for a commit.

        After an epoch that is the rest of the interval; with nothing to do, until records come.
        """
        if result is not None and (result.has_backlog or result.commit_requested):
            return
        now, interval_s = time.monotonic(), self._config.commit_interval_ms / 1000
        left_s = inf if deadline is None else max(0.0, deadline - now)
        if result is None:
            self._loop.wait_for_records(interval_s, left_s, self._stop)
        else:
            self._stop.wait(min(max(0.0, began + interval_s - now), left_s))

    def _goes_on(self, error: Exception, failures: int) -> bool:
        """Whether to start the loop again: by itself after failures of the machinery, else if told to."""
        if self._stop.is_set():
            self._error = error
            return False
        if isinstance(error, _MACHINERY) and failures <= self._config.max_restarts:
            _LOGGER.warning(
                "%s Application %r is started again from its last commit (%d of at most %d times).",
                str(error).partition(" Likely cause:")[0],
                self.app_id,
                failures,
                self._config.max_restarts,
            )
            return True
        self._error = error
        return self._uncaught(error) is Answer.REPLACE

    def _restart(self, failures: int) -> None:
        """Go back to the last commit; wait a little longer each time that nothing came of it."""
        with self._changing:
            if self._state in {State.RUNNING, State.REBALANCING}:
                self._change(State.REBALANCING)
        self._stop_frames()
        self._loop.release()
        self._stop.wait(min(0.1 * 2**failures, _LONGEST_PAUSE_S))

    def _fail(self) -> None:
        with suppress(Exception):  # the error that brought us here is the one to show
            self._stop_frames()
            self._loop.close()
        self._change(State.ERROR)

    def _close_loop(self) -> None:
        try:
            self._loop.close()
        except Exception:
            if not self._is_given_up():
                raise
            _LOGGER.debug("Application %r was given up and did not end in order", self.app_id, exc_info=True)

    def _is_given_up(self) -> bool:
        return self._signals is not None and self._signals.gave_up

    def _change(self, state: State) -> None:
        with self._changing:
            before, self._state = self._state, state
        if before is not state:
            for listener in self._state_listeners:
                listener(before, state)

    def _check_running(self) -> None:
        self._check_state(State.RUNNING)

    def _check_state(self, *allowed: State) -> None:
        if self._state not in allowed:
            raise MillstreamError(
                f"application {self.app_id!r} is {self._state.value}; this needs it to be "
                f"{' or '.join(state.value for state in allowed)}. Remedy: make a new Streams object to run "
                "it again."
            )


def _address(log: str | Path) -> str | Path:
    if not isinstance(log, str | Path) or not str(log):
        raise ConfigError(f"log={log!r}. Remedy: give a folder, as in log='file:./millstream-data'")
    return log if str(log).startswith(("file:", "kafka:")) else Path(log)


def _engine_of(program: Program, spark: Any) -> Engine:
    name = program.config.engine
    if name == "local":
        if spark is not None:
            raise ConfigError(
                "engine='local' with a Spark session is none. Remedy: leave spark= out, or use engine='jobs' "
                "or engine='resident'."
            )
        return LocalEngine(partial(make_worker, program), program.check_place)
    return ResidentSparkEngine(program, spark) if name == "resident" else SparkEngine(program, spark)


def _frame_of_parts(spark: Any, schema: Any, parts: Any) -> Any:
    from millstream.engine.spark.datasource.parts import frame_of_parts  # noqa: PLC0415 - imports Spark's SQL

    return frame_of_parts(spark, schema, parts)


def _shut_down(error: Exception) -> Answer:
    del error
    return Answer.SHUTDOWN
