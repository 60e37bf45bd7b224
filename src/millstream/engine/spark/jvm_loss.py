"""What PySpark and py4j say about a JVM that died goes to the debug log of `millstream`, not to stderr.

Whoever called Spark gets an exception all the same, and Millstream tells that once, in its own words.
"""

from __future__ import annotations

import logging
import socketserver
import sys
import warnings
from typing import Any, Final

from py4j import clientserver, java_gateway
from py4j.protocol import Py4JNetworkError
from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

_LOGGER = logging.getLogger("millstream")
_LOSS: Final = (Py4JNetworkError, OSError, EOFError)


def log_jvm_loss_at_debug() -> None:
    """For this process, from now on. To call it again changes nothing."""
    # py4j tells some of it through the root logger, which also sets up logging for the whole process.
    java_gateway.logging = java_gateway.logger
    for logger in (java_gateway.logger, clientserver.logger):
        logger.addFilter(_TO_DEBUG)
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = _handle_error  # type: ignore[method-assign, assignment]
    warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM process", RuntimeWarning)


class _ToDebug(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info is None or not isinstance(record.exc_info[1], _LOSS):
            return True
        _LOGGER.debug("py4j: %s", record.getMessage(), exc_info=record.exc_info)
        return False


_TO_DEBUG: Final = _ToDebug()


def _handle_error(server: socketserver.BaseServer, request: Any, client_address: Any) -> None:
    """In place of `BaseServer.handle_error`, which prints."""
    error = sys.exc_info()[1]
    if isinstance(error, _LOSS):
        _LOGGER.debug("PySpark's accumulator server lost the JVM", exc_info=error)
    else:
        socketserver.BaseServer.handle_error(server, request, client_address)
