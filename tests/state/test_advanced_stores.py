"""Stores that are held open and advanced from memory know where they stand, and go forward only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.state.one_task import OneTask, Writes

from millstream.state.backends import Backend
from millstream.state.changelog.follow import StorePosition, position_of
from millstream.state.errors import StoreAheadError
from millstream.state.local import task_stores
from millstream.state.local.task_stores import TaskStores, hold_task_stores
from millstream.types import Offset, Version


@pytest.fixture
def counts(task: OneTask) -> OneTask:
    """A task with one logged store, at version 1."""
    task.add_store("counts")
    task.commit(counts={b"a": b"1"})
    return task


@pytest.fixture
def held(counts: OneTask) -> Iterator[TaskStores]:
    stores = hold_task_stores(
        counts.directory,
        counts.stores,
        counts.head(),
        counts.log,
        default_backend=counts.backend,
        local_changes=counts.local_changes,
    )
    with stores:
        yield stores


def advance(task: OneTask, held: TaskStores, writes: Writes) -> None:
    task.commit(counts=writes)
    held.advance(task.head(), {"counts": sorted(writes.items())})


def test_the_marker_is_read_when_a_store_is_first_advanced_and_then_it_is_known(
    counts: OneTask, held: TaskStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(backend: Backend, store: str) -> StorePosition:
        asked.append(store)
        return position_of(backend, store)

    monkeypatch.setattr(task_stores, "position_of", noted)
    for number in range(3):
        advance(counts, held, {b"a": b"%d" % number})
    assert asked == ["counts"]
    assert position_of(held.backends["counts"], "counts") == StorePosition(Version(4), Offset(4))


def test_a_store_that_was_advanced_does_not_go_back(counts: OneTask, held: TaskStores) -> None:
    before = counts.head()
    advance(counts, held, {b"a": b"2"})
    with pytest.raises(StoreAheadError, match="is at version 2"):
        held.advance(before, {"counts": [(b"a", b"1")]})
    assert held.backends["counts"].get_many([b"a"]) == [b"2"]


def test_a_store_that_has_followed_its_changelog_is_asked_again(counts: OneTask, held: TaskStores) -> None:
    advance(counts, held, {b"a": b"2"})
    counts.commit(counts={b"a": b"3"})
    held.follow(counts.head(), local_changes=counts.local_changes, is_known=counts.is_known)
    with pytest.raises(StoreAheadError, match="is at version 3"):
        held.advance(counts.head(), {"counts": [(b"a", b"?")]})
    assert held.backends["counts"].get_many([b"a"]) == [b"3"]
