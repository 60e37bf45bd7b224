"""Compaction and those who follow: they have exactly the version that they asked for, or are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.state.backends.memory import MemoryBackend
from millstream.state.changelog import follow
from millstream.state.changelog.follow import Progress, StorePosition, Target
from millstream.state.errors import ChangelogCompactedError, DamagedStoreError
from millstream.state.local.directory import TaskDirectory
from millstream.state.local.task_stores import TaskVersion, open_task_stores
from millstream.state.specs import key_value
from millstream.types import Offset, Partition, Version

PLACE = TopicPartition("app-s-changelog", Partition(0))
ROWS = 5_000
A_DAY = 86_400_000


@dataclass
class Changelog:
    """A changelog, a clock, and whoever compacts."""

    folder: Path
    now: int = 100 * A_DAY
    versions: list[dict[bytes, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = self.opened()
        self.log.create_topic(PLACE.topic, TopicConfig(is_compacted=True))

    def opened(self) -> FileLog:
        return FileLog(self.folder / "log", now_ms=lambda: self.now)

    def append(self, rows: dict[bytes, bytes | None]) -> None:
        """One commit, in a segment of its own."""
        self.log.append(PLACE, record_batch(list(rows), list(rows.values()), [1] * len(rows)))
        self.log.rewrite(PLACE, min_entries=1, up_to=Offset(0))
        state = dict(self.versions[-1]) if self.versions else {}
        state.update({key: value for key, value in rows.items() if value is not None})
        self.versions.append({key: value for key, value in state.items() if rows.get(key, b"") is not None})

    def compact(self, up_to: Offset) -> None:
        assert self.opened().rewrite(PLACE, min_entries=1, up_to=up_to, min_dirty_ratio=0)

    def target(self, version: int, position: int) -> Target:
        return Target("s", PLACE, StorePosition(Version(version), Offset(position)))


@pytest.fixture
def changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Changelog:
    """A key, many others in more than one block, then the key's deletion, long ago."""
    monkeypatch.setattr(follow, "BATCH_ROWS", 1)
    tmp_path.chmod(0o700)
    made = Changelog(tmp_path)
    made.append({b"gone": b"v", **{b"a%d" % number: bytes(1_000) for number in range(ROWS)}})
    made.append({b"gone": None})
    made.append({b"b": b"v"})
    made.now += 3 * A_DAY
    return made


class CompactsAfterTheFirstBatch:
    """Maintenance that comes in the middle of a restore."""

    def __init__(self, changelog: Changelog) -> None:
        self._changelog = changelog
        self.times = 0

    def on_start(self, progress: Progress) -> None: ...
    def on_end(self, progress: Progress) -> None: ...
    def on_suspended(self, progress: Progress) -> None: ...

    def on_batch(self, progress: Progress) -> None:
        if not self.times:
            self._changelog.compact(self._changelog.log.latest(PLACE))
        self.times += 1


def test_deletions_that_go_while_a_store_is_restored_are_noticed(changelog: Changelog) -> None:
    end = changelog.log.latest(PLACE)
    listener = CompactsAfterTheFirstBatch(changelog)
    with MemoryBackend() as store, pytest.raises(DamagedStoreError, match="no longer has the deletions"):
        follow.follow(store, changelog.target(3, end), changelog.log, listener)
    assert changelog.log.compacted(PLACE).deletes_gone_to == end - 1, "the deletion was the last but one"


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_a_task_that_restores_meanwhile_gets_the_right_state(
    changelog: Changelog, tmp_path: Path, backend: str
) -> None:
    end = changelog.log.latest(PLACE)
    listener = CompactsAfterTheFirstBatch(changelog)
    with open_task_stores(
        TaskDirectory(tmp_path / "state"),
        {"s": key_value("s")},
        TaskVersion("app", Partition(0), Version(3), {"s": end}),
        changelog.log,
        default_backend=backend,
        local_changes=lambda *_: None,
        listener=listener,
    ) as stores:
        assert dict(stores["s"].scan()) == changelog.versions[-1]
    assert listener.times > 1


def test_a_copy_that_stands_before_deletions_that_are_gone_begins_anew(changelog: Changelog) -> None:
    first = ROWS + 1
    with MemoryBackend() as store:
        follow.follow(store, changelog.target(1, first), changelog.log)
        changelog.compact(changelog.log.latest(PLACE))
        with pytest.raises(DamagedStoreError, match=f"was at offset {first} of its changelog"):
            follow.follow(store, changelog.target(3, changelog.log.latest(PLACE)), changelog.log)


def test_a_version_that_compaction_has_passed_is_refused_each_time_and_a_later_one_can_be_had(
    changelog: Changelog,
) -> None:
    changelog.now -= 3 * A_DAY  # the deletion is new
    for value in (b"1", b"2", b"3"):
        changelog.append({b"b": value})
    end = changelog.log.latest(PLACE)
    changelog.compact(end)
    with MemoryBackend() as store:
        for _ in range(2):
            with pytest.raises(ChangelogCompactedError, match=f"the changelog is compacted up to {end}"):
                follow.follow(store, changelog.target(5, end - 1), changelog.log)
        follow.follow(store, changelog.target(6, end), changelog.log)
        assert dict(store.scan()) == changelog.versions[-1]
