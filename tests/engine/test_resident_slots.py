"""Slots that stay, as threads of this process: epochs, bundles, lost slots, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.engine.slots_in_threads import SlotsInThreads
from tests.spark.lab import Lab
from tests.spark.programs import COUNTING, check_exact, words

from millstream import StreamsConfig, Topology
from millstream.engine.loop import EpochLoop
from millstream.engine.program import Program, make_worker
from millstream.log import open_log
from millstream.commit.application_storage import ApplicationStorage


@contextmanager
def running(lab: Lab, topology: Topology, slots: int = 2, **settings: object) -> Iterator[tuple[EpochLoop, SlotsInThreads]]:
    config = StreamsConfig(state_dir=lab.state_dir, default_partitions=2, **settings)  # type: ignore[arg-type]
    log = open_log(lab.folder / "log")
    storage = ApplicationStorage(log.root, "app")
    program = Program.of(topology, storage, log.address, config)
    engine = SlotsInThreads(lambda: make_worker(program), slots)
    loop = EpochLoop(storage, log, topology.plan(), engine, config)
    loop.open()
    try:
        yield loop, engine
    finally:
        loop.close()


def run_all(loop: EpochLoop) -> int:
    epochs = 0
    while loop.run_epoch(tick=False) is not None or loop.has_backlog:
        epochs += 1
    return epochs


@pytest.mark.parametrize("program", COUNTING)
@pytest.mark.parametrize("slots", [1, 3])
def test_every_record_counts_once(tmp_path: Path, program: str, slots: int) -> None:
    lab = Lab(tmp_path / "lab", None)
    lab.topic("in", parts := words(200, seed=8))
    with running(lab, COUNTING[program](), slots, max_records_per_epoch=25) as (loop, engine):
        run_all(loop)
        assert engine.failures == []
    check_exact(lab, program, parts)
