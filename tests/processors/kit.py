"""What tests of single operators share: a context that takes notes, and short ways to write batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from millstream import serdes, stores
from millstream.processors.batch import Batch
from millstream.processors.operator import Operator
from millstream.processors.operator_times import OperatorTimes
from millstream.processors.record_cache import RecordCache
from millstream.processors.table_history import TableHistory
from millstream.record import Headers
from millstream.state.backends.memory import MemoryBackend
from millstream.state.stores.factory import open_store

TABLE = stores.timestamped_key_value("table")


class Notes:
    """An `OperatorContext` that skips rows that fail, and remembers what it was told."""

    node = "node"
    task_id = "0_0"
    caught_up = True
    now = 0
    """The wall clock."""

    def __init__(self, children: Sequence[str] = ()) -> None:
        self.children = tuple(children)
        self.failures: list[tuple[int, Exception]] = []
        self.drops = 0
        self.fallen_back: Counter[str] = Counter()
        self.backend = MemoryBackend()
        self.cache = RecordCache()
        self.times = OperatorTimes()
        self.late_rows: list[int] = []
        self.table: Any = open_store(TABLE, self.backend, serdes.string, serdes.json)

    def wall_clock(self) -> int:
        return self.now

    def store(self, name: str) -> Any:
        assert name == "table"
        return self.table

    def record_cache(self, store: str) -> RecordCache:
        assert store == "table"
        return self.cache

    def table_history(self, store: str) -> TableHistory | None:
        return None

    def serde(self, name: str, part: Literal["key", "value"], given: Any) -> Any:
        del name, part
        return given

    def failed(self, batch: Batch, row: int, error: Exception) -> None:
        self.failures.append((row, error))

    def dropped(self, count: int) -> None:
        self.drops += count

    def late(self, batch: Batch, rows: Sequence[int]) -> None:
        self.late_rows += rows

    def fell_back(self, form: str, count: int) -> None:
        self.fallen_back[form] += count

    def processor_context(self) -> Any:
        raise NotImplementedError

    def fixed_key_context(self) -> Any:
        raise NotImplementedError

    def transformer_context(self) -> Any:
        raise NotImplementedError

    @property
    def messages(self) -> list[tuple[int, str]]:
        """Row and message of each failure."""
        return [(row, str(error)) for row, error in self.failures]

    def commit(self) -> None:
        """The epoch ends: what was written is what was committed."""
        self.backend.write(self.table.overlay.sorted_entries(), marker=b"1")
        self.table.overlay.clear()


def opened(operator: Operator, notes: Notes | None = None) -> Notes:
    """Open an operator; its context."""
    notes = notes if notes is not None else Notes()
    operator.open(notes)
    return notes


def batch_of(
    *pairs: tuple[Any, Any],
    timestamps: Sequence[int] | None = None,
    headers: Sequence[Headers] | None = None,
    olds: Sequence[Any] | None = None,
) -> Batch:
    """Rows by key and value, one millisecond apart, in order."""
    rows = range(len(pairs))
    return Batch(
        keys=[key for key, _ in pairs],
        values=[value for _, value in pairs],
        timestamps=list(rows) if timestamps is None else timestamps,
        headers=headers,
        origins=list(rows),
        olds=olds,
        order=[(row,) for row in rows],
    )


def pairs_of(batch: Any) -> list[tuple[Any, Any]]:
    """Keys and values of a batch."""
    assert isinstance(batch, Batch)
    return list(zip(batch.keys, batch.values, strict=True))


def updates_of(batch: Any) -> list[tuple[Any, Any, Any, int]]:
    """Key, new value, old value and timestamp of each row of a table's batch."""
    assert isinstance(batch, Batch)
    olds = batch.olds if batch.olds is not None else [None] * len(batch)
    return list(zip(batch.keys, batch.values, olds, batch.timestamps, strict=True))


def fails_on(bad: Any, result: Any = None) -> Any:
    """A function that raises when one of its arguments is `bad`, else answers the result or the last one."""

    def function(*arguments: Any) -> Any:
        if bad in arguments:
            message = f"can't do {bad}"
            raise ValueError(message)
        return arguments[-1] if result is None else result

    return function
