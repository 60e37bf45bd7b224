"""The tester's own test, for what keeps state small: planted bugs, each of which must turn something red.

A scenario passes as the engine is, and fails with the bug.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.simulation import fault_housekeeping as housekeeping
from tests.simulation.fault_world import RECORDS_OF_AN_EPOCH, World

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.log.api import Compacted, TopicPartition
from millstream.log.embedded.compaction import KeepAll, Kept
from millstream.log.embedded.file_log import FileLog
from millstream.log.embedded.partition import PartitionFiles
from millstream.maintenance import compaction, state_cleaner
from millstream.state.local.cleaning import clean
from millstream.state.snapshots.listing import Listing, listing
from millstream.state.stores import segments
from millstream.state.stores.segments import dropped_by
from millstream.types import Epoch, Offset

ROUNDS = 6
RETAINED = 3


def epochs(world: World, count: int) -> None:
    world.append((count + 1) * RECORDS_OF_AN_EPOCH)
    for _ in range(count):
        world.epoch()


def maintenance_after_every_epoch(world: World) -> None:
    for _ in range(ROUNDS):
        epochs(world, 1)
        world.run_maintenance()
        world.check()
    assert world.happened["files collected"]
    assert world.happened["manifests removed"]


def maintenance_after_more_epochs_than_are_kept(world: World) -> None:
    for _ in range(ROUNDS):
        epochs(world, RETAINED + 1)
        world.run_maintenance()
        world.check()


# What a manifest that is kept needs ---------------------------------------------------------------------


def compaction_ignores_the_manifests_that_are_kept(patch: pytest.MonkeyPatch) -> None:
    def rewrite(self: FileLog, place: TopicPartition, **how: Any) -> bool:
        return real(self, place, **{**how, "up_to": None})

    real = FileLog.rewrite
    patch.setattr(FileLog, "rewrite", rewrite)


def the_collector_ignores_the_manifests_that_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ManifestChain, "kept", lambda *_: iter(()))


def manifests_go_one_too_early(patch: pytest.MonkeyPatch) -> None:
    def remove_unneeded(self: ManifestChain, head: Manifest, pinned: Any = ()) -> int:
        return real(self, structs.replace(head, oldest=head.oldest + 1), pinned)

    real = ManifestChain.remove_unneeded
    patch.setattr(ManifestChain, "remove_unneeded", remove_unneeded)


# What an index, an epoch or a snapshot needs ------------------------------------------------------------


def the_collector_ignores_the_indexes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileLog, "references", lambda *_: {})


def maintenance_that_does_not_fold_the_last_epochs(world: World) -> None:
    for _ in range(2 * ROUNDS):
        epochs(world, 1)
        world.run_maintenance(min_entries=100)
        world.check()


def the_collector_takes_what_is_sealed_just_now(patch: pytest.MonkeyPatch) -> None:
    def earlier(self: ApplicationStorage) -> list[tuple[Epoch, Path]]:
        return [(Epoch(epoch - 1), folder) for epoch, folder in real(self)]

    real = ApplicationStorage.epoch_folders
    patch.setattr(ApplicationStorage, "epoch_folders", earlier)


def maintenance_while_an_epoch_runs(world: World) -> None:
    epochs(world, 2)
    world.tend_beside_an_epoch()
    world.check()


def the_collector_ignores_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tests.simulation.executor.pinned_epochs", lambda *_: ())


def a_disk_is_lost_long_after_the_last_snapshot(world: World) -> None:
    epochs(world, 1)
    world.take_snapshots()
    for _ in range(ROUNDS):
        epochs(world, 1)
        world.run_maintenance()
    epochs(world, 1)
    world.lose_local_state()
    world.epochs_until_restored()
    world.check()


def a_changelog_does_not_say_that_deletions_are_gone(patch: pytest.MonkeyPatch) -> None:
    def compacted(self: PartitionFiles) -> Compacted:
        return replace(real(self), deletes_gone_to=Offset(0))

    real = PartitionFiles.compacted
    patch.setattr(PartitionFiles, "compacted", compacted)


def a_disk_is_lost_after_deletions_were_dropped(world: World) -> None:
    world.write(1, [(b"item9", b"shop0:1", 1)])
    epochs(world, 2)
    world.take_snapshots()
    world.write(1, [(b"item9", None, 2)])
    for _ in range(4):
        housekeeping.compact(world)
    world.lose_local_state()
    world.check_to_the_end()


def the_newest_snapshots_are_torn(world: World) -> None:
    housekeeping.restore_from_torn_manifests(world, ["cut"])
    world.check_to_the_end()


def only_the_newest_snapshot_is_tried(patch: pytest.MonkeyPatch) -> None:
    def newest(*args: Any) -> Listing:
        found = listing(*args)
        return replace(found, manifests=found.manifests[:1])

    patch.setattr("millstream.state.snapshots.restoring.listing", newest)


# What is in a topic -------------------------------------------------------------------------------------


def folding_loses_a_record(patch: pytest.MonkeyPatch) -> None:
    def kept(self: KeepAll, stored: Any) -> Kept:
        found = real(self, stored)
        return Kept(found.records[:-1], found.offsets[:-1]) if stored.append_time % 2 else found

    real = KeepAll.kept
    patch.setattr(KeepAll, "kept", kept)


def compaction_drops_a_segment_too_many(patch: pytest.MonkeyPatch) -> None:
    def dropped(note: bytes) -> tuple[bytes, bytes] | None:
        found = dropped_by(note)
        return found and (found[0], segments.segment_prefix(int.from_bytes(found[1]) + 2))

    patch.setattr(compaction, "dropped_by", dropped)


def windows_expire_and_changelogs_are_compacted(world: World) -> None:
    epochs(world, 2)
    housekeeping.expire(world)
    for _ in range(4):
        housekeeping.compact(world)
        world.check()


def expired_segments_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segments, "_newly_expired", lambda *_: None)


# Whoever comes late -------------------------------------------------------------------------------------


def a_removed_manifest_leaves_its_place_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ManifestChain, "_refuse_if_passed_by", lambda *_: None)
    patch.setattr(ApplicationStorage, "remove_unfinished", lambda _: None)  # else it has nothing to name


def a_driver_wakes_up_after_its_epoch_was_forgotten(world: World) -> None:
    """It was just about to commit: nothing is left to do but to give its manifest the name."""
    epochs(world, 1)
    world.stall(("commit.checked", "durable.file_synced"))
    for _ in range(ROUNDS):
        epochs(world, 1)
        world.run_maintenance()
    assert world.wake() is not None
    world.check()
    world.check_to_the_end()


def clean_up_does_not_ask_where_state_belongs(patch: pytest.MonkeyPatch) -> None:
    def clean_all(*args: Any, may_go: Any, **more: Any) -> list[str]:
        del may_go
        return clean(*args, **more)

    patch.setattr(state_cleaner, "clean", clean_all)


@dataclass(frozen=True)
class Bug:
    """What is planted, and what fails because of it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    scenario: Callable[[World], None]
    symptom: str
    """In the message of what is raised."""
    application: str = "ledger"


BUGS = [
    Bug(compaction_ignores_the_manifests_that_are_kept, maintenance_after_every_epoch, "I4: what is left of"),
    Bug(
        the_collector_ignores_the_manifests_that_are_kept,
        maintenance_after_more_epochs_than_are_kept,
        "I7: .* is not there",
    ),
    Bug(manifests_go_one_too_early, maintenance_after_every_epoch, "No such file|I7: manifests"),
    Bug(the_collector_ignores_the_indexes, maintenance_that_does_not_fold_the_last_epochs, "is missing, but"),
    Bug(the_collector_takes_what_is_sealed_just_now, maintenance_while_an_epoch_runs, "no such file"),
    Bug(the_collector_ignores_snapshots, a_disk_is_lost_long_after_the_last_snapshot, "nothing was restored"),
    Bug(
        a_changelog_does_not_say_that_deletions_are_gone,
        a_disk_is_lost_after_deletions_were_dropped,
        "I5: store",
        "stock",
    ),
    Bug(
        only_the_newest_snapshot_is_tried,
        the_newest_snapshots_are_torn,
        "nothing was restored from a snapshot",
    ),
    Bug(folding_loses_a_record, maintenance_after_every_epoch, "I1: .* has lost"),
    Bug(
        compaction_drops_a_segment_too_many,
        windows_expire_and_changelogs_are_compacted,
        "I4: what is left of windows",
        "footfall",
    ),
    Bug(
        expired_segments_stay,
        windows_expire_and_changelogs_are_compacted,
        "I5: store windows|I4: store windows",
        "footfall",
    ),
    Bug(
        a_removed_manifest_leaves_its_place_free,
        a_driver_wakes_up_after_its_epoch_was_forgotten,
        "I7: manifest .* has become another one",
    ),
    Bug(
        clean_up_does_not_ask_where_state_belongs,
        housekeeping.clean_up_elsewhere,
        "state that is in its place was deleted",
    ),
]


def world_of(bug: Bug, folder: Path) -> World:
    return World(
        folder,
        bug.application,
        "lmdb",
        seed=1,
        snapshot_interval=1_000_000,
        snapshots_retained=2,
        retained_manifests=RETAINED,
        delete_retention_ms=0,
    )


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug: Bug, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(bug, tmp_path / "right") as world:
        bug.scenario(world.create_topics())
    bug.plant(monkeypatch)
    with (
        world_of(bug, tmp_path / "wrong") as world,
        pytest.raises((Exception, pytest.fail.Exception)) as caught,
    ):
        bug.scenario(world.create_topics())
    caught.match(bug.symptom)
