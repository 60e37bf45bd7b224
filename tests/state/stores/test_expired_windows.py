"""Windows of the DSL that have expired are gone: from the disk, the changelog, and snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.executor import InProcessExecutor

from millstream import StreamsBuilder, TimeWindows, Topology, serdes
from millstream.commit.coordinator import CoordinatorSettings
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.processors.columns import column
from millstream.state.backends import supplier
from millstream.state.changelog.rows import changelog_topic
from millstream.state.stores.segments import SEGMENT_BYTES
from millstream.types import Partition

MINUTE = 60_000
HOUR = 60 * MINUTE
HOURS = 30
IN = TopicPartition("in", Partition(0))
CHANGELOG = TopicPartition(changelog_topic("app", "counts"), Partition(0))


def hopping_count() -> Topology:
    builder = StreamsBuilder()
    clicks = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    windows = TimeWindows(HOUR, advance=MINUTE)
    clicks.windowed_by(windows).count(store="counts").to_stream().to("out", value=serdes.int64)
    return builder.build()


def hours(rows: list[bytes]) -> list[int]:
    """The hours in which windows start, by the keys of rows: segment, key, start, four bytes more."""
    return sorted({int.from_bytes(row[-12:-4]) // HOUR for row in rows if row})


@pytest.mark.parametrize("many", [0, 10**9], ids=["columns", "rows"])
def test_expired_windows_are_gone_from_disk_changelog_and_snapshot(
    tmp_path: Path, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column, "MANY_ROWS", many)
    tmp_path.chmod(0o700)
    log = FileLog(tmp_path / "log")
    log.create_topic("in")
    with InProcessExecutor(
        hopping_count(),
        application_id="app",
        log_root=log.root,
        state_dir=tmp_path / "state",
        backend="lmdb",
        settings=CoordinatorSettings(retained_manifests=2),
    ) as executor:
        for hour in range(HOURS):
            times = [hour * HOUR + minute * MINUTE for minute in range(0, 60, 10)]
            log.append(IN, record_batch([b"k"] * len(times), [b"v"] * len(times), times))
            executor.run_epoch()
            executor.run_maintenance(min_entries=4)

    # A window lives for an hour from its start, and segments are half an hour long.
    live = [HOURS - 2, HOURS - 1]
    lmdb, path = supplier("lmdb"), tmp_path / "state" / "app" / "0_0" / "lmdb" / "counts"
    with lmdb.open(path, segment_bytes=SEGMENT_BYTES) as store:
        assert hours([row for row, _ in store.scan()]) == live
        store.snapshot(tmp_path / "snapshot")
    with lmdb.restore(tmp_path / "snapshot", tmp_path / "restored", segment_bytes=SEGMENT_BYTES) as store:
        assert hours([row for row, _ in store.scan()]) == live
    kept = [batch.records.column(0) for batch in log.read(CHANGELOG, log.earliest(CHANGELOG))]
    assert hours([row for part in kept for row in part.to_pylist()])[0] >= HOURS - 10  # to be compacted yet
