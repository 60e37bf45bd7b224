"""What all stores of a task have in common: a name, two serdes, and an overlay that an epoch writes to.

The functions below are the task's side of a store. They are not methods, because a user's processor holds
the same object, and must neither seal nor forget an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from millstream.errors import StoreError
from millstream.serdes import Serde, serde_failure
from millstream.state.specs import StoreBuilder
from millstream.state.stores.overlay import Entry, Overlay

K = TypeVar("K")


class StateStore(Generic[K]):
    """A store of one task, of whatever kind: committed state and what the epoch has written."""

    def __init__(self, spec: StoreBuilder, overlay: Overlay, key: Serde[K], value: Serde[Any]) -> None:
        self.name = spec.name
        self.overlay = overlay
        self.key_serde = key
        self.value_serde = value

    def _changes(self) -> Sequence[Entry]:
        return self.overlay.sorted_entries()

    def _take(self, entries: Sequence[Entry]) -> None:
        self.overlay.put_many(entries)

    def _committed(self) -> None:
        self.overlay.clear()

    def _forget(self) -> None:
        self.overlay.clear()

    def _key_bytes(self, key: K) -> bytes:
        if key is None:
            raise StoreError(f"store {self.name!r}: the key is None, but every entry of a store needs a key")
        try:
            return self.key_serde.serialize(key)
        except Exception as error:
            raise serde_failure(
                error, serde=self.key_serde, value=key, part="key", store=self.name
            ) from error

    def _encode(self, value: Any) -> bytes | None:
        """A value of the store's own kind as it is stored; None deletes."""
        return None if value is None else self._value_bytes(value)

    def _decode(self, data: bytes) -> Any:
        """Undo `_encode`."""
        return self.value_serde.deserialize(data)

    def _value_bytes(self, value: Any) -> bytes:
        try:
            return self.value_serde.serialize(value)
        except Exception as error:
            raise serde_failure(error, serde=self.value_serde, value=value, store=self.name) from error


def changes_of(store: StateStore[Any]) -> Sequence[Entry]:
    """The sorted writes of an epoch: changelog rows and the backend's write batch in one."""
    return store._changes()  # noqa: SLF001 - see above


def take_changes(store: StateStore[Any], entries: Sequence[Entry]) -> None:
    """Write what another store of the same kind had in `changes_of`: this one is a copy of it."""
    store._take(entries)  # noqa: SLF001 - see above


def epoch_committed(store: StateStore[Any]) -> None:
    """The backend has what the epoch wrote: the next epoch begins."""
    store._committed()  # noqa: SLF001 - see above


def forget_epoch(store: StateStore[Any]) -> None:
    """Drop what an epoch has written."""
    store._forget()  # noqa: SLF001 - see above
