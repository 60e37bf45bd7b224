"""From a store's description to the store: a typed face over an overlay over a backend."""

from __future__ import annotations

from typing import Any

from millstream.serdes import Serde
from millstream.state.keyvalue import KeyValueStore, TimestampedKeyValueStore
from millstream.state.overlay import CommittedReader, Overlay
from millstream.state.specs import StoreBuilder, StoreKind

_FACES: dict[StoreKind, type[KeyValueStore[Any, Any]]] = {
    StoreKind.KEY_VALUE: KeyValueStore,
    StoreKind.TIMESTAMPED_KEY_VALUE: TimestampedKeyValueStore,
}


def open_store(
    spec: StoreBuilder, committed: CommittedReader, key: Serde[Any], value: Serde[Any]
) -> KeyValueStore[Any, Any]:
    """The store of one task over what is committed."""
    return _FACES[spec.kind](spec.name, Overlay(committed), key, value)
