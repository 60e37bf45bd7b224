"""Being told of writes: which partitions, and what becomes of it where nobody tells."""

from __future__ import annotations

import gc
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.log.embedded import file_watch
from millstream.log.embedded.file_watch import FileWatch
from millstream.types import Partition

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")

PLACES = [TopicPartition("lines", Partition(number)) for number in range(4)]


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    log = FileLog(tmp_path / "log")
    log.create_topic("lines", TopicConfig(4))
    return log


def append(log: FileLog, partition: int) -> None:
    log.append(PLACES[partition], record_batch([b"key"], [b"value"], [1]))


def test_those_are_told_that_were_written_to(log: FileLog) -> None:
    watch = log.watch(PLACES)
    assert watch is not None
    assert watch.changed() == set()
    append(log, 2)
    append(FileLog(log.root), 0)  # as another process would
    append(log, 2)
    assert watch.changed() == {PLACES[0], PLACES[2]}
    assert watch.changed() == set()
    watch.close()


def test_what_is_not_watched_is_not_told(log: FileLog) -> None:
    watch = log.watch(PLACES[:1])
    assert watch is not None
    append(log, 1)
    assert (watch.wait(0), watch.changed()) == (False, set())
    watch.close()


def test_who_waits_is_woken_by_a_write(log: FileLog) -> None:
    watch = log.watch(PLACES)
    assert watch is not None
    writer = threading.Timer(0.05, append, (log, 3))
    writer.start()
    assert watch.wait(60)
    writer.join()
    assert watch.changed() == {PLACES[3]}
    watch.close()


def test_who_waits_in_vain_is_told_so(log: FileLog) -> None:
    watch = log.watch(PLACES)
    assert watch is not None
    assert not watch.wait(0.01)
    watch.close()


def test_nobody_can_tell_of_a_file_that_is_gone(log: FileLog) -> None:
    watch = log.watch(PLACES)
    assert watch is not None
    log.delete_topic("lines")
    assert watch.changed() is None
    watch.close()


def test_there_is_no_watch_where_others_write_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "end"
    file.write_bytes(b"")
    monkeypatch.setattr(file_watch, "_LOCAL", frozenset({"some-local-file-system"}))
    assert FileWatch.of({1: file}) is None


def test_there_is_no_watch_of_what_is_not_there(tmp_path: Path) -> None:
    assert FileWatch.of({1: tmp_path / "folder" / "end"}) is None


def descriptors_of_watches() -> int:
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder itself
            count += str(descriptor.readlink()) == "anon_inode:inotify"
    return count


def test_a_watch_that_is_forgotten_leaves_no_descriptor(log: FileLog) -> None:
    gc.collect()  # what others have left: it is not to be closed meanwhile
    before = descriptors_of_watches()
    watches = [log.watch(PLACES) for _ in range(5)]
    assert descriptors_of_watches() == before + 5
    watches.clear()
    assert descriptors_of_watches() == before
