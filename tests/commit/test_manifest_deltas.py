"""Manifests as deltas: as small as what an epoch did, and as good as whole ones, whatever happens."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.simulation.faulty_files import FaultyFiles
from tests.state.small_app import FastFiles, SmallApp

from millstream import failpoints
from millstream.commit import manifest as manifests
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import (
    LostManifestError,
    Manifest,
    ManifestChain,
    ManifestDelta,
    Record,
    TaskEntry,
)
from millstream.durable import OS_FILES, FileLayer
from millstream.types import Epoch, Offset, Partition, Term

TASKS = 500
MOST_DELTAS = 3


@pytest.fixture(autouse=True)
def deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small manifests are, most of them are deltas."""
    monkeypatch.setattr(manifests, "MIN_BYTES_FOR_DELTAS", 0)
    monkeypatch.setattr(manifests, "MOST_DELTAS", MOST_DELTAS)


def storage_in(path: Path, files: FileLayer = OS_FILES) -> ApplicationStorage:
    storage = ApplicationStorage(path, "orders", files)
    storage.ensure()
    return storage


def entry(version: int) -> TaskEntry:
    return TaskEntry(
        Epoch(version), f"sealed/{version}", f"{version:032x}", (), {"counts": Offset(version)}, 0, (), ()
    )


def first(tasks: int = TASKS) -> Manifest:
    return Manifest(
        application_id="orders",
        epoch=Epoch(1),
        term=Term(1),
        parent="",
        fingerprint="plan",
        clock_ms=1_000,
        positions=tuple(("lines", Partition(number), Offset(0)) for number in range(tasks)),
        tasks={f"0_{number}": entry(1) for number in range(tasks)},
        sealed=tuple(sorted(f"0_{number}" for number in range(tasks))),
        inferred_types=(),
        plan={"subtopologies": []},
    )


def after(before: Manifest, *active: int, **changes: object) -> Manifest:
    """The commit of an epoch in which some tasks have read a record each."""
    positions = {(topic, number): at for topic, number, at in before.positions}
    for number in active:
        place = ("lines", Partition(number))
        positions[place] = Offset(positions.get(place, 0) + 1)
    epoch = Epoch(before.epoch + 1)
    made = msgspec.structs.replace(
        before,
        epoch=epoch,
        parent=before.digest(),
        clock_ms=1_000 * epoch,
        positions=tuple((topic, number, at) for (topic, number), at in sorted(positions.items())),
        tasks={**before.tasks, **{f"0_{number}": entry(epoch) for number in active}},
        sealed=tuple(sorted(f"0_{number}" for number in active)),
    )
    return msgspec.structs.replace(made, **changes)


def write(chain: ManifestChain, manifest: Manifest) -> Manifest:
    placed = chain.place(manifest)
    chain.witness(placed)
    return placed


def history(chain: ManifestChain, epochs: int, seed: int = 0) -> list[Manifest]:
    """Commits of epochs with some active tasks each, now and then a new one."""
    chance = random.Random(seed)
    written = [write(chain, first(20))]
    for _ in range(epochs - 1):
        active = chance.sample(range(25), chance.randrange(4))
        known = (("lines", "key", "str"),) if chance.random() < 0.2 else written[-1].inferred_types
        written.append(write(chain, after(written[-1], *active, inferred_types=known)))
    return written


def kinds(storage: ApplicationStorage) -> dict[int, type[Record]]:
    chain = ManifestChain(storage)
    names = sorted(int(path.name) for path in storage.manifests.iterdir())
    return {number: type(chain.record(Epoch(number))) for number in names}


def test_a_manifest_is_as_large_as_what_the_epoch_did(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    chain = ManifestChain(storage)
    head = write(chain, first())
    for active in ([7], [8, 9], []):
        head = write(chain, after(head, *active))
    whole, one, two, none = (path.stat().st_size for path in sorted(storage.manifests.iterdir()))
    assert 100 * one < whole
    assert none < one < two < 2 * one


@pytest.mark.parametrize("seed", range(5))
def test_what_is_read_is_what_was_written(tmp_path: Path, seed: int) -> None:
    storage = storage_in(tmp_path)
    chain = ManifestChain(storage)
    written = history(chain, 14, seed)
    assert ManifestDelta in kinds(storage).values()
    for reader in (chain, ManifestChain(storage)):
        order = random.Random(seed).sample(range(14), 14)
        assert [reader.read(Epoch(number + 1)) for number in order] == [written[number] for number in order]
        assert reader.head() == reader.latest() == written[-1]
        assert [reader.read(one.epoch).digest() for one in written] == [one.digest() for one in written]


def test_now_and_then_one_is_whole(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    chain = ManifestChain(storage)
    head = write(chain, first())
    for number in range(8):
        head = write(chain, after(head, number))
    period = [Manifest, ManifestDelta, ManifestDelta, ManifestDelta]
    assert list(kinds(storage).values()) == [*period, *period, Manifest]


def test_one_is_whole_when_deltas_have_cost_as_much(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    chain = ManifestChain(storage)
    head = write(chain, first(50))
    for _ in range(3):
        head = write(chain, after(head, *range(40)))
    assert list(kinds(storage).values()) == [Manifest, ManifestDelta, Manifest, ManifestDelta]


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": {"subtopologies": [1]}},
        {"fingerprint": "another"},
        {"repartitions": {"grouped": 4}},
        {"tasks": {}},
        {"positions": ()},
    ],
)
def test_what_a_delta_can_not_say_is_written_as_a_whole(tmp_path: Path, changes: dict[str, object]) -> None:
    storage = storage_in(tmp_path)
    chain = ManifestChain(storage)
    head = write(chain, after(write(chain, first()), **changes))
    assert kinds(storage) == {1: Manifest, 2: Manifest}
    assert ManifestChain(storage).head() == head


def test_the_first_manifest_of_every_coordinator_is_whole(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    chain = ManifestChain(storage)
    head = write(chain, after(write(chain, first()), 1))
    other = ManifestChain(storage)
    assert other.head() == head
    head = write(other, after(head, term=Term(2)))
    head = write(other, after(head, 2))
    assert list(kinds(storage).values()) == [Manifest, ManifestDelta, Manifest, ManifestDelta]
    assert ManifestChain(storage).head() == head


def test_small_manifests_stand_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    storage = storage_in(tmp_path)
    history(ManifestChain(storage), 5)
    assert set(kinds(storage).values()) == {Manifest}


# What is needed to read them ----------------------------------------------------------------------------


def with_oldest(storage: ApplicationStorage, oldest: int) -> tuple[ManifestChain, list[Manifest]]:
    """Nine manifests, of which the first, the fifth and the ninth are whole; a tenth that keeps only some."""
    chain = ManifestChain(storage)
    written = [write(chain, first())]
    for number in range(9):
        changes = {"oldest": oldest} if number == 8 else {}
        written.append(write(chain, after(written[-1], number, **changes)))
    return chain, written


@pytest.mark.parametrize(("oldest", "stay"), [(4, 1), (5, 5), (7, 5), (8, 5), (9, 9), (10, 9)])
def test_those_that_the_oldest_is_read_with_stay(tmp_path: Path, oldest: int, stay: int) -> None:
    storage = storage_in(tmp_path)
    chain, written = with_oldest(storage, oldest)
    idle = [entry.version for entry in written[-1].tasks.values()]
    chain.remove_unneeded(written[-1])
    left = [number for number in kinds(storage) if number not in idle or number >= stay]
    assert left == list(range(stay, 11))
    for reader in (chain, ManifestChain(storage)):
        assert reader.head() == written[-1]
        assert [reader.read(Epoch(number)) for number in range(oldest, 11)] == written[oldest - 1 :]


def test_what_an_epoch_has_sealed_is_known_without_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "STANDING_MANIFESTS", 0)
    storage = storage_in(tmp_path)
    chain, written = with_oldest(storage, 9)
    chain.remove_unneeded(written[-1], pinned={3})
    record = ManifestChain(storage).record(Epoch(3))
    assert (record.sealed, record.tasks["0_1"]) == (("0_1",), entry(3))
    with pytest.raises(FileNotFoundError):
        ManifestChain(storage).read(Epoch(2))


@pytest.mark.parametrize("lost", [5, 6, 8])
def test_a_manifest_that_others_are_read_with_must_be_there(tmp_path: Path, lost: int) -> None:
    storage = storage_in(tmp_path)
    chain, written = with_oldest(storage, 7)
    chain.remove_unneeded(written[-1])
    (storage.manifests / f"{lost:020d}").unlink()
    with pytest.raises(LostManifestError, match=f"manifest {lost} is missing between others"):
        ManifestChain(storage).head()


def a_delta_of_another_history(tmp_path: Path) -> ApplicationStorage:
    storage, other = storage_in(tmp_path / "one"), storage_in(tmp_path / "other")
    ours = ManifestChain(storage)
    write(ours, after(write(ours, first()), 1))
    theirs = ManifestChain(other)
    write(theirs, after(write(theirs, first(TASKS - 1)), 1))
    shutil.copy(other.manifests / f"{2:020d}", storage.manifests / f"{2:020d}")
    storage.witness.unlink()
    shutil.copy(other.witness, storage.witness)
    return storage


def test_a_delta_of_another_history_is_refused(tmp_path: Path) -> None:
    storage = a_delta_of_another_history(tmp_path)
    for ask in (ManifestChain.head, ManifestChain.latest):
        with pytest.raises(LostManifestError, match="manifest 2 does not continue manifest 1"):
            ask(ManifestChain(storage))


# Crashes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", range(1, 7))
@pytest.mark.parametrize("point", ["durable.file_synced", "durable.linked", "commit.manifest_written"])
def test_a_crash_while_one_is_written_leaves_the_one_before_or_all_of_it(
    tmp_path: Path, point: str, epochs: int
) -> None:
    """A delta after a whole one, one after another, and a whole one after them: all are met."""
    files = FaultyFiles(tmp_path)
    storage = storage_in(tmp_path, files)
    chain = ManifestChain(storage)
    head = write(chain, first())
    for number in range(epochs - 1):
        head = write(chain, after(head, number))
    wanted = after(head, 99)
    with failpoints.armed(point), pytest.raises(failpoints.InjectedCrash):
        write(chain, wanted)
    files.power_cut()
    there = ManifestChain(storage)
    found = there.head()
    assert found in (head, wanted)
    there.complete_head(found)
    assert found is not None
    last = write(there, after(found, 5, term=Term(2)))
    assert ManifestChain(storage).head() == last


def test_a_commit_that_failed_after_its_name_was_given_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("for want of descriptors")

    storage = storage_in(tmp_path)
    chain = ManifestChain(storage)
    head = write(chain, after(write(chain, first()), 1))
    wanted = after(head, 2)
    with monkeypatch.context() as patched:
        patched.setattr(ManifestChain, "_refuse_if_passed_by", fail)
        with pytest.raises(OSError, match="for want of descriptors"):
            chain.place(wanted)
    placed = chain.place(after(head, 2))
    assert placed == wanted
    following = write(chain, after(placed, 3))
    assert ManifestChain(storage).head() == following
    assert kinds(storage)[4] is Manifest, "nobody knows what stands before it"


# The application ------------------------------------------------------------------------------------------


def app_in(path: Path) -> SmallApp:
    app = SmallApp(path, "memory", files=FastFiles(), retained_manifests=4)
    app.create()
    return app


def lives(app: SmallApp, *, epochs: int = 7) -> None:
    """Epochs with maintenance beside them and restarts in between; the local state is lost once."""
    for life in range(3):
        with app.start() as executor:
            for number in range(epochs):
                app.append("to", "the", f"river{number}")
                assert executor.run_epoch() is not None
                if number % 3 == 2:
                    executor.run_maintenance()
        if life == 1:
            shutil.rmtree(app.state / "app" / "0_0" / "memory" / "counts", ignore_errors=True)
    found, expected = app.run(), app.expected()
    assert (found.counts, found.updates) == (expected.counts, expected.updates)


def test_an_application_lives_on_deltas(tmp_path: Path) -> None:
    app = app_in(tmp_path / "app")
    lives(app)
    there = kinds(ApplicationStorage(app.log_root, "app", app.files))
    assert ManifestDelta in there.values()
    assert len(there) <= 4 + MOST_DELTAS + 2


@pytest.mark.parametrize("point", ["commit.checked", "commit.manifest_written", "commit.witness_written"])
@pytest.mark.parametrize("crash_at", range(1, 6))
def test_whoever_takes_over_after_a_crash_goes_on(tmp_path: Path, point: str, crash_at: int) -> None:
    app = app_in(tmp_path / "app")
    executor = app.start()
    for _ in range(crash_at - 1):
        app.append("to", "the")
        executor.run_epoch()
    app.append("river")

    def epoch_and_end() -> None:
        executor.run_epoch()
        executor.coordinator.close()  # at the latest here it is known what befell the thread of the witness

    with failpoints.armed(point), pytest.raises(failpoints.InjectedCrash):
        epoch_and_end()
    assert app.run() == app.expected()


# Planted bugs ---------------------------------------------------------------------------------------------


def those_that_deltas_are_read_with_are_removed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ManifestChain, "_first_needed", lambda _, epoch: epoch)


def deltas_are_taken_from_any_history(patch: pytest.MonkeyPatch) -> None:
    def any_history(
        chain: ManifestChain, before: Manifest | None, file: tuple[Record, bytes], **_: bool
    ) -> Manifest:
        record, data = file
        if isinstance(record, Manifest) or before is None:
            return real(chain, before, file, is_first=True)
        return record.applied_to(before).stands_in(data)

    real = ManifestChain._next
    patch.setattr(ManifestChain, "_next", any_history)


def entries_are_read_from_the_last_whole_one(patch: pytest.MonkeyPatch) -> None:
    def stale(delta: ManifestDelta, before: Manifest) -> Manifest:
        made = real(delta, before)
        return made if delta.tasks and is_writing else msgspec.structs.replace(made, tasks=before.tasks)

    is_writing = False
    real, really_write = ManifestDelta.applied_to, ManifestChain._to_write

    def write_right(chain: ManifestChain, manifest: Manifest) -> object:
        nonlocal is_writing
        is_writing = True
        try:
            return really_write(chain, manifest)
        finally:
            is_writing = False

    patch.setattr(ManifestDelta, "applied_to", stale)
    patch.setattr(ManifestChain, "_to_write", write_right)


def an_application_lives(folder: Path) -> None:
    lives(app_in(folder))


def another_history_is_put_in_place(folder: Path) -> None:
    test_a_delta_of_another_history_is_refused(folder)


@pytest.mark.parametrize(
    ("bug", "scenario"),
    [
        (those_that_deltas_are_read_with_are_removed, an_application_lives),
        (deltas_are_taken_from_any_history, another_history_is_put_in_place),
        (entries_are_read_from_the_last_whole_one, an_application_lives),
    ],
)
def test_a_planted_bug_is_caught(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[pytest.MonkeyPatch], None],
    scenario: Callable[[Path], None],
) -> None:
    scenario(tmp_path / "right")
    bug(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)):  # whatever it is: it does not go unnoticed
        scenario(tmp_path / "wrong")
