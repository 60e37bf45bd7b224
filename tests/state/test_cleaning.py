"""Local state that nobody uses is deleted; what is in use, was used lately, or is not ours never is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from millstream import failpoints
from millstream.commit.epoch_job import EpochJob, PlannedTask
from millstream.durable import held_lock
from millstream.maintenance import state_cleaner
from millstream.maintenance.state_cleaner import clean_now_and_then
from millstream.state.backends import supplier
from millstream.state.errors import StateDirectoryError
from millstream.state.local.cleaning import clean, local_tasks
from millstream.state.local.directory import (
    Checkpoint,
    StateDirectory,
    existing_state_directory,
    open_state_directory,
)
from millstream.types import Epoch, Offset, Partition, Term, Version

HOUR_S = 3600.0


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    """A state directory with three tasks of an application, used 2, 1 and 0 hours ago."""
    tmp_path.chmod(0o700)
    found = open_state_directory(tmp_path / "state")
    for number, hours in enumerate([2, 1, 0]):
        make_task(found, f"0_{number}", hours * HOUR_S)
    return found


def make_task(directory: StateDirectory, name: str, seconds_ago: float, app_id: str = "app") -> None:
    task = directory.task(app_id, name)
    with task.lock(timeout_ms=0):
        with supplier("lmdb").open(task.store_path("lmdb", "counts")) as store:
            store.write([(b"k", b"v")], marker=b'{"version":7,"position":9}')
        task.write_checkpoint(Checkpoint(Version(7), {"counts": Offset(9)}))
    for file in (".lock", ".checkpoint"):
        times = (task.path / file).stat()
        os.utime(task.path / file, (times.st_atime, times.st_mtime - seconds_ago))


def test_what_nobody_has_used_for_long_is_removed(directory: StateDirectory) -> None:
    assert clean(directory, "app", unused_for_ms=90 * 60_000) == ["0_0"]
    assert directory.tasks("app") == ["0_1", "0_2"]
    assert sorted(path.name for path in (directory.path / "app").iterdir()) == ["0_1", "0_2"]


def test_what_is_in_use_is_left_alone(directory: StateDirectory) -> None:
    with directory.task("app", "0_0").lock(timeout_ms=0):
        make_old(directory.path / "app" / "0_0")
        assert clean(directory, "app", unused_for_ms=0) == ["0_1", "0_2"]
    assert directory.tasks("app") == ["0_0"]
    assert (directory.path / "app/0_0/lmdb/counts/data.mdb").exists()


def make_old(task: Path) -> None:
    for file in (".lock", ".checkpoint"):
        os.utime(task / file, (0, 0))


def test_a_crash_in_the_middle_leaves_garbage_that_the_next_one_takes(directory: StateDirectory) -> None:
    with failpoints.armed("state.task_renamed"), pytest.raises(failpoints.InjectedCrash):
        clean(directory, "app", unused_for_ms=0)
    assert directory.tasks("app") == ["0_1", "0_2"]
    clean(directory, "app", unused_for_ms=10**9)
    assert sorted(path.name for path in (directory.path / "app").iterdir()) == ["0_1", "0_2"]


def test_other_applications_are_left_alone(directory: StateDirectory) -> None:
    make_task(directory, "0_0", 9 * HOUR_S, app_id="other")
    clean(directory, "app", unused_for_ms=0)
    assert directory.applications() == ["app", "other"]
    assert directory.tasks("other") == ["0_0"]


def test_a_folder_without_our_mark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "app" / "0_0").mkdir(parents=True)
    with pytest.raises(StateDirectoryError, match="is not a state directory of Millstream"):
        existing_state_directory(tmp_path)
    assert (tmp_path / "app" / "0_0").is_dir()


def test_tasks_are_listed_with_what_they_hold(directory: StateDirectory) -> None:
    first, *_ = local_tasks(directory)
    assert (first.app_id, first.task, first.stores) == ("app", "0_0", (("lmdb", "counts"),))
    assert first.checkpoint == Checkpoint(Version(7), {"counts": Offset(9)})
    assert first.bytes > 10_000


@pytest.fixture
def never_looked() -> Iterator[None]:
    state_cleaner._looked_at.clear()
    yield
    state_cleaner._looked_at.clear()


def job_of(**homes: str | None) -> EpochJob:
    """An epoch of tasks `t0_0`, ... whose state is on the instances named."""
    tasks = [
        PlannedTask(name[1:], 0, Partition(int(name[-1])), 0, expected_instance=home)
        for name, home in homes.items()
    ]
    return EpochJob(
        application_id="app",
        epoch=Epoch(1),
        term=Term(1),
        clock_ms=0,
        tick=False,
        cut={},
        tasks=tuple(tasks),
        entries={},
        inferred_types=(),
        partition_counts={},
        default_partitions=1,
    )


@pytest.mark.usefixtures("never_looked")
def test_state_of_a_task_that_has_moved_or_is_gone_is_deleted(directory: StateDirectory) -> None:
    here = directory.instance_id
    for task in directory.tasks("app"):
        make_old(directory.path / "app" / task)
    job = job_of(t0_0="another instance", t0_1=here)  # and there is no task 0_2
    assert clean_now_and_then(directory, 60_000, job) == ["0_0", "0_2"]
    assert directory.tasks("app") == ["0_1"]


@pytest.mark.usefixtures("never_looked")
def test_state_of_a_task_that_had_nothing_to_do_is_kept(directory: StateDirectory) -> None:
    for task in directory.tasks("app"):
        make_old(directory.path / "app" / task)
    job = job_of(t0_0=directory.instance_id, t0_1=None, t0_2=None)
    assert clean_now_and_then(directory, 60_000, job) == []
    assert directory.tasks("app") == ["0_0", "0_1", "0_2"]


@pytest.mark.usefixtures("never_looked")
@pytest.mark.parametrize("is_elsewhere", [None, lambda _: True], ids=["planned", "assigned"])
def test_state_of_global_stores_is_kept_on_every_host(
    directory: StateDirectory, is_elsewhere: Callable[[str], bool] | None
) -> None:
    for task in directory.tasks("app"):
        make_old(directory.path / "app" / task)
    job = replace(job_of(t0_0="another instance", t0_1="another one"), global_tasks=frozenset({"0_1"}))
    assert clean_now_and_then(directory, 60_000, job, is_elsewhere) == ["0_0", "0_2"]
    assert directory.tasks("app") == ["0_1"]


@pytest.mark.usefixtures("never_looked")
def test_it_is_looked_for_now_and_then_only(directory: StateDirectory) -> None:
    job = job_of()
    assert clean_now_and_then(directory, 60 * 60_000 // 2, job) == ["0_0", "0_1"]
    make_old(directory.path / "app" / "0_2")
    assert clean_now_and_then(directory, 60 * 60_000 // 2, job) == []
    assert clean_now_and_then(directory, -1, job) == []


REMAINS = [".restoring/data.mdb", ".sorting/0.run", ".snapshots/counts/data.mdb", "lmdb/.removed-1/data.mdb"]


@pytest.fixture
def remains(directory: StateDirectory) -> list[Path]:
    """What was left in a task's folder by processes that were killed in restores and snapshots."""
    files = [directory.path / "app/0_2" / name for name in REMAINS]
    for file in files:
        file.parent.mkdir(mode=0o700, parents=True)
        file.write_bytes(b"half")
    (directory.path / "app/0_2/.snapshots/lmdb-counts.digests").write_bytes(b"known")
    return files


@pytest.mark.usefixtures("never_looked")
@pytest.mark.parametrize("delay_ms", [60_000, -1])
def test_what_killed_restores_and_snapshots_left_is_deleted(
    directory: StateDirectory, remains: list[Path], delay_ms: int
) -> None:
    clean_now_and_then(directory, delay_ms, job_of(t0_0=None, t0_1=None, t0_2=None))
    assert [file for file in remains if file.parent.exists()] == []
    assert directory.tasks("app") == ["0_0", "0_1", "0_2"]
    assert (directory.path / "app/0_2/lmdb/counts/data.mdb").exists()
    assert (directory.path / "app/0_2/.snapshots/lmdb-counts.digests").exists()


@pytest.mark.usefixtures("never_looked")
def test_what_a_restore_or_a_snapshot_at_work_has_made_is_left_alone(
    directory: StateDirectory, remains: list[Path]
) -> None:
    restoring, sorting, copying, removed = remains
    with directory.task("app", "0_2").lock(timeout_ms=0):
        clean_now_and_then(directory, 0, job_of(t0_0=None, t0_1=None, t0_2=None))
    assert [file.exists() for file in remains] == [True, True, False, True]
    copying.parent.mkdir()
    with held_lock(copying.parents[1] / ".lock", timeout_ms=0):
        clean_now_and_then(directory, 0, job_of(t0_0=None, t0_1=None, t0_2=None))
    assert not any(folder.exists() for folder in (restoring, sorting, removed))
    assert copying.parent.exists()
