"""LMDB stores whose snapshots take until a gate is opened: a file, which every worker can see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from millstream.state.backends.lmdb import LmdbBackend, LmdbSupplier

MOST_S = 120.0


@dataclass(frozen=True)
class GatedSnapshots(LmdbSupplier):
    """Opens them."""

    gate: Path = Path()

    def open(self, path: Path, *, segment_bytes: int = 0) -> LmdbBackend:
        backend = super().open(path, segment_bytes=segment_bytes)
        gated = partial(begin_snapshot, backend.begin_snapshot, self.gate)
        backend.begin_snapshot = gated  # type: ignore[method-assign]
        return backend


@contextmanager
def begin_snapshot(
    begin: Callable[[Path], AbstractContextManager[Callable[[], None]]], gate: Path, path: Path
) -> Iterator[Callable[[], None]]:
    """Begin as always; what is slow, and not under the task's lock, waits for the gate."""
    with begin(path) as finish:

        def finish_late() -> None:
            end = time.monotonic() + MOST_S
            while not gate.exists():
                assert time.monotonic() < end, "nobody opens the gate"
                time.sleep(0.01)
            finish()

        yield finish_late
