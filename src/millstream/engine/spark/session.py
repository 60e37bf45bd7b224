"""The Spark session: the right one made, or a given one checked."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from millstream.engine.spark.class_archive import archive_options
from millstream.engine.spark.failures import not_started
from millstream.engine.spark.java import (
    ensure_java,
    environment_variable,
    find_java,
    quick_start_options,
)
from millstream.engine.spark.jvm_loss import log_jvm_loss_at_debug
from millstream.engine.spark.scratch import java_options, scratch_settings
from millstream.errors import ConfigError
from millstream.stop_signals import kept_handlers

SETTINGS: dict[str, str] = {
    # A task that is killed and run again must not meet its old self in the task's directory.
    "spark.task.reaper.enabled": "true",
    "spark.task.reaper.killTimeout": "30s",
    # Two attempts at once would only wait for each other's lock.
    "spark.speculation": "false",
    # Placement is ours: Spark must not prefer the host that has most of the shuffled rows.
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "3s",
}
"""Settings that are good for an application, whoever makes the session.

A given session may leave them out: then a guarantee holds as well, but a task that was killed may be waited
for, or state be moved between hosts. It may not contradict them.
"""

_FREE = {"spark.locality.wait", "spark.task.reaper.killTimeout"}
"""Settings that may have another value."""

_LOGGER = logging.getLogger("millstream")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_WORKER_PATH = files("millstream.engine.spark") / "worker_path"
_WORKER_ENVIRONMENT: Final = {
    # Spark runs as many workers as there are cores: threads of their own only get in each other's way.
    "POLARS_MAX_THREADS": "1",
    # The columns of an epoch are as large as those of the one before. Memory that is given back meanwhile is
    # cleared and mapped again page by page, which takes much of the time of a large epoch. So Polars keeps it
    # for some seconds, and Python a bounded part of it.
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000,muzzy_decay_ms:10000",
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
}
"""Of Python workers, where the program's own environment says nothing else."""

EMBEDDED: dict[str, str] = {
    # Driver and executor are one JVM, which ends itself after sixty lost heartbeats, however idle it is.
    "spark.executor.heartbeat.maxFailures": "2000000000",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    # PySpark's own says how it was interrupted whenever Spark ends.
    "spark.python.daemon.module": "millstream_worker_daemon",
    "spark.rdd.compress": "false",
    # What Spark remembers of past jobs. Its usual thousand is gone through in minutes, and of no use.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "2000",
}
"""Settings of the session that is made when none is given."""


_NEEDED: Final = frozenset({"spark.app.name", "spark.master"})
"""No Spark starts without them."""


def make_context(
    application_id: str, settings: Mapping[str, str], *, is_short_run: bool = False
) -> SparkContext:
    """A Spark of our own: all cores of this machine, four tries per task, quiet, on loopback only.

    A JVM that dies meanwhile is told as a `SparkGoneError`; the next call starts another one.
    """
    log_jvm_loss_at_debug()
    _forget_dead_jvm()
    try:
        return _start(application_id, settings, is_short_run=is_short_run)
    except (Py4JError, PySparkException, ConnectionError, EOFError) as error:
        if not _never_answered(error) and not _forget_dead_jvm():
            raise
        _LOGGER.debug("The JVM died while Spark was being started", exc_info=True)
        raise not_started(application_id) from None


def _never_answered(error: Exception) -> bool:
    """Whether PySpark has launched a JVM and could not reach it."""
    if isinstance(error, PySparkException):
        return error.getCondition() == "JAVA_GATEWAY_EXITED"
    return SparkContext._gateway is None  # noqa: SLF001 - it is set when the JVM has answered


def check_settings(settings: Mapping[str, str]) -> None:
    """Refuse what `make_context` would refuse, without starting anything."""
    _refuse_unfit(_wanted(settings), "config.spark_settings")
    find_java()


def _wanted(settings: Mapping[str, str]) -> dict[str, str]:
    return {"spark.master": "local[*,4]", **SETTINGS, **EMBEDDED, **settings}


def _start(application_id: str, settings: Mapping[str, str], *, is_short_run: bool) -> SparkContext:
    _refuse_unfit(_wanted(settings), "config.spark_settings")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf().setAppName(application_id)
    for name, value in {**_wanted({}), **scratch_settings(), **settings}.items():
        conf.set(name, value)
    log_settings = f'"-Dlog4j2.configurationFile={files("millstream.engine.spark") / "log4j2.properties"}"'
    given = settings.get(_JAVA_OPTIONS, "")
    # What the program could import, its workers can.
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, str(_WORKER_PATH)])),
        **{name: os.environ.get(name, default) for name, default in _WORKER_ENVIRONMENT.items()},
    }
    java = find_java()
    with ensure_java(java) as home, environment_variable("PYSPARK_PYTHON", sys.executable), kept_handlers():
        quick = quick_start_options(given, settings.get("spark.driver.memory"), is_short_run=is_short_run)
        archive = archive_options(home, java, given, is_short_run=is_short_run)
        conf.set(_JAVA_OPTIONS, f"{log_settings} {java_options()} {quick} {archive} {given}".strip())
        with _all_or_nothing():
            context = SparkContext(conf=conf, environment=environment)
            _forget_settings(conf)
            return context


def _forget_settings(conf: SparkConf) -> None:
    """The JVM outlives its Spark, and would give these as defaults to one that the program makes later."""
    system = SparkContext._jvm.System  # type: ignore[union-attr]  # noqa: SLF001 - it has just been launched
    for name, _ in conf.getAll():
        if name not in _NEEDED:
            system.clearProperty(name)


@contextmanager
def _all_or_nothing() -> Iterator[None]:
    """A start that is interrupted leaves no JVM: with one, PySpark would be in the middle of a call."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - there is no public way
        if process is not None:
            process.kill()
            process.wait()
        _forget_gateway()
        raise


def is_alive(context: SparkContext) -> bool:
    """Whether Spark still answers: it was not stopped, and its JVM was not killed."""
    jvm_context = context._jsc  # noqa: SLF001 - there is no public way to ask
    if jvm_context is None:
        return False
    try:
        return not jvm_context.sc().isStopped()
    except (Py4JError, OSError):
        return False


def forget_dead_context(context: SparkContext) -> None:
    """Let PySpark start another JVM in this process, after the one it had has died."""
    context._jsc = None  # noqa: SLF001 - stop() would ask the dead JVM, and leave the rest as it is
    with suppress(Exception):
        context.stop()
    _forget_gateway()


def _forget_dead_jvm() -> bool:
    """The same, if there is a JVM that does not answer: whether there was."""
    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is None:
        return False
    try:
        gateway.jvm.System.currentTimeMillis()
    except (Py4JError, OSError):
        context = SparkContext._active_spark_context  # noqa: SLF001 - one that was not even made, perhaps
        if context is not None:
            forget_dead_context(context)
        _forget_gateway()
        return True
    return False


def _forget_gateway() -> None:
    with SparkContext._lock:  # noqa: SLF001 - PySpark keeps its one gateway in these
        gateway = SparkContext._gateway  # noqa: SLF001
        if gateway is not None:
            with suppress(Exception):
                gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        SparkContext._active_spark_context = None  # noqa: SLF001


def context_of(spark: Any) -> SparkContext:
    """The context of a session, or a context itself."""
    context = getattr(spark, "sparkContext", spark)
    if not isinstance(context, SparkContext):
        raise ConfigError(
            f"spark={spark!r} is neither a SparkSession nor a SparkContext. Remedy: pass one, or leave "
            "spark= out"
        )
    return context


def use_our_python(context: SparkContext) -> None:
    """Let workers on this machine run the Python of this program, and import what it can.

    PySpark takes `python3` of the PATH, unless PYSPARK_PYTHON or spark.pyspark.python says another one: then
    it is left alone, and so are clusters, whose hosts may have it elsewhere.
    """
    conf = context.getConf()
    is_chosen = "PYSPARK_PYTHON" in os.environ or conf.get("spark.pyspark.python") is not None
    if (conf.get("spark.master") or "").startswith("local") and not is_chosen:
        context.pythonExec = sys.executable
        context.environment.setdefault("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


def locality_wait_s(context: SparkContext) -> float:
    """How long a task waits for the executor that holds its slot, before it goes elsewhere."""
    conf: Any = context._jsc.sc().conf()  # noqa: SLF001 - it knows units and defaults
    name = "spark.locality.wait"
    return int(conf.getTimeAsMs(name, SETTINGS[name])) / 1000


def session_settings() -> dict[str, str]:
    """The settings that a session of yours should have, for `SparkSession.builder.config(map=...)`.

    >>> from millstream import spark
    >>> sorted(spark.session_settings())[0]
    'spark.locality.wait'
    """
    return dict(SETTINGS)


def check_context(context: SparkContext) -> None:
    """Refuse a session whose settings contradict ours, and say which and how to set them.

    What is only missing is told: it can't be set in a session that runs.
    """
    conf = dict(context.getConf().getAll())
    _refuse_unfit(conf, "the given Spark session")
    use_our_python(context)
    advice = _advice(conf)
    if advice:
        _LOGGER.info(
            "The given Spark session would be better off with other settings: %s. See docs/data.md.",
            "; ".join(advice),
        )


def _complaints(conf: Mapping[str, str]) -> list[str]:
    return [
        f"{name} is {conf.get(name)!r}; set .config({name!r}, {value!r})"
        for name, value in SETTINGS.items()
        if name not in _FREE and conf.get(name, value) != value
    ]


def _advice(conf: Mapping[str, str]) -> list[str]:
    """What an application does without, at the price of a second try of a whole epoch, or of waiting."""
    missing = [
        f"{name} is not set; set .config({name!r}, {value!r})"
        for name, value in SETTINGS.items()
        if name.startswith("spark.task.reaper.enabled") and conf.get(name) is None
    ]
    master = conf.get("spark.master") or ""
    if master.startswith("local") and "," not in master:
        missing.append(
            f'the master is {master!r}, which never runs a failed task again; set .master("local[*,4]")'
        )
    return missing


def _refuse_unfit(conf: Mapping[str, str], where: str) -> None:
    complaints = _complaints(conf)
    if complaints:
        lines = "\n".join(f"  {line}" for line in [*complaints, *_advice(conf)])
        raise ConfigError(
            f"Millstream can't run with {where}:\n{lines}\n"
            "Remedy: set these before the session is made, or pass no session and let Millstream make one."
        )
