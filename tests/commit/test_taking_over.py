"""Step 1: a coordinator starts. Whatever the last one left, and whoever else is awake."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulation.fault_points import MAINTENANCE_STALL_SITES
from tests.simulation.fault_world import RECORDS_OF_AN_EPOCH, World
from tests.simulation.faulty_files import FaultyFiles
from tests.simulation.stalls import Site

from millstream.commit.lease import LeaseLostError
from millstream.commit.manifest import LostManifestError
from millstream.log import FileLog, TopicConfig
from millstream.log.errors import OffsetOutOfRangeError


def test_a_coordinator_that_died_twice_before_its_witness_can_be_followed(world: World) -> None:
    world.crash("commit.manifest_written")
    world.crash("commit.manifest_written")
    world.crash("commit.manifest_written")

    world.check_to_the_end()


def test_a_head_is_durable_before_it_is_published(running: World) -> None:
    """The manifest got its name and its coordinator died; another one publishes it; then the power fails."""
    running.crash_at(("commit.checked", "durable.linked"))
    running.crash("commit.published")
    assert isinstance(running.files, FaultyFiles)
    running.files.power_cut()

    running.check_to_the_end()


def test_a_coordinator_that_stood_still_in_its_start_is_told_that_it_was_overtaken(running: World) -> None:
    running.stall(("commit.leased",), opening=True)
    running.epoch()

    error = running.wake()

    assert isinstance(error, LeaseLostError)
    running.check_to_the_end()


@pytest.mark.parametrize("wakes_at", ["commit.leased", "commit.published"])
def test_an_epoch_that_was_being_committed_when_the_lease_changed_hands_counts(
    running: World, wakes_at: str
) -> None:
    """The old coordinator had checked its lease; the new one has read the head; then the old one commits."""
    running.stall(("commit.checked", "durable.file_synced"))
    running.stall((wakes_at,), opening=True)

    assert running.wake() is None
    assert running.wake() is None

    running.check_to_the_end()


def test_a_coordinator_that_is_refused_lets_the_lease_go(running: World) -> None:
    running.close()
    (head,) = sorted((running.application_folder / "manifests").iterdir())[-1:]
    taken = head.read_bytes()
    head.unlink()
    with pytest.raises(LostManifestError):
        running.open()

    head.write_bytes(taken)
    running.app = running.new_executor()  # without waiting for the lease to run out

    running.check_to_the_end()


def test_an_application_whose_whole_folder_is_gone_does_not_begin_again(running: World) -> None:
    running.close()
    shutil.rmtree(running.application_folder)

    with pytest.raises(LostManifestError) as caught:
        running.open()

    assert "shows epoch" in str(caught.value)
    assert "the last manifest of application 'app' is 0" in str(caught.value)


def test_a_source_that_ends_before_the_committed_position_is_refused(running: World) -> None:
    running.close()
    shutil.rmtree(running.log_root / "topics" / "orders")
    running.files = FaultyFiles(running.disk)
    FileLog(running.log_root, files=running.files).create_topic("orders", TopicConfig(partitions=2))

    with pytest.raises(OffsetOutOfRangeError) as caught:
        running.epoch()

    assert "orders-" in str(caught.value)
    assert "were committed" in str(caught.value)


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[World]:
    """A world that keeps two manifests, after two epochs."""
    with World(tmp_path, "ledger", "memory", retained_manifests=2).create_topics() as world:
        go_on(world, 2)
        yield world


def go_on(world: World, epochs: int) -> None:
    """Run epochs, and tidy up after each."""
    world.append((epochs + 2) * RECORDS_OF_AN_EPOCH)
    for _ in range(epochs):
        world.epoch()
        world.run_maintenance()


@pytest.mark.parametrize(
    "site",
    [
        ("commit.checked", "durable.file_synced"),  # its place in the chain is free again
        ("commit.manifest_written",),  # its epoch counts, and the sealed files are gone
    ],
)
def test_a_coordinator_that_slept_until_its_epoch_was_forgotten_is_told_that_it_was_overtaken(
    forgetful: World, site: Site
) -> None:
    forgetful.stall(site)
    go_on(forgetful, 5)
    before = sorted((forgetful.application_folder / "manifests").glob("[0-9]*"))

    error = forgetful.wake()

    assert isinstance(error, LeaseLostError)
    assert sorted((forgetful.application_folder / "manifests").glob("[0-9]*")) == before
    forgetful.check_to_the_end()


@pytest.mark.parametrize("site", MAINTENANCE_STALL_SITES)
def test_a_coordinator_that_slept_while_it_tidied_up_is_told_that_it_was_overtaken(
    forgetful: World, site: Site
) -> None:
    forgetful.stall_in_maintenance(site)
    go_on(forgetful, 5)

    error = forgetful.wake()

    assert isinstance(error, LeaseLostError)
    forgetful.check_to_the_end()


@pytest.mark.parametrize("point", ["commit.checked", "commit.manifest_written"])
def test_what_a_killed_coordinator_was_just_writing_is_removed_by_the_next(
    running: World, point: str
) -> None:
    running.crash_at((point, "durable.file_synced"))
    unfinished = [path for path in running.application_folder.rglob(".*") if path.is_file()]
    assert unfinished

    running.open()

    assert not [path for path in unfinished if path.exists()]
    running.check_to_the_end()
