"""A chain of manifests that is not whole is refused, and nothing is written over what is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.simulation.fault_world import World

from millstream.commit.manifest import LostManifestError
from millstream.durable import DamagedFileError
from millstream.errors import MillstreamError


def manifest(world: World, epoch: int) -> Path:
    return world.application_folder / "manifests" / f"{epoch:020d}"


def head(world: World) -> Path:
    return manifest(world, 4)


def witness(world: World) -> Path:
    return world.application_folder / "HEAD"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def put_head_in_place_of(world: World, epoch: int) -> None:
    manifest(world, epoch).write_bytes(head(world).read_bytes())


def delete_all(world: World) -> None:
    for path in (world.application_folder / "manifests").iterdir():
        path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def go_back_to(world: World, epoch: int) -> None:
    """As if the application's folder, and nothing else, came from an older backup."""
    for later in range(epoch + 1, 5):
        manifest(world, later).unlink()
    witness(world).unlink()


Damage = Callable[[World], None]
LOST: dict[str, tuple[Damage, str]] = {
    "head deleted": (
        lambda world: head(world).unlink(),
        "epoch 4 was committed, but the last manifest is 3",
    ),
    "middle deleted": (
        lambda world: manifest(world, 2).unlink(),
        "manifest 2 is missing between others",
    ),
    "first deleted": (
        lambda world: manifest(world, 1).unlink(),
        "there is no manifest before 2",
    ),
    "all deleted": (
        delete_all,
        "epoch 4 was committed, but the last manifest is 0",
    ),
    "head in the place of another": (
        lambda world: put_head_in_place_of(world, 3),
        "holds manifest 4 of application 'app'",
    ),
    "witness deleted": (
        lambda world: witness(world).unlink(),
        "HEAD is missing, so nobody knows whether epoch 4 was the last",
    ),
    "back to an older backup, without a witness": (
        lambda world: go_back_to(world, 1),
        "shows epoch 4 of task",
    ),
}
DAMAGED: dict[str, Damage] = {
    "head cut": lambda world: cut(head(world)),
    "head flipped": lambda world: flip(head(world)),
    "head emptied": lambda world: empty(head(world)),
    "middle cut": lambda world: cut(manifest(world, 2)),
    "middle flipped": lambda world: flip(manifest(world, 2)),
    "witness cut": lambda world: cut(witness(world)),
    "witness flipped": lambda world: flip(witness(world)),
}


@pytest.fixture
def ended(running: World) -> World:
    running.epoch()
    running.close()
    assert head(running).exists()
    return running


def everything(world: World) -> dict[str, bytes]:
    """All files but the leases: a coordinator that is refused has held one."""
    leases = world.application_folder / "leases"
    return {
        str(path.relative_to(world.folder)): path.read_bytes()
        for path in sorted(world.folder.rglob("*"))
        if path.is_file() and leases not in path.parents
    }


def refused(world: World) -> MillstreamError:
    before = everything(world)
    with pytest.raises(MillstreamError) as caught:
        world.open()
    assert everything(world) == before
    return caught.value


@pytest.mark.parametrize("how", LOST)
def test_a_chain_with_something_missing_is_refused_and_left_alone(ended: World, how: str) -> None:
    damage, message = LOST[how]
    damage(ended)

    error = refused(ended)

    assert isinstance(error, LostManifestError)
    assert message in str(error)
    assert "Nothing was changed. Likely cause:" in str(error)
    assert "Remedy: restore" in str(error)


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_chain_is_refused_and_left_alone(ended: World, how: str) -> None:
    DAMAGED[how](ended)

    error = refused(ended)

    assert isinstance(error, DamagedFileError)
    assert str(ended.application_folder) in str(error)


def test_a_manifest_of_another_history_is_refused(ended: World, tmp_path: Path) -> None:
    """It is whole and has the right number, but it was written after something else."""
    with World(tmp_path / "other", "ledger", "memory", seed=7).create_topics() as other:
        other.append(18)
        for _ in range(3):
            other.epoch()
        other.close()
        manifest(ended, 3).write_bytes(manifest(other, 3).read_bytes())

    error = refused(ended)

    assert "manifest 3 does not continue manifest 2" in str(error)


def test_a_witness_of_another_history_is_refused(ended: World, tmp_path: Path) -> None:
    with World(tmp_path / "other", "ledger", "memory", seed=7).create_topics() as other:
        other.append(18)
        for _ in range(3):
            other.epoch()
        other.close()
        witness(ended).write_bytes(witness(other).read_bytes())

    error = refused(ended)

    assert "manifest 4 is not the one that was committed" in str(error)


def test_what_was_refused_runs_again_when_the_file_is_back(ended: World) -> None:
    kept = head(ended).read_bytes()
    head(ended).unlink()
    refused(ended)

    head(ended).write_bytes(kept)

    ended.check_to_the_end()


def test_a_store_from_the_future_is_refused_with_both_versions(ended: World) -> None:
    """The log came from an older backup than the local state."""
    backup = {path: path.read_bytes() for path in ended.disk.rglob("*") if path.is_file()}
    ended.open()
    ended.epoch()
    ended.close()
    for path in list(ended.disk.rglob("*")):
        if path.is_file():
            path.unlink()
    for path, content in backup.items():
        path.write_bytes(content)
    ended.files = ended.make_files(ended.disk)
    ended.open()

    with pytest.raises(MillstreamError) as caught:
        ended.epoch()

    assert "is at version 6 (changelog offset" in str(caught.value)
    assert "but the last commit is version 4 (offset" in str(caught.value)
