"""The size of stores that an epoch's report tells: that of after the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.simulation.executor import InProcessExecutor

from millstream import StreamsBuilder, serdes
from millstream.commit.epoch import run_epoch
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.state.backends import Backend, supplier
from millstream.state.stores.overlay import Entry
from millstream.state.stores.size_after import size_after
from millstream.state.stores.written_columns import WrittenColumns
from millstream.types import Partition

IN = TopicPartition("in", Partition(0))


def key(number: int) -> bytes:
    return b"%06d" % number


def filled(folder: Path, count: int) -> Backend:
    backend = supplier("memory").open(folder)
    backend.write([(key(number), b"old") for number in range(count)], marker=b"1")
    return backend


@pytest.mark.parametrize("name", ["lmdb", "memory"])  # RocksDB counts what was overwritten twice
def test_a_report_counts_the_entries_that_its_own_epoch_adds_and_removes(tmp_path: Path, name: str) -> None:
    FileLog(tmp_path / "log").create_topic("in", TopicConfig(partitions=1))
    builder = StreamsBuilder()
    builder.table("in", key=serdes.string, value=serdes.string, store="rows")
    with InProcessExecutor(
        builder.build(),
        application_id="app",
        log_root=tmp_path / "log",
        state_dir=tmp_path / "state",
        backend=name,
    ) as executor:

        def entries_after(*rows: tuple[bytes, bytes | None]) -> int:
            keys, values = [key for key, _ in rows], [value for _, value in rows]
            executor.log.append(IN, record_batch(keys, values, [0] * len(rows)))
            epoch = run_epoch(executor.coordinator, executor)
            assert epoch is not None
            (report,) = epoch.reports
            return report.state_size.approximate_entries

        assert entries_after((b"a", b"1"), (b"b", b"1"), (b"c", b"1")) == 3
        assert entries_after((b"a", b"2"), (b"d", b"1")) == 4
        assert entries_after((b"a", None), (b"b", None), (b"x", None)) == 2


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([], 10),
        ([(key(number), b"new") for number in range(5, 15)], 15),
        ([(key(number), None) for number in range(5, 15)], 5),
    ],
)
def test_keys_are_counted_once_and_deletes_only_if_they_were_there(
    tmp_path: Path, written: Sequence[Entry], expected: int
) -> None:
    with filled(tmp_path, 10) as backend:
        assert size_after(backend, written).approximate_entries == expected


def test_many_writes_are_judged_by_a_few_of_them(tmp_path: Path) -> None:
    looked_up: list[int] = []
    with filled(tmp_path, 50_000) as backend:

        class Watched:
            scan, scan_reverse, size = backend.scan, backend.scan_reverse, backend.size
            scan_ranges = backend.scan_ranges

            def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
                looked_up.append(len(keys))
                return backend.get_many(keys)

        numbers = range(25_000, 125_000)  # a quarter of them is there
        keys = [key(number) for number in numbers]
        columns = WrittenColumns(pa.array(keys), pa.array(keys), pa.array(numbers))
        for written in (columns, [(each, each) for each in keys]):
            assert size_after(Watched(), written).approximate_entries == 125_000
    assert looked_up == [2_000, 2_000]


def test_the_first_writes_are_counted_without_looking_anything_up(tmp_path: Path) -> None:
    with supplier("memory").open(tmp_path) as backend:
        written = [(key(number), None if number % 3 == 0 else b"new") for number in range(9_000)]
        assert size_after(backend, written).approximate_entries == 6_000
