"""The objects by which a program asks for stores: a replica of each, or such as ask the hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, get_args

from millstream.commit.application_storage import ApplicationStorage
from millstream.errors import ConfigError
from millstream.log import FileLog
from millstream.query.host_stores import Hosts, HostStore, ReadFrom
from millstream.query.replica import Replica

__all__ = ["StoreHandles"]

R = TypeVar("R", bound=Replica)
H = TypeVar("H", bound=HostStore)

_WAYS: Final = get_args(ReadFrom)


class StoreHandles:
    """Asked twice for a replica it gives the same one. Objects that ask hosts are light, and made anew.

    Each of these answers one thread at a time, and none goes back behind what it has answered itself.
    """

    def __init__(
        self,
        storage: ApplicationStorage,
        log: FileLog,
        hosts: Hosts,
        engine: str,
        frame_of_parts: Callable[..., Any],
    ) -> None:
        self._storage = storage
        self._log = log
        self._hosts = hosts
        self._engine = engine
        self._frame_of_parts = frame_of_parts
        self._replicas: dict[tuple[str, int], Replica] = {}

    def get(
        self, replica: type[R], on_hosts: type[H], name: str, read_from: ReadFrom, max_staleness_ms: int
    ) -> R | H:
        """A store, in a copy in this process or on the hosts that have it."""
        self._check(name, read_from, max_staleness_ms)
        if read_from != "replica":
            return on_hosts(self._hosts, name, read_from, max_staleness_ms)
        made = self._replicas.get((name, max_staleness_ms))
        if not isinstance(made, replica):
            plan = self._hosts.plan
            made = replica(self._storage, self._log, plan, name, self._frame_of_parts, max_staleness_ms)
            self._replicas[name, max_staleness_ms] = made
        return made

    def _check(self, name: str, read_from: str, max_staleness_ms: int) -> None:
        if not isinstance(max_staleness_ms, int) or max_staleness_ms < 0:
            raise ConfigError(
                f"store {name!r}: max_staleness_ms={max_staleness_ms!r}. Remedy: give milliseconds, 0 or more"
            )
        if read_from not in _WAYS:
            known = ", ".join(map(repr, _WAYS))
            raise ConfigError(f"store {name!r}: read_from={read_from!r}. Remedy: give one of {known}")
        if read_from != "replica" and self._engine != "resident":
            raise ConfigError(
                f"store {name!r}: read_from={read_from!r} with engine={self._engine!r}, where no process "
                'keeps stores open that could answer. Remedy: read_from="replica", a copy in this process, '
                'or StreamsConfig(engine="resident")'
            )
