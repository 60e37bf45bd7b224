"""How a store is asked for: by name, serdes and a few switches. Nothing here opens anything."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.errors import TopologyError

Backend = Any
"""A backend's name, or a supplier object of the user's own."""


class StoreKind(Enum):
    """What shape a store's values have."""

    KEY_VALUE = "key-value"
    TIMESTAMPED_KEY_VALUE = "timestamped key-value"


@dataclass(frozen=True, slots=True)
class Store:
    """How an operator of the DSL keeps its table (Kafka Streams' `Materialized`).

    name
        The identity of the state on disk and in the changelog. Without one the store gets a numbered
        name, which shifts when an operator is inserted in front of it: name what you want to keep.
    key, value
        Serdes; by default those of the operator.
    caching
        True: one update per key and epoch goes on. False: every update does, in order.
    logging
        False: no changelog, the store starts empty after its disk is lost.
    backend
        "memory", "rocksdb", "lmdb" or a supplier of your own; by default the application's.
    retention_ms
        For windowed stores, how long a window stays readable.

    >>> from millstream import Store
    >>> Store("counts", caching=False).name
    'counts'
    """

    name: str | None = None
    key: Any = None
    value: Any = None
    caching: bool = True
    logging: bool = True
    backend: Backend = None
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoreBuilder:
    """A store as the topology knows it; made by `millstream.stores` or by the DSL."""

    name: str
    kind: StoreKind
    key: Any = None
    value: Any = None
    caching: bool = False
    logging: bool = True
    backend: Backend = None

    def __post_init__(self) -> None:
        if not self.name:
            message = (
                "a state store needs a name: it is the identity of the state on disk and in the changelog"
            )
            raise TopologyError(message)


def key_value(
    name: str,
    *,
    key: Any = None,
    value: Any = None,
    caching: bool = False,
    logging: bool = True,
    backend: Backend = None,
) -> StoreBuilder:
    """A key-value store for the Processor API.

    >>> from millstream import serdes, stores
    >>> stores.key_value("last-seen", key=serdes.string, value=serdes.int64).name
    'last-seen'
    """
    return StoreBuilder(name, StoreKind.KEY_VALUE, key, value, caching, logging, backend)


def timestamped_key_value(
    name: str,
    *,
    key: Any = None,
    value: Any = None,
    caching: bool = False,
    logging: bool = True,
    backend: Backend = None,
) -> StoreBuilder:
    """A key-value store whose values are `ValueAndTimestamp`, for the Processor API.

    >>> from millstream import serdes, stores
    >>> stores.timestamped_key_value("prices", value=serdes.double).kind.value
    'timestamped key-value'
    """
    return StoreBuilder(name, StoreKind.TIMESTAMPED_KEY_VALUE, key, value, caching, logging, backend)
