"""From a store's description to the store: a typed face over an overlay over a backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from millstream.serdes import Serde
from millstream.state.specs import StoreBuilder, StoreKind
from millstream.state.stores.key_value import KeyValueStore, TimestampedKeyValueStore
from millstream.state.stores.list_value import ListValueStore
from millstream.state.stores.overlay import CommittedReader, Overlay
from millstream.state.stores.session import SessionStore
from millstream.state.stores.store import StateStore
from millstream.state.stores.time_buffer import TimeOrderedBuffer
from millstream.state.stores.versioned import VersionedKeyValueStore
from millstream.state.stores.window import TimestampedWindowStore, WindowStore

_FACES: Final[dict[StoreKind, Callable[..., StateStore[Any]]]] = {
    StoreKind.KEY_VALUE: KeyValueStore,
    StoreKind.TIMESTAMPED_KEY_VALUE: TimestampedKeyValueStore,
    StoreKind.VERSIONED_KEY_VALUE: VersionedKeyValueStore,
    StoreKind.WINDOW: WindowStore,
    StoreKind.TIMESTAMPED_WINDOW: TimestampedWindowStore,
    StoreKind.SESSION: SessionStore,
    StoreKind.LIST_VALUE: ListValueStore,
    StoreKind.TIME_ORDERED_BUFFER: TimeOrderedBuffer,
}


def open_store(
    spec: StoreBuilder, committed: CommittedReader, key: Serde[Any], value: Serde[Any]
) -> StateStore[Any]:
    """The store of one task over what is committed."""
    return _FACES[spec.kind](spec, Overlay(committed), key, value)
