"""Restores by key in a world that is too small for them: the same code, with smaller runs and blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa

from millstream.state.changelog.external_sort import SortedRuns, sorted_runs

__all__ = ["restores_by_key"]


@contextmanager
def restores_by_key(rows: int, happened: Counter[str]) -> Iterator[None]:
    """Let restores of so many rows and more be by key, in several runs of several blocks; count them."""
    run_rows = max(2, rows // 2)

    def small(parts: Iterable[list[pa.RecordBatch]]) -> Iterator[list[pa.RecordBatch]]:
        for batch in (batch for part in parts for batch in part):
            yield from ([batch.slice(at, run_rows)] for at in range(0, len(batch), run_rows))

    def counted(parts: Iterable[list[pa.RecordBatch]], folder: Path) -> AbstractContextManager[SortedRuns]:
        happened["restored by key"] += 1
        return sorted_runs(small(parts), folder)

    with (
        mock.patch("millstream.state.changelog.follow.SORTED_ROWS", rows),
        mock.patch("millstream.state.changelog.follow.BATCH_ROWS", run_rows),
        mock.patch("millstream.state.changelog.external_sort._BLOCK_ROWS", 2),
        mock.patch("millstream.state.changelog.follow.sorted_runs", counted),
    ):
        yield
