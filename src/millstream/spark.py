"""Millstream for a SparkSession of yours: topics and stores as frames and streaming frames.

>>> from millstream import spark as millstream_spark
>>> def totals(session):
...     millstream_spark.register(session)
...     orders = session.read.format("millstream").option("log", "file:./millstream-data").load("orders")
...     return orders.groupBy("key").count()
"""

from __future__ import annotations

from typing import Any

from millstream.engine.spark.datasource.source import register as _register
from millstream.engine.spark.session import session_settings

__all__ = ["register", "session_settings"]


def register(session: Any) -> Any:
    """Let a SparkSession know the format "millstream"; returns the session.

    >>> from millstream import spark
    >>> def read_counts(session):
    ...     spark.register(session)
    ...     source = session.read.format("millstream").option("log", "file:./millstream-data")
    ...     return source.option("app_id", "wordcount").option("store", "counts").load()
    """
    return _register(session)
