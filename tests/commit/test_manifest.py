"""Manifests: written once, all at once; a chain that says where it is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.simulation.faulty_files import FaultyFiles

from millstream import failpoints
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.lease import LeaseLostError
from millstream.commit.manifest import LostManifestError, Manifest, ManifestChain, TaskEntry
from millstream.durable import OS_FILES, FileLayer
from millstream.durable.layer import OsFileLayer
from millstream.types import Epoch, Offset, Partition, Term


def folder_in(path: Path, files: FileLayer = OS_FILES) -> ApplicationStorage:
    folder = ApplicationStorage(path, "orders", files)
    folder.ensure()
    return folder


def next_to(head: Manifest | None, *, term: int = 1) -> Manifest:
    epoch = 1 if head is None else head.epoch + 1
    return Manifest(
        application_id="orders",
        epoch=Epoch(epoch),
        term=Term(term),
        parent="" if head is None else head.digest(),
        fingerprint="plan",
        clock_ms=epoch * 1_000,
        positions=(("lines", Partition(0), Offset(10 * epoch)),),
        tasks={},
        sealed=(),
        inferred_types=(),
    )


def write(chain: ManifestChain, manifest: Manifest) -> None:
    """Both steps of a commit."""
    chain.witness(chain.place(manifest))


def commit(chain: ManifestChain, count: int) -> list[Manifest]:
    """Write some manifests, each after the head."""
    written: list[Manifest] = []
    for _ in range(count):
        written.append(next_to(chain.head()))
        write(chain, written[-1])
    return written


def test_there_is_no_head_before_the_first_commit(tmp_path: Path) -> None:
    assert ManifestChain(folder_in(tmp_path)).head() is None


def test_the_head_is_the_last_manifest_written(tmp_path: Path) -> None:
    chain = ManifestChain(folder_in(tmp_path))

    written = commit(chain, 3)

    assert chain.head() == written[-1]
    assert [chain.read(Epoch(epoch)) for epoch in (1, 2, 3)] == written


def test_equal_manifests_have_equal_bytes_and_digests() -> None:
    one, two = next_to(None), next_to(None)

    assert one.encoded() == two.encoded()
    assert one.digest() == two.digest()
    assert one.digest() != next_to(None, term=2).digest()


def test_a_position_is_known_or_was_never_read() -> None:
    manifest = next_to(None)

    assert manifest.position("lines", Partition(0)) == 10
    assert manifest.position("lines", Partition(1)) is None
    assert manifest.position("others", Partition(0)) is None


def test_of_two_coordinators_that_commit_an_epoch_the_second_is_told(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    chain = ManifestChain(folder)
    first = next_to(None, term=2)
    write(chain, first)

    with pytest.raises(LeaseLostError) as caught:
        write(chain, next_to(None, term=1))

    assert str(caught.value) == (
        "Epoch 1 of application 'orders' was committed by another coordinator (term 2, this one has term 1). "
        "Nothing of this epoch is visible. Likely cause: this coordinator was stopped or cut off for longer "
        "than its lease. Remedy: end it; the other one goes on."
    )
    assert chain.head() == first
    assert [path.name for path in folder.manifests.iterdir()] == [f"{1:020d}"]


def test_a_manifest_of_another_application_is_refused(tmp_path: Path) -> None:
    chain = ManifestChain(folder_in(tmp_path))
    write(chain, msgspec.structs.replace(next_to(None), application_id="payments"))

    with pytest.raises(LostManifestError) as caught:
        chain.head()

    assert "holds manifest 1 of application 'payments'" in str(caught.value)


def test_files_that_are_being_written_are_not_seen(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    chain = ManifestChain(folder)
    (head,) = commit(chain, 1)
    with failpoints.armed("durable.file_synced"), pytest.raises(failpoints.InjectedCrash):
        write(chain, next_to(head))

    assert len(list(folder.manifests.iterdir())) == 2
    assert chain.head() == head


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_a_witness_that_is_behind_is_settled(tmp_path: Path, epochs: int) -> None:
    folder = folder_in(tmp_path)
    chain = ManifestChain(folder)
    commit(chain, epochs - 1)
    with failpoints.armed("commit.manifest_written"), pytest.raises(failpoints.InjectedCrash):
        write(chain, next_to(chain.head()))

    chain.complete_head(chain.head())

    settled = folder.witness.read_bytes()
    assert f'"epoch":{epochs}'.encode() in settled
    chain.complete_head(chain.head())
    assert folder.witness.read_bytes() == settled


def test_settling_makes_the_name_of_the_head_durable(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    chain = ManifestChain(folder_in(tmp_path, files))
    with failpoints.armed("durable.linked"), pytest.raises(failpoints.InjectedCrash):
        write(chain, next_to(None))
    head = chain.head()
    assert head is not None

    chain.complete_head(head)
    files.power_cut()

    assert chain.head() == head


def test_a_commit_is_durable_when_it_returns(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    chain = ManifestChain(folder_in(tmp_path, files))
    written = commit(chain, 2)

    files.power_cut()

    assert chain.head() == written[-1]


class OtherDriver(OsFileLayer):
    """Lets another coordinator act just before some file is opened."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name = name
        self._act: Callable[[], None] | None = act

    def open(self, path: Path, flags: int) -> int:
        act, self._act = (self._act, None) if path.name == self._name else (None, self._act)
        if act is not None:
            act()
        return super().open(path, flags)


@pytest.mark.parametrize("looks_at", ["HEAD", f"{1:020d}", f"{2:020d}"])
def test_a_commit_while_the_chain_is_read_is_no_loss(tmp_path: Path, looks_at: str) -> None:
    other = ManifestChain(folder_in(tmp_path))
    before = commit(other, 2)[-1]
    after = next_to(before)
    files = OtherDriver(looks_at, lambda: write(other, after))

    head = ManifestChain(folder_in(tmp_path, files)).head()

    assert head in (before, after)
    assert other.head() == after


def test_of_the_manifests_with_which_idle_tasks_have_last_sealed_the_newest_hundred_stay(
    tmp_path: Path,
) -> None:
    folder = folder_in(tmp_path)
    chain = ManifestChain(folder)
    for epoch in range(1, 131):
        chain.place(msgspec.structs.replace(next_to(None), epoch=Epoch(epoch)))
    entries = {
        f"0_{number}": TaskEntry(Epoch(version), "", "", (), {}, 0, (), ())
        for number, version in enumerate((*range(1, 121), 125, 125))
    }
    head = msgspec.structs.replace(next_to(None), epoch=Epoch(131), tasks=entries, oldest=121)
    chain.place(head)

    assert chain.remove_unneeded(head, pinned={7}) == 19

    assert [int(path.name) for path in sorted(folder.manifests.iterdir())] == [7, *range(21, 132)]


def test_the_last_manifest_may_be_removed_while_somebody_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, slow = (ManifestChain(folder_in(tmp_path)) for _ in range(2))
    written = commit(chain, 3)
    head = msgspec.structs.replace(next_to(written[-1]), oldest=4)
    found = iter([[Epoch(3)], [Epoch(4)]])
    monkeypatch.setattr(slow, "_epochs", lambda: next(found))
    write(chain, head)
    chain.remove_unneeded(head)

    assert slow.latest() == head


def test_a_manifest_that_is_gone_for_good_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = ManifestChain(folder_in(tmp_path))
    monkeypatch.setattr(chain, "_epochs", lambda: [Epoch(3)])

    with pytest.raises(FileNotFoundError):
        chain.latest()


def test_the_place_of_a_manifest_that_was_removed_is_not_free(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    chain = ManifestChain(folder)
    written = commit(chain, 4)
    head = msgspec.structs.replace(next_to(written[-1], term=2), oldest=4)
    write(chain, head)
    assert chain.remove_unneeded(head) == 3
    before = sorted(folder.manifests.iterdir())

    with pytest.raises(LeaseLostError) as caught:
        chain.place(next_to(written[0]))

    assert "Epoch 2 of application 'orders' was committed by another coordinator (term 2" in str(caught.value)
    assert sorted(folder.manifests.iterdir()) == before
    assert chain.head() == head
