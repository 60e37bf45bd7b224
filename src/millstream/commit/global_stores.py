"""Global stores as the tasks of an epoch see them: the host's copy at the head, and the epoch's own changes.

A global sub-topology has one task that reads all partitions of its topic. That task commits what the store
became, as every task does, and by the changelog each host keeps a copy at the head. A task that reads the
store opens this copy, beside all others of the host, and runs the epoch's records of the topic over it, in
memory: before its own records, and with the same result in every task, whenever and wherever it runs. So
whoever joins with the store joins with the same one, in a second attempt, too.

Nothing is opened before a task asks for it. Tasks that run one after the other have one copy open together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self

from millstream.state.backends.api import Backend
from millstream.state.stores.store import StateStore
from millstream.topology.plan import SubTopology

OpenStores = Callable[[SubTopology, ExitStack], Mapping[str, StateStore[Any]]]
"""Opens the stores of a global sub-topology as they are in the epoch, and says what to close at the end."""


class GlobalCopies:
    """The host's copies of global stores that tasks of an epoch have open, until the `with` block ends.

    Only of backends that others may read at the same time: a slot that waits for another one holds them.
    """

    def __init__(self) -> None:
        self._resources = ExitStack()
        self._opened: dict[str, dict[str, Backend]] = {}

    def opened(
        self, task_id: str, open_now: Callable[[], AbstractContextManager[dict[str, Backend]]]
    ) -> dict[str, Backend]:
        """The stores of a global task, at the version that the epoch is made on top of."""
        found = self._opened.get(task_id)
        if found is None:
            found = self._opened[task_id] = self._resources.enter_context(open_now())
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.clear()
        self._resources.close()


class GlobalStores(Mapping[str, StateStore[Any]]):
    """All global stores by name. A context manager, because what is open has to be closed."""

    def __init__(self, subs: Sequence[SubTopology], open_stores: OpenStores) -> None:
        self._subs = subs
        self._names = frozenset(name for sub in subs for name in sub.stores)
        self._open_stores = open_stores
        self._resources = ExitStack()
        self._opened: dict[str, StateStore[Any]] = {}

    def __getitem__(self, name: str) -> StateStore[Any]:
        if name in self._names and not self._opened:
            # All of them, in one order: tasks that wait for each other's copies would wait for ever.
            for sub in self._subs:
                self._opened.update(self._open_stores(sub, self._resources))
        return self._opened[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.clear()
        self._resources.close()
