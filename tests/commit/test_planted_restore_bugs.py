"""The tester's own test, for restores by key and tables that follow their source topic: planted bugs.

A script passes as the engine is, and fails with the bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs
from tests.simulation.fault_steps import (
    Append,
    Compact,
    Crash,
    Epoch,
    LoseLocalState,
    Maintain,
    Restart,
    Stall,
    Wake,
)
from tests.simulation.fault_world import NoFaultError
from tests.simulation.faults import Script, play, scripted_world

from millstream.log.api import Log
from millstream.maintenance import compaction
from millstream.state.changelog import external_sort as sorting
from millstream.state.changelog import follow as following
from millstream.state.changelog.external_sort import SortedRuns
from millstream.state.changelog.follow import StorePosition, Target
from millstream.state.local import task_stores
from millstream.types import Offset, Version

EPOCHS = [Epoch(apply=True)] * 3
LOST = (Append(40), *EPOCHS, LoseLocalState(None), *EPOCHS)


def by_key(application: str, backend: str) -> Script:
    """A store is lost, and restored by key from several runs."""
    return Script(1, application, backend, LOST, sorted_rows=4)


def forgets_the_last_run(patch: pytest.MonkeyPatch) -> None:
    def batches(self: SortedRuns, batch_rows: int) -> Iterator[Any]:
        return real(replace(self, runs=self.runs[:-1] or self.runs), batch_rows)

    real = SortedRuns.batches
    patch.setattr(SortedRuns, "batches", batches)


def keeps_the_older_value(patch: pytest.MonkeyPatch) -> None:
    def batches(self: SortedRuns, batch_rows: int) -> Iterator[Any]:
        return real(replace(self, runs=self.runs[::-1]), batch_rows)

    real = SortedRuns.batches
    patch.setattr(SortedRuns, "batches", batches)


def brings_back_what_has_expired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "dropped_by", lambda _note: None)


def leaves_deleted_rows_out_of_a_run(patch: pytest.MonkeyPatch) -> None:
    """A tombstone in a later run then does not hide the value in an earlier one."""

    @contextmanager
    def runs(parts: Iterable[list[pa.RecordBatch]], folder: Path) -> Iterator[SortedRuns]:
        with real(
            ([batch.filter(batch.column(1).is_valid()) for batch in part] for part in parts), folder
        ) as made:
            yield made

    real = sorting.sorted_runs
    patch.setattr("tests.simulation.small_restores.sorted_runs", runs)


def restores_a_table_beyond_the_commit(patch: pytest.MonkeyPatch) -> None:
    def read(log: Log, target: Target, start: Offset) -> Iterator[Any]:
        if target.writes_of is not None:
            end = log.latest(target.changelog)
            target = replace(target, position=following.StorePosition(target.position.version, end))
        return real(log, target, start)

    real = following._read
    patch.setattr(following, "_read", read)


def ignores_timestamps_of_the_source(patch: pytest.MonkeyPatch) -> None:
    def as_bytes(timestamps: pa.Array) -> pa.Array:
        return pa.array([bytes(8)] * len(timestamps), pa.binary())

    patch.setattr("millstream.state.changelog.source_changelog._as_bytes", as_bytes)


def compacts_a_source_beyond_the_oldest_manifest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compaction, "compaction_bound", lambda *_: None)


def asks_only_which_version_a_store_has(patch: pytest.MonkeyPatch) -> None:
    """A half-restored one has none yet, but rows: of a later version than a coordinator of the past wants."""

    def refuse(store: str, partition: int, here: StorePosition, wanted: StorePosition) -> None:
        real(store, partition, structs.replace(here, toward=Version(0)), wanted)

    real = following.refuse_newer
    for user in (following, task_stores):
        patch.setattr(user, "refuse_newer", refuse)


def goes_on_with_a_half_restored_store_that_has_no_topic_to_follow(patch: pytest.MonkeyPatch) -> None:
    asks_only_which_version_a_store_has(patch)
    patch.setattr(task_stores, "RESTORING", None)


@dataclass(frozen=True)
class Bug:
    """What is planted, and the script that fails because of it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    script: Script
    symptom: str


FOLLOWED = Script(1, "inventory", "lmdb", LOST)
COMPACTED = Script(1, "inventory", "memory", (Append(60), *EPOCHS, Compact(), Maintain(beside_an_epoch=True)))
HALF_RESTORED = (
    Append(12),
    Stall("opening", ("commit.fenced",)),
    Restart(),
    *EPOCHS,
    LoseLocalState(None),
    Crash("epoch", "follow.batch_applied", "raise", skip=0, then="look"),
    Wake(),
)
"""A coordinator from before the first epoch wakes up where a restore by key has ended half-way."""
BUGS = [
    Bug(forgets_the_last_run, by_key("ledger", "lmdb"), "I[1245]"),
    Bug(forgets_the_last_run, by_key("inventory", "memory"), "I[1245]"),
    Bug(keeps_the_older_value, by_key("word count", "lmdb"), "I[1245]"),
    Bug(brings_back_what_has_expired, by_key("footfall", "lmdb"), "I[1245]"),
    Bug(leaves_deleted_rows_out_of_a_run, by_key("stock", "lmdb"), "I[1245]"),
    Bug(restores_a_table_beyond_the_commit, FOLLOWED, "I[1245]"),
    Bug(restores_a_table_beyond_the_commit, by_key("inventory", "lmdb"), "I[1245]"),
    Bug(ignores_timestamps_of_the_source, FOLLOWED, "I[1245]"),
    *(
        Bug(
            asks_only_which_version_a_store_has,
            Script(6, "ledger", backend, HALF_RESTORED, sorted_rows=1),
            "I5",
        )
        for backend in ("memory", "lmdb", "rocksdb")
    ),
    *(
        Bug(
            goes_on_with_a_half_restored_store_that_has_no_topic_to_follow,
            Script(6, "inventory", backend, HALF_RESTORED, sorted_rows=1),
            "I5",
        )
        for backend in ("memory", "lmdb", "rocksdb")
    ),
    Bug(compacts_a_source_beyond_the_oldest_manifest, COMPACTED, "I4"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.plant.__name__}-{bug.script.application}")
def test_a_planted_bug_is_caught(bug: Bug, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(bug.script, tmp_path / "right")
    bug.plant(monkeypatch)
    with pytest.raises(AssertionError, match=bug.symptom) as caught:
        play(bug.script, tmp_path / "wrong")
    assert not isinstance(caught.value, NoFaultError)


@pytest.mark.parametrize("application", ["word count", "ledger", "stock", "inventory", "footfall"])
def test_a_small_world_restores_by_key_if_it_is_told_to(tmp_path: Path, application: str) -> None:
    script = by_key(application, "lmdb")
    for number, chosen in enumerate((script, replace(script, sorted_rows=None))):
        with scripted_world(chosen, tmp_path / str(number)).create_topics() as world:
            for step in chosen.steps:
                step.do(world)
        assert (world.happened["restored by key"] > 0) == (chosen is script)
