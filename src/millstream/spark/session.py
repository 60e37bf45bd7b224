"""The Spark session: the right one made, or a given one checked."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from pyspark import SparkConf, SparkContext

from millstream.errors import ConfigError
from millstream.spark.java import ensure_java

__all__ = ["check_context", "context_of", "make_context"]

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
"""Settings that an application needs, whoever makes the session."""

EMBEDDED: dict[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.rdd.compress": "false",
}
"""Settings of the session that is made when none is given."""


def make_context(application_id: str, settings: Mapping[str, str]) -> SparkContext:
    """A Spark of our own: all cores of this machine, four tries per task, quiet, on loopback only."""
    ensure_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    log_settings = files("millstream.spark") / "log4j2.properties"
    conf = SparkConf().setMaster("local[*,4]").setAppName(application_id)
    for name, value in {**SETTINGS, **EMBEDDED, **settings}.items():
        conf.set(name, value)
    conf.set("spark.pyspark.python", sys.executable)
    conf.set("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log_settings}")
    return SparkContext(conf=conf)


def context_of(spark: Any) -> SparkContext:
    """The context of a session, or a context itself."""
    context = getattr(spark, "sparkContext", spark)
    if not isinstance(context, SparkContext):
        message = f"spark={spark!r} is neither a SparkSession nor a SparkContext"
        raise ConfigError(message)
    return context


def check_context(context: SparkContext) -> None:
    """Refuse a session whose settings would lose a guarantee, and say which and how to set them."""
    conf = context.getConf()
    wrong = [
        f"  {name} is {conf.get(name)!r}; set .config({name!r}, {value!r})"
        for name, value in SETTINGS.items()
        if name not in {"spark.locality.wait", "spark.task.reaper.killTimeout"}
        and conf.get(name, "") != value
    ]
    master = context.master or ""
    if master.startswith("local") and "," not in master:
        wrong.append(
            f'  the master is {master!r}, which never runs a failed task again; set .master("local[*,4]")'
        )
    if wrong:
        raise ConfigError(
            "The given Spark session can't run Millstream:\n" + "\n".join(wrong) + "\n"
            "Remedy: set these before the session is made, or pass no session and let Millstream make one."
        )
