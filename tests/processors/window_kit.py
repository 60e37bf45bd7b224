"""What tests of windowed operators share: their context over a window store, and records in short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.processors.kit import Notes, opened

from millstream import SlidingWindows, TimeWindows, UnlimitedWindows, Windowed, serdes
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.batch import Batch
from millstream.processors.windows.sliding_windows import SlidingWindowAggregation
from millstream.processors.windows.time_windows import TimeWindowAggregation
from millstream.record import MAX_TIME, Headers
from millstream.serdes import Serde
from millstream.state.backends.memory import MemoryBackend
from millstream.state.specs import StoreBuilder, StoreKind
from millstream.state.stores.factory import open_store
from millstream.state.stores.segments import SEGMENT_BYTES, apply_changes
from millstream.state.stores.store import changes_of, epoch_committed

Input = tuple[Any, Any, int]
"""Key, value and timestamp."""
Sent = tuple[Any, int, Any, int]
"""Key, start of the window, value and timestamp."""


class WindowNotes(Notes):
    """The context of a windowed operator, over a store in memory."""

    def __init__(self, spec: StoreBuilder, value: Serde[Any]) -> None:
        super().__init__()
        self.backend = MemoryBackend(segment_bytes=SEGMENT_BYTES)
        self.table = open_store(spec, self.backend, serdes.string, value)

    def commit(self) -> None:
        apply_changes(self.backend, changes_of(self.table), b"1", segmented=True)
        epoch_committed(self.table)


class Windows:
    """A windowed operator at work."""

    def __init__(
        self,
        windows: TimeWindows | SlidingWindows | UnlimitedWindows,
        aggregation: Aggregation,
        *,
        caching: bool = False,
        send_old: bool = False,
        on_close: bool = False,
        value: Serde[Any] = serdes.int64,
    ) -> None:
        settings: dict[str, Any] = {"caching": caching, "send_old": send_old, "on_close": on_close}
        self.operator: SlidingWindowAggregation | TimeWindowAggregation
        if isinstance(windows, SlidingWindows):
            size, retention = windows.difference_ms, 2 * windows.difference_ms + windows.grace_ms
            self.operator = SlidingWindowAggregation("table", windows, aggregation, **settings)
        else:
            size = windows.size_ms if isinstance(windows, TimeWindows) else MAX_TIME
            retention = min(size + windows.grace_ms, MAX_TIME)
            self.operator = TimeWindowAggregation("table", windows, aggregation, **settings)
        spec = StoreBuilder(
            "table",
            StoreKind.TIMESTAMPED_WINDOW,
            caching=caching,
            retention_ms=retention,
            window_size_ms=size,
            time_ordered=on_close,
        )
        self.notes = WindowNotes(spec, value)
        opened(self.operator, self.notes)

    def take(self, *inputs: Input, headers: Sequence[Headers] | None = None) -> list[Sent]:
        """Give a batch; what it sends."""
        batch = self.operator.process(records(inputs, headers))
        return sent(batch)

    def flush(self) -> list[Sent]:
        """End the epoch; what was held back."""
        found = sent(self.operator.flush())
        self.notes.commit()
        return found

    @property
    def late(self) -> int:
        return len(self.notes.late_rows)


def records(inputs: Sequence[Input], headers: Sequence[Headers] | None = None) -> Batch:
    """A batch of records."""
    return Batch(
        keys=[key for key, _, _ in inputs],
        values=[value for _, value, _ in inputs],
        timestamps=[timestamp for _, _, timestamp in inputs],
        headers=headers,
        origins=list(range(len(inputs))),
        order=[(row,) for row in range(len(inputs))],
    )


def sent(batch: Batch | None) -> list[Sent]:
    """The rows of a windowed table, in short."""
    if batch is None:
        return []
    assert all(isinstance(key, Windowed) for key in batch.keys)
    rows = zip(batch.keys, batch.values, batch.timestamps, strict=True)
    return [(key.key, key.window.start, value, timestamp) for key, value, timestamp in rows]
