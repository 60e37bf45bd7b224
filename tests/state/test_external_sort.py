"""Rows sorted in runs come back as a dictionary would have them, in order, and leave nothing behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.state.one_task import APPLICATION, Listener, OneTask, rows_of

from millstream import failpoints
from millstream.durable import DiskFullError
from millstream.failpoints import InjectedCrash
from millstream.log import record_batch
from millstream.log.embedded import reader
from millstream.state.backends import supplier
from millstream.state.changelog import external_sort, follow
from millstream.state.changelog.follow import RESTORING, StorePosition, position_of
from millstream.state.errors import StoreAheadError
from millstream.state.local.task_stores import TaskVersion
from millstream.state.specs import key_value
from millstream.types import Offset, Partition, Version

Rows = dict[bytes, bytes | None]
ROWS = st.dictionaries(st.binary(max_size=3), st.none() | st.binary(max_size=3), min_size=1, max_size=12)


def batch(rows: Rows) -> pa.RecordBatch:
    return record_batch(list(rows), list(rows.values()), [0] * len(rows))


@settings(max_examples=200, deadline=None)
@given(parts=st.lists(st.lists(ROWS, min_size=1, max_size=3), max_size=5), block=st.integers(1, 5))
def test_runs_give_the_last_row_of_each_key_in_ascending_batches(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[Rows]], block: int
) -> None:
    expected: Rows = {}
    for part in parts:
        for rows in part:
            expected.update(rows)
    folder = tmp_path_factory.mktemp("runs") / "scratch"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external_sort, "_BLOCK_ROWS", block)
        with external_sort.sorted_runs(([batch(rows) for rows in part] for part in parts), folder) as runs:
            found = list(runs.batches(2 * block))
            assert sum(map(len, found)) <= runs.rows
    assert [row for entries in found for row in entries] == sorted(expected.items())
    assert not folder.exists()


def test_blocks_are_bounded_in_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_sort, "_BLOCK_BYTES", 1_000)
    rows: Rows = {b"%02d" % number: bytes(400) for number in range(20)}
    with external_sort.sorted_runs([[batch(rows)]], tmp_path / "scratch") as runs:
        found = list(runs.batches(1))
    assert max(map(len, found)) * 400 < 2_000
    assert [row for entries in found for row in entries] == sorted(rows.items())


@pytest.fixture
def lost(task: OneTask, monkeypatch: pytest.MonkeyPatch) -> OneTask:
    """A task whose store is lost, of three commits that change and delete the same keys."""
    monkeypatch.setattr(follow, "SORTED_ROWS", 10)
    monkeypatch.setattr(follow, "BATCH_ROWS", 8)
    monkeypatch.setattr(external_sort, "_BLOCK_ROWS", 4)
    monkeypatch.setattr(reader, "_JOINED_ROWS", 1)  # so that there are several runs
    task.add_store("counts")
    for number in range(3):
        keys = range(number, 40, number + 1)
        task.commit(counts={b"%02d" % key: None if key % 7 == 3 else b"%d" % number for key in keys})
    return task


def test_a_lost_store_is_restored_by_key(lost: OneTask) -> None:
    with lost.opened() as stores:
        assert rows_of(stores) == lost.expected()
    assert not (lost.directory.path / ".sorting").exists()


def test_a_restore_by_key_tells_how_far_it_is_while_it_sorts_and_while_it_loads(lost: OneTask) -> None:
    listener = Listener()
    with lost.opened(listener=listener):
        pass
    total = listener.told[0][1].total_records
    assert [event for event, _ in listener.told] == ["start", *["batch"] * (len(listener.told) - 2), "end"]
    records = [progress.records for _, progress in listener.told]
    assert records[0] == 0
    assert records[-1] == records[-2] == total
    assert records == sorted(records), "it never goes back"
    sorting = [number for number in records if 0 < number < total // 2]
    loading = [number for number in records if total // 2 < number < total]
    assert sorting
    assert loading
    read = [progress.bytes for _, progress in listener.told]
    assert 0 == read[0] < read[1] < read[-1]
    assert read == sorted(read)


@pytest.mark.parametrize("applied", range(3))
def test_a_restore_by_key_that_was_killed_begins_anew(lost: OneTask, applied: int) -> None:
    with (
        failpoints.armed("follow.batch_applied", skip=applied) as crash,
        pytest.raises(InjectedCrash),
        lost.opened(),
    ):
        pass
    assert crash.fired
    with supplier(lost.backend).open(lost.path("counts")) as store:
        assert position_of(store, "counts") == StorePosition(RESTORING, Offset(0))
    lost.commit(counts={b"01": None, b"02": b"new"})
    with lost.opened() as stores:
        assert rows_of(stores) == lost.expected()


def test_a_half_restored_store_is_never_taken_for_an_older_version(lost: OneTask) -> None:
    empty = TaskVersion(APPLICATION, Partition(0), Version(0), {})
    lost.digests = {version: f"sealed{version}" for version in range(1, 4)}
    with failpoints.armed("follow.batch_applied"), pytest.raises(InjectedCrash), lost.opened():
        pass
    with (
        pytest.raises(StoreAheadError, match="'counts' of partition 0 is on its way to 3 "),
        lost.opened(empty),
    ):
        pass
    with lost.opened() as stores:
        assert rows_of(stores) == lost.expected()


def test_a_half_restored_store_that_does_not_say_where_it_goes_begins_anew(lost: OneTask) -> None:
    empty = TaskVersion(APPLICATION, Partition(0), Version(0), {})
    with failpoints.armed("follow.batch_applied"), pytest.raises(InjectedCrash), lost.opened():
        pass
    with lost.opened(empty) as stores:
        assert rows_of(stores) == {"counts": []}
    with lost.opened() as stores:
        assert rows_of(stores) == lost.expected()


def test_a_half_restored_store_whose_changelog_was_turned_off_begins_anew(lost: OneTask) -> None:
    lost.digests = {version: f"sealed{version}" for version in range(1, 4)}
    with failpoints.armed("follow.batch_applied"), pytest.raises(InjectedCrash), lost.opened():
        pass
    lost.stores["counts"] = key_value("counts", logging=False)
    lost.sealed = {version: {"counts": [(b"new", b"%d" % version)]} for version in range(4)}
    with lost.opened() as stores:
        assert rows_of(stores) == {"counts": [(b"new", b"3")]}


def test_a_full_disk_is_named(lost: OneTask, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(external_sort, "_written", full)
        with pytest.raises(DiskFullError, match=r"The disk is full: .*/\.sorting"), lost.opened():
            pass
    with lost.opened() as stores:
        assert rows_of(stores) == lost.expected()
