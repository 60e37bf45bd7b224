"""A disk that is full stops an epoch, names the file, and leaves nothing that has to be repaired."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import lmdb
import pytest
from tests.simulation.faulty_files import FaultyFiles
from tests.state.small_app import Result, SmallApp, Tree

from millstream.commit.epoch import CommittedEpoch
from millstream.durable import DiskFullError

STEP = 61
"""Free bytes from one try to the next: less than any file that an epoch writes is long, but for two."""
MOST = 20_000
SMALL_FILES = range(0, 700, 30)
"""The lease's files and the witness are shorter than a step."""

PLACES = {
    r"applications/app/leases/": "lease",
    r"sealed/app/\d+/0_0": "sealed file",
    r"applications/app/manifests/": "manifest",
    r"applications/app/\.?HEAD": "witness",
    r"topics/[a-z-]+/0/\d+\.segment": "topic index",
}


def app_with_a_past(root: Path, backend: str) -> SmallApp:
    app = SmallApp(root, backend, FaultyFiles(root))
    app.create()
    app.append("to", "the", "river")
    assert app.run() == app.expected()
    app.append("to", "the", "sea")
    return app


def is_prefix(found: Result, whole: Result) -> bool:
    return found.updates == whole.updates[: len(found.updates)]


def refusal(app: SmallApp) -> str | None:
    """The message with which an application ends whose disk is full; None if it fits."""
    try:
        app.run()
    except DiskFullError as error:
        return str(error)
    return None


def place_in(message: str, log_root: Path) -> str:
    """What could not be written, from the path that an error names."""
    named = re.fullmatch(
        r"The disk is full: (\S+) could not be written \(No space left on device\)\. Nothing of this write "
        r"is visible or acknowledged\. .* then start again; no repair is needed\.",
        message,
    )
    assert named is not None, message
    path = Path(named[1]).relative_to(log_root).as_posix()
    return next(place for pattern, place in PLACES.items() if re.match(pattern, path))


def test_wherever_an_epoch_meets_a_full_disk_it_can_be_done_again(tmp_path: Path) -> None:
    app = app_with_a_past(tmp_path / "app", "lmdb")
    tree = Tree(app.root)
    met: set[str] = set()
    for free_bytes in (*SMALL_FILES, *range(0, MOST, STEP)):
        tree.put_back()
        app.files = files = FaultyFiles(app.root)
        files.disk_full_after(free_bytes)
        message = refusal(app)
        if message is None:
            break
        met.add(place_in(message, app.log_root))
        assert is_prefix(app.result(), app.expected())
        files.disk_has_space()
        assert app.run() == app.expected()
    else:
        pytest.fail(f"an epoch needs more than {MOST} bytes")
    assert met == set(PLACES.values())


def test_the_same_coordinator_goes_on_when_there_is_space_again(tmp_path: Path) -> None:
    app = app_with_a_past(tmp_path / "app", "lmdb")
    tree = Tree(app.root)
    met: set[str] = set()
    for free_bytes in (*SMALL_FILES, *range(0, MOST, STEP)):
        tree.put_back()
        app.files = files = FaultyFiles(app.root)
        with app.start() as executor:
            files.disk_full_after(free_bytes)
            try:
                executor.run_until_caught_up()
            except DiskFullError as error:
                met.add(place_in(str(error), app.log_root))
            else:
                files.disk_has_space()
                break
            assert is_prefix(app.result(), app.expected())
            files.disk_has_space()
            executor.run_until_caught_up()
        assert app.run() == app.expected()
    else:
        pytest.fail(f"an epoch needs more than {MOST} bytes")
    # The lease was renewed when the coordinator started; the witness of the last epoch nobody waits for.
    assert met == set(PLACES.values()) - {"lease", "witness"}


def lmdb_is_full(self: object, txn: object, entries: object) -> None:
    raise lmdb.Error(f"mdb_txn_commit: {os.strerror(errno.ENOSPC)}")


def rocksdb_is_full(path: str, entries: object, options: object) -> None:
    raise Exception("IO error: No space left on device: While appending to file")  # noqa: TRY002 - as it does


def checkpoint_is_full(self: object, checkpoint: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("backend", "write", "full", "named"),
    [
        ("lmdb", "backends.lmdb_tables.Part.apply", lmdb_is_full, "the store .*/app/0_0/lmdb/counts"),
        ("rocksdb", "backends.rocksdb._write_sorted_file", rocksdb_is_full, "the store .*/rocksdb/counts"),
        ("memory", "local.directory.TaskDirectory.write_checkpoint", checkpoint_is_full, ".*/state/app/0_0"),
    ],
    ids=["lmdb", "rocksdb", "checkpoint"],
)
def test_a_local_store_that_does_not_fit_is_named_and_the_commit_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, write: str, full: object, named: str
) -> None:
    app = SmallApp(tmp_path / "app", backend)
    app.create()
    app.append("to", "the", "river", "to")
    executor = app.start()
    executor.apply_after_commit = True
    job = executor.coordinator.plan_epoch()
    assert job is not None
    manifest = executor.coordinator.commit(job, executor.run_tasks(job))
    executor.coordinator.publish(manifest)
    with monkeypatch.context() as patch:
        patch.setattr(f"millstream.state.{write}", full)
        patch.setattr("millstream.state.backends.rocksdb._INGEST_ENTRIES", 1)  # as a large batch goes
        with pytest.raises(DiskFullError, match=f"The disk is full: {named} could not be written"):
            executor.apply(CommittedEpoch(job, (), manifest, {}))
    assert app.run() == app.expected()
