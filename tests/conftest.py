"""For all tests: their folders are in memory, and those that need Spark share one worker, so one Spark."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from functools import cached_property
from typing import Any, Final

import pytest

_MEMORY: Final = "/dev/shm"  # noqa: S108 - pytest makes a private folder in it
_ROOM: Final = 2 << 30
"""Bytes: what the folders of all tests that run at once, and of those that failed, need at most."""

_SPARK: Final = "tests/spark/"
_QUICK: Final = ("src/", "tests/semantics/", "tests/serdes/", "tests/processors/", "tests/dsl/")
_AT_A_TIME: Final = 8


def pytest_configure(config: pytest.Config) -> None:
    """`tmp_path` is in memory where there is room: no test takes the power away, so none needs the disk.

    And the processes that tests start can be interrupted, also if a shell has started us in the background.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers: what takes long comes first, so that none waits long for another in the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(_SPARK))
        items.sort(key=lambda item: item.nodeid.startswith(_QUICK))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests go to workers some at a time; those of Spark all at once."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped] # noqa: PLC0415

    class SomeOfAFile(LoadScopeScheduling):  # type: ignore[misc]
        """A worker gets the next tests of a file: to ask for each one alone costs more than many of them."""

        def _split_scope(self, nodeid: str) -> str:
            return self._units[nodeid]

        @cached_property
        def _units(self) -> dict[str, str]:
            numbers: Counter[str] = Counter()
            return {nodeid: _unit(nodeid, numbers) for nodeid in self.collection}

    config.option.loadscopereorder = False  # see above
    return SomeOfAFile(config, log)


def _unit(nodeid: str, numbers: Counter[str]) -> str:
    """With which others a test is run by one worker; `numbers` has how many each file had so far."""
    if nodeid.startswith(_SPARK):
        return _SPARK
    file = nodeid.partition("::")[0]
    numbers[file] += 1
    return f"{file} {(numbers[file] - 1) // _AT_A_TIME}"
