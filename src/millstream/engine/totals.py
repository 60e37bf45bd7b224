"""What an application has done since it was started, summed up over its epochs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from millstream.engine.epoch_result import EpochResult
from millstream.state.backends.api import NO_STATE, StoreSize


class Totals:
    """Sums of committed epochs only: what was run in vain is not in them."""

    def __init__(self) -> None:
        self.epochs = 0
        self._records = 0
        self._enforced = 0
        self._counters: Counter[tuple[str, str]] = Counter()
        self._last: EpochResult | None = None
        self._latency_ms: int | None = None
        self._state_sizes: dict[str, StoreSize] = {}

    def note(self, result: EpochResult) -> None:
        """Add an epoch."""
        self.epochs += 1
        self._records += result.records
        self._enforced += result.enforced
        self._counters.update(result.counters)
        self._last = result
        if result.latency_ms is not None:
            self._latency_ms = result.latency_ms
        self._state_sizes.update(result.state_sizes)

    def as_dict(self) -> dict[str, Any]:
        """The figures, by name."""
        last = self._last
        nodes: dict[str, dict[str, int]] = {}
        for (node, name), count in sorted(self._counters.items()):
            nodes.setdefault(node, {})[name] = count
        state = sum(self._state_sizes.values(), NO_STATE)
        return {
            "epochs": self.epochs,
            "records": self._records,
            "records_per_second": 0.0 if last is None else last.records / max(last.seconds, 1e-9),
            "last_epoch": None if last is None else last.manifest.epoch,
            "last_epoch_seconds": None if last is None else last.seconds,
            "last_epoch_records": None if last is None else last.records,
            "last_epoch_stages": {} if last is None else dict(last.stages),
            "last_epoch_task_stages": {} if last is None else dict(last.task_stages),
            "latency_ms": self._latency_ms,
            "enforced_processing": self._enforced,
            "state_entries": state.approximate_entries,
            "state_bytes": state.bytes,
            "nodes": nodes,
        }
