"""A store on every backend at once, over epochs that are committed or forgotten, and a replay of each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.state.backends import NAMES, Backend, Entry, Row, supplier
from millstream.state.specs import StoreBuilder
from millstream.state.stores.factory import open_store
from millstream.state.stores.segments import SEGMENT_BYTES, apply_changes
from millstream.state.stores.store import StateStore, changes_of, epoch_committed, forget_epoch

# What is written here need not last: in memory the many syncs of new stores cost nothing.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
FOLDER = SHARED_MEMORY if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 1 << 30 else None


class StoreWorld(RuleBasedStateMachine):
    """Subclasses say which store, write to all copies and to a naive model, and compare every answer."""

    spec: StoreBuilder

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="stores-", dir=FOLDER))
        self.backends: dict[str, Backend] = {name: self._backend(name, "own") for name in NAMES}
        self.stores: dict[str, Any] = {
            name: open_store(self.spec, backend, self.spec.key, self.spec.value)
            for name, backend in self.backends.items()
        }
        self.changelog: list[list[Entry]] = []
        self.new_model()
        self.saved: Any = self.copy_of_model()

    def teardown(self) -> None:
        self.resources.close()
        shutil.rmtree(self.folder)

    # What a subclass brings.

    def new_model(self) -> None:
        """Begin with an empty model."""
        raise NotImplementedError

    def copy_of_model(self) -> Any:
        """What `restore_model` needs."""
        raise NotImplementedError

    def restore_model(self, saved: Any) -> None:
        """Go back to what was copied."""
        raise NotImplementedError

    # What they share.

    def each(self, act: Callable[[Any], object]) -> list[object]:
        """The answers of all copies of the store."""
        return [act(store) for store in self.stores.values()]

    def expect(self, expected: object, ask: Callable[[Any], object]) -> None:
        """Ask all copies, and compare."""
        for name, store in self.stores.items():
            assert expected == ask(store), name

    @rule()
    def commit(self) -> None:
        changes = {name: changes_of(store) for name, store in self.stores.items()}
        (first, *others) = changes.values()
        assert all(first == other for other in others)
        self.changelog.append(list(first))
        for name, store in self.stores.items():
            apply_changes(
                self.backends[name], changes[name], self._marker(), segmented=self.spec.is_segmented
            )
            epoch_committed(store)
        self.saved = self.copy_of_model()

    @rule()
    def forget(self) -> None:
        for store in self.stores.values():
            forget_epoch(store)
        self.restore_model(self.saved)

    @rule()
    def go_on_with_a_new_task(self) -> None:
        """As every epoch on a cluster does: nothing but the backend is left."""
        self.forget()
        self.stores = {
            name: open_store(self.spec, backend, self.spec.key, self.spec.value)
            for name, backend in self.backends.items()
        }

    @rule()
    def replay(self) -> None:
        """The changelog, epoch by epoch and all at once, gives the store's bytes."""
        expected = [list(backend.scan()) for backend in self.backends.values()]
        assert all(expected[0] == other for other in expected)
        for name in NAMES:
            assert expected[0] == self._replayed(name, self.changelog), name
            folded: dict[bytes, bytes | None] = {}
            for entries in self.changelog:
                folded.update(entries)
            assert expected[0] == self._replayed(name, [sorted(folded.items())]), name

    @invariant()
    def nothing_is_written_before_the_commit(self) -> None:
        for backend in self.backends.values():
            assert self._marker() == (backend.marker() or b"0")

    def _marker(self) -> bytes:
        return b"%d" % len(self.changelog)

    def _backend(self, name: str, what: str) -> Backend:
        path = self.folder / f"{name}-{what}"
        segments = SEGMENT_BYTES if self.spec.is_segmented else 0
        return self.resources.enter_context(supplier(name).open(path, segment_bytes=segments))

    def _replayed(self, name: str, changelog: list[list[Entry]]) -> list[Row]:
        path = self.folder / f"{name}-replayed"
        segments = SEGMENT_BYTES if self.spec.is_segmented else 0
        with supplier(name).open(path, segment_bytes=segments) as backend:
            for entries in changelog:
                apply_changes(backend, entries, b"", segmented=self.spec.is_segmented, bulk=True)
            rows = list(backend.scan())
        shutil.rmtree(path)
        return rows


def over(spec: StoreBuilder, backend: Backend) -> StateStore[Any]:
    """A store over a backend."""
    return open_store(spec, backend, spec.key, spec.value)
