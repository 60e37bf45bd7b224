"""The process that forks Spark's Python workers: PySpark's own daemon, quiet about Spark's end.

When Spark ends, its JVM closes the connections of workers. A worker that was just about to say something
finds its pipe broken and prints that, all of it or only the first line, because the daemon ends its workers
at the same time. Nobody is to blame and nothing is lost: whoever ended Spark knows, and so does a driver
whose JVM was killed.

Spark starts it by name (`spark.python.daemon.module`), as a module of its own: workers are forked from it, so
it must import nothing that starts threads, as Millstream's other modules may.
"""

from __future__ import annotations

import builtins
import sys
import traceback
from typing import Any

from pyspark import daemon

_SPARK_IS_GONE = (BrokenPipeError, ConnectionResetError, ConnectionAbortedError, EOFError, KeyboardInterrupt)


class QuietTraceback:
    """In place of the module `traceback`, as far as PySpark's daemon uses it."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """Print what a worker died of, unless it is that Spark is gone."""
        if not isinstance(sys.exc_info()[1], _SPARK_IS_GONE):
            traceback.print_exc()


def quiet_print(*what: Any, **where: Any) -> None:
    """In place of `print`, with which PySpark's daemon tells what it could not send to Spark."""
    if not isinstance(sys.exc_info()[1], _SPARK_IS_GONE):
        builtins.print(*what, **where)  # noqa: T201 - as it was


def main() -> None:
    """Run PySpark's daemon."""
    vars(daemon).update(traceback=QuietTraceback, print=quiet_print)
    daemon.manager()


if __name__ == "__main__":
    main()
