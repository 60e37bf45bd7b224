"""What a store without a changelog was written is in sealed files alone: its task shares them with nobody."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import FastFiles

from millstream import Store, StreamsBuilder, Topology, serdes
from millstream.commit.coordinator import CoordinatorSettings
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.types import Partition


def counts() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.bytes, value=serdes.bytes)
    stream.group_by_key().count(store=Store("seen", logging=False))
    return builder.build()


def test_an_idle_task_with_a_store_without_a_changelog_keeps_its_last_file(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    log = FileLog(tmp_path / "log", files=FastFiles())
    log.create_topic("in", TopicConfig(2))
    with InProcessExecutor(
        counts(),
        application_id="app",
        log_root=log.root,
        state_dir=tmp_path / "state",
        files=FastFiles(),
        settings=CoordinatorSettings(retained_manifests=2),
    ) as executor:
        executor.apply_after_commit = False
        for number in range(12):
            for partition in (0, 1) if number < 2 else (1,):
                place = TopicPartition("in", Partition(partition))
                log.append(place, record_batch([b"k"], [b"v"], [number]))
            executor.run_epoch()
            executor.run_maintenance(min_entries=1)
        idle = executor.coordinator.head.tasks["0_0"]
        assert not idle.is_shared
        assert (log.root / idle.file).is_file()
        log.append(TopicPartition("in", Partition(0)), record_batch([b"k"], [b"v"], [99]))
        executor.run_epoch()
