"""Following a changelog: to the same bytes, from wherever a crash left the store, or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from tests.state.one_task import APPLICATION, Listener, OneTask, rows_of

from millstream import failpoints
from millstream.failpoints import InjectedCrash
from millstream.log.errors import DamagedLogError
from millstream.state.backends import supplier
from millstream.state.changelog import follow, rows
from millstream.state.changelog.follow import EMPTY, RESTORING, StorePosition, position_of
from millstream.state.errors import ChangelogGapError, StoreAheadError
from millstream.state.local.task_stores import NewerStores, TaskVersion, positions_on_disk
from millstream.types import Offset, Partition, Version

ROWS = 5_000
"""What the log hands out one by one: smaller batches it joins."""
BATCHES = 4

FOLLOW = f"""
import pathlib, sys
from millstream.log import FileLog
from millstream.state.changelog import follow
from millstream.state.local.directory import TaskDirectory
from millstream.state.specs import key_value
from millstream.state.local.task_stores import TaskVersion, open_task_stores
follow.BATCH_ROWS = {ROWS}
log, directory, backend = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
wanted = TaskVersion("{APPLICATION}", 0, {BATCHES}, {{"counts": {ROWS * BATCHES}}})
with open_task_stores(
    TaskDirectory(directory), {{"counts": key_value("counts")}}, wanted, FileLog(log),
    default_backend=backend, local_changes=lambda *_: None,
):
    pass
"""


@pytest.fixture
def behind(task: OneTask, monkeypatch: pytest.MonkeyPatch) -> OneTask:
    """A task whose store is empty and four batches behind: new, changed and deleted keys in each."""
    monkeypatch.setattr(follow, "BATCH_ROWS", ROWS)
    task.add_store("counts")
    for batch in range(BATCHES):
        keys = [b"%05d" % (n * 2 + batch * 1_000) for n in range(ROWS)]
        task.commit(counts={key: None if key[-1:] == b"4" else b"%d" % batch for key in keys})
    return task


@pytest.fixture
def lmdb_behind(behind: OneTask) -> OneTask:
    """The same, where batches are written in steps."""
    behind.backend = "lmdb"
    return behind


def position(batches: int) -> Offset:
    return Offset(batches * ROWS)


def stands_at(task: OneTask) -> StorePosition:
    """The marker of the store that a follower has left."""
    with supplier(task.backend).open(task.path("counts")) as store:
        return position_of(store, "counts")


def test_a_store_follows_its_changelog_to_each_version(behind: OneTask) -> None:
    for version in range(BATCHES + 1):
        wanted = TaskVersion(APPLICATION, Partition(0), Version(version), {"counts": position(version)})
        with behind.opened(wanted) as stores:
            assert position_of(stores["counts"], "counts") == StorePosition(
                Version(version), position(version)
            )
    with behind.opened() as stores:
        assert behind.expected() == rows_of(stores)


@pytest.mark.parametrize("applied", range(BATCHES - 1))
def test_a_follower_that_crashed_goes_on_behind_its_last_batch(
    behind: OneTask, applied: int, listener: Listener
) -> None:
    with (
        failpoints.armed("follow.batch_applied", skip=applied) as crash,
        pytest.raises(InjectedCrash),
        behind.opened(),
    ):
        pass
    assert crash.fired
    assert stands_at(behind) == StorePosition(RESTORING, position(applied + 1))
    with behind.opened(listener=listener) as stores:
        assert behind.expected() == rows_of(stores)
    left = position(BATCHES) - position(applied + 1)
    assert listener.records()[0] == ("start", "counts", 0, left)
    assert listener.records()[-1] == ("end", "counts", left, left)


def test_the_last_batch_brings_the_version_along(behind: OneTask, listener: Listener) -> None:
    with (
        failpoints.armed("follow.batch_applied", skip=BATCHES - 1),
        pytest.raises(InjectedCrash),
        behind.opened(),
    ):
        pass
    assert stands_at(behind) == StorePosition(Version(BATCHES), position(BATCHES))
    with behind.opened(listener=listener) as stores:
        assert behind.expected() == rows_of(stores)
    assert listener.told == []


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_a_follower_that_was_killed_goes_on_behind_its_last_batch(behind: OneTask) -> None:
    folders = [str(behind.log.root), str(behind.directory.path)]
    command = [sys.executable, "-c", FOLLOW, *folders, behind.backend]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for passed, applied in ((0, 1), (1, 3)):
        armed = environment | {failpoints.ENVIRONMENT_VARIABLE: f"follow.batch_applied=kill@{passed}"}
        killed = subprocess.run(command, env=armed, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert stands_at(behind) == StorePosition(RESTORING, position(applied))
    subprocess.run(command, env=environment, check=True)
    assert stands_at(behind) == StorePosition(Version(BATCHES), position(BATCHES))
    with behind.opened() as stores:
        assert behind.expected() == rows_of(stores)


def test_a_follower_that_crashed_within_a_batch_applies_it_again(lmdb_behind: OneTask) -> None:
    for version in range(1, BATCHES + 1):
        wanted = TaskVersion(APPLICATION, Partition(0), Version(version), {"counts": position(version)}, "x")
        for passed in (0, 1):
            with (
                failpoints.armed("state.step_written", skip=passed),
                pytest.raises(InjectedCrash),
                lmdb_behind.opened(wanted),
            ):
                pass
            assert stands_at(lmdb_behind) == StorePosition(
                RESTORING, position(version - 1), "x", Version(version)
            )
        with lmdb_behind.opened(wanted):
            pass
    with lmdb_behind.opened() as stores:
        assert lmdb_behind.expected() == rows_of(stores)


def test_a_store_with_rows_of_a_newer_version_is_not_taken_for_an_older_one(lmdb_behind: OneTask) -> None:
    first, second = (
        TaskVersion(APPLICATION, Partition(0), Version(n), {"counts": position(n)}, f"{n}") for n in (1, 2)
    )
    lmdb_behind.digests = {1: first.sealed_digest, 2: second.sealed_digest}
    with lmdb_behind.opened(first):
        pass
    with failpoints.armed("state.step_written"), pytest.raises(InjectedCrash), lmdb_behind.opened(second):
        pass
    for newer in NewerStores:
        with pytest.raises(StoreAheadError), lmdb_behind.opened(first, newer=newer):
            pass
    with lmdb_behind.opened(second) as stores:
        assert position_of(stores["counts"], "counts").version == second.version


def test_a_store_in_the_middle_of_a_restore_has_no_version(behind: OneTask) -> None:
    with failpoints.armed("follow.batch_applied"), pytest.raises(InjectedCrash), behind.opened():
        pass
    found = positions_on_disk(behind.directory, behind.stores, behind.backend)
    assert found == ({} if behind.backend == "memory" else {"counts": EMPTY})


def test_a_listener_is_told_start_batches_and_end(behind: OneTask, listener: Listener) -> None:
    with behind.opened(listener=listener):
        pass
    total = position(BATCHES)
    assert listener.records() == [
        ("start", "counts", 0, total),
        *(("batch", "counts", position(n), total) for n in range(1, BATCHES + 1)),
        ("end", "counts", total, total),
    ]
    told = [progress for _, progress in listener.told]
    sizes = [progress.bytes for progress in told]
    assert sizes[0] == 0
    assert sizes == sorted(sizes)
    assert sizes[-1] == sizes[-2] > total * len(b"00000")
    assert [progress.seconds_left for progress in (told[0], told[-1])] == [None, 0]
    assert all(progress.records_per_second > 0 and progress.partition == 0 for progress in told[1:])


def test_a_listener_is_told_that_a_restore_was_suspended(behind: OneTask, listener: Listener) -> None:
    with (
        failpoints.armed("follow.batch_applied", skip=1),
        pytest.raises(InjectedCrash),
        behind.opened(listener=listener),
    ):
        pass
    total = position(BATCHES)
    assert listener.records() == [
        ("start", "counts", 0, total),
        ("batch", "counts", position(1), total),
        ("suspended", "counts", position(1), total),
    ]


def test_a_store_that_is_where_it_has_to_be_is_left_alone(behind: OneTask, listener: Listener) -> None:
    with behind.opened():
        pass
    with behind.opened(listener=listener):
        pass
    assert listener.told == []


def test_a_batch_is_bounded_in_bytes_too(
    behind: OneTask, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "BATCH_ROWS", 1_000_000)
    monkeypatch.setattr(follow, "BATCH_BYTES", 1)
    with behind.opened(listener=listener) as stores:
        assert behind.expected() == rows_of(stores)
    assert [event for event, *_ in listener.records()] == ["start", *["batch"] * BATCHES, "end"]


def test_many_rows_are_folded_as_few_are(behind: OneTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "BATCH_ROWS", BATCHES * ROWS)
    monkeypatch.setattr(rows, "_MANY", ROWS)
    with behind.opened() as stores:
        assert behind.expected() == rows_of(stores)


def test_a_changelog_with_a_gap_is_an_error_that_names_it(behind: OneTask, listener: Listener) -> None:
    behind.log.delete_before(behind.changelog("counts"), Offset(7))
    with pytest.raises(ChangelogGapError) as caught, behind.opened(listener=listener):
        pass
    message = str(caught.value)
    assert message.startswith(
        "The changelog app-counts-changelog-0 has no records from offset 0 to 20000, which store 'counts' "
        "needs to get to version 4 (The offsets 0 to 7 of app-counts-changelog-0 are gone: it begins at 7."
    )
    assert message.endswith("Remedy: restore the log from a backup that holds them.")
    assert [event for event, _ in listener.told] == ["start", "suspended"]


def test_a_gap_behind_which_a_store_stands_already_does_not_matter(behind: OneTask) -> None:
    wanted = TaskVersion(APPLICATION, Partition(0), Version(1), {"counts": position(1)})
    with behind.opened(wanted):
        pass
    behind.log.delete_before(behind.changelog("counts"), position(1))
    with behind.opened() as stores:
        assert behind.expected() == rows_of(stores)


def test_a_changelog_that_ends_too_early_is_an_error_that_names_it(behind: OneTask) -> None:
    wanted = TaskVersion(APPLICATION, Partition(0), Version(5), {"counts": Offset(20_001)})
    too_early = r"from offset 0 to 20001, .* it ends at 20000"
    with pytest.raises(ChangelogGapError, match=too_early), behind.opened(wanted):
        pass


def test_a_damaged_changelog_is_an_error_and_the_rest_can_be_followed_when_it_is_mended(
    behind: OneTask,
) -> None:
    (segment,) = (behind.log.root / "topics" / "app-counts-changelog" / "0").glob("*.segment")
    whole = segment.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) - len(whole) // 8] ^= 1
    segment.write_bytes(damaged)
    with pytest.raises(DamagedLogError, match=rf"byte \d+ of {segment} is damaged"), behind.opened():
        pass
    segment.write_bytes(whole)
    here = stands_at(behind)
    assert here.version == RESTORING
    assert position(1) <= here.offset <= position(BATCHES - 1)
    with behind.opened() as stores:
        assert behind.expected() == rows_of(stores)


@pytest.mark.parametrize(
    ("version", "at"),
    [(3, position(3)), (BATCHES, position(3)), (BATCHES + 1, position(3))],
    ids=["an older version", "the same version elsewhere", "a newer version further back"],
)
def test_a_store_ahead_of_the_commit_is_refused_naming_both_versions(
    behind: OneTask, version: int, at: Offset
) -> None:
    with behind.opened() as stores:
        before = rows_of(stores)
    wanted = TaskVersion(APPLICATION, Partition(0), Version(version), {"counts": at})
    with pytest.raises(StoreAheadError) as caught, behind.opened(wanted):
        pass
    assert str(caught.value).startswith(
        f"Store 'counts' of partition 0 is at version 4 (changelog offset 20000), but the last commit is "
        f"version {version} (offset 15000). Nothing is rolled back. Likely cause: "
    )
    with behind.opened() as stores:
        assert before == rows_of(stores)


def test_a_store_of_the_same_version_that_stands_before_it_is_of_another_history(behind: OneTask) -> None:
    with behind.opened():
        pass
    behind.commit(counts={b"x": b"y"})
    wanted = TaskVersion(APPLICATION, Partition(0), Version(4), {"counts": Offset(20_001)})
    both = r"version 4 \(changelog offset 20000\), but .* version 4 \(offset 20001\)"
    with pytest.raises(StoreAheadError, match=both), behind.opened(wanted):
        pass


def test_a_follower_that_crashed_has_let_go_of_its_task(behind: OneTask) -> None:
    with failpoints.armed("follow.batch_applied"), pytest.raises(InjectedCrash), behind.opened():
        pass
    with behind.directory.lock(timeout_ms=0) as died:
        assert died is None
