"""An assignment as people and tools see it: each place of each task, how far it is, and why it is there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from millstream.engine.assignment.model import Change

__all__ = ["AssignedTask", "AssignmentFile", "KeyMetadata", "Rebalance", "instance_rows"]

_NAME: Final = "assignment.json"
_EVERY_S: Final = 1.0
_SHARE: Final = 50
"""A file that takes a while to write is written less often: at most a fiftieth of the time goes into it."""


class AssignedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task at one of its places.

    >>> AssignedTask(task="0_1", role="standby", host="river", instance="a", slot=3).lag is None
    True
    """

    task: str
    role: str
    """"active", "standby" or "warm-up"."""
    host: str
    instance: str
    """Names the state directory of the host."""
    slot: int
    version: int | None = None
    """The epoch that its state is of; None: it has none yet, or it is not known."""
    position: int | None = None
    """How many records of its changelogs it has; None for a task without state."""
    lag: int | None = None
    """How many it misses."""
    lag_epochs: int | None = None
    """How many epochs it is behind."""
    why: str = ""
    """Why it is there."""


class KeyMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Where a key of a store is.

    >>> KeyMetadata(store="counts", partition=1, task="0_1").active_host is None
    True
    """

    store: str
    partition: int
    task: str
    active_host: str | None = None
    """None: the engine does not say, or the task has not run yet."""
    standby_hosts: tuple[str, ...] = ()
    lags: dict[str, int] = {}
    """How many records of the changelogs each standby misses, by host."""


class Rebalance(msgspec.Struct, frozen=True):
    """Tasks, or copies of their state, get other places: told when that begins, and when it is over.

    >>> print(Rebalance("host river is gone", (), is_over=True))
    rebalance is over: host river is gone
    """

    reason: str
    changes: tuple[Change, ...]
    is_over: bool = False

    def __str__(self) -> str:
        lines = "".join(f"\n  {change}" for change in self.changes)
        return f"rebalance{' is over' if self.is_over else ''}: {self.reason}{lines}"


class AssignmentFile:
    """The last assignment, for other processes to look at. Nobody decides by it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._last: tuple[AssignedTask, ...] = ()
        self._not_before = 0.0

    def write(self, ask: Callable[[], Sequence[AssignedTask]]) -> None:
        """Write what it is now, if it has changed and the last time is a while ago."""
        if time.monotonic() < self._not_before:
            return
        began = time.thread_time()
        tasks = tuple(ask())
        if not tasks or self._last == tasks:
            return
        self._last = tasks
        new = self._path.with_name(f".{_NAME}.{os.getpid()}.tmp")
        new.write_bytes(msgspec.json.encode(self._last))
        new.replace(self._path)
        self._not_before = time.monotonic() + max(_EVERY_S, _SHARE * (time.thread_time() - began))

    def read(self) -> list[AssignedTask]:
        """As it was written last; empty if it never was."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[AssignedTask])
        except FileNotFoundError:
            return []


def instance_rows(tasks: Sequence[AssignedTask]) -> dict[str, str]:
    """A line for each host, as the live table shows it. Of a single one there is nothing to tell.

    >>> one = AssignedTask(task="0_1", role="active", host="brook", instance="b", slot=1)
    >>> two = AssignedTask(task="0_1", role="standby", host="river", instance="a", slot=3, lag=7)
    >>> instance_rows([one, two])["host river"]
    '0 active, 1 standby, 7 records behind'
    """
    rows: dict[str, str] = {}
    hosts = dict.fromkeys(sorted(one.host for one in tasks))
    for host in hosts if len(hosts) > 1 else ():
        mine = [one for one in tasks if one.host == host]
        counts = [
            f"{sum(one.role == role for one in mine)} {role}"
            for role in ("active", "standby", "warm-up")
            if role != "warm-up" or any(one.role == role for one in mine)
        ]
        behind = sum(one.lag or 0 for one in mine if one.role != "active")
        rows[f"host {host}"] = ", ".join([*counts, *([f"{behind} records behind"] if behind else [])])
    return rows
