"""Publication is behind a protocol, and an application's storage apart from its topics.

The publisher here sends records, as one for a log that is a service would: it reads sealed files, and knows
by itself which epochs it has sent. The storage is in another folder than the log.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from millstream import StreamsBuilder, StreamsConfig, Topology, failpoints, serdes
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CommitCoordinator
from millstream.commit.epoch import run_epoch
from millstream.commit.epoch_job import EpochJob, TaskReport, WrongInstance
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.commit.manifest_retention import ManifestRetention
from millstream.commit.publisher import EmbeddedPublisher, Publisher
from millstream.commit.sealed_file import read_sealed
from millstream.commit.worker import Worker
from millstream.engine.local import LocalEngine
from millstream.failpoints import InjectedCrash
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.log.api import Log
from millstream.state.local.directory import open_state_directory
from millstream.task.metrics import Metrics
from millstream.types import Offset, Partition

WORDS = TopicPartition("words", Partition(0))


class SendingPublisher:
    """Appends the rows of sealed files to topics."""

    def __init__(self, storage: ApplicationStorage, log: Log) -> None:
        self._storage = storage
        self._log = log
        self.sent: list[int] = []

    def check_head(self, head: Manifest | None) -> None:
        """See `Publisher.check_head`."""

    def publish(self, manifest: Manifest) -> None:
        """See `Publisher.publish`."""
        if manifest.epoch in self.sent:
            return
        for task_id in manifest.sealed:
            entry = manifest.tasks[task_id]
            for section in entry.sections:
                for rows in read_sealed(self._storage, entry.file, entry.digest).rows(section):
                    self._log.append(TopicPartition(section.topic, section.partition), rows)
        self.sent.append(manifest.epoch)


class Application:
    """A word count with topics in one folder and its truth in another."""

    def __init__(self, folder: Path, *, sends: bool) -> None:
        self.log = FileLog(folder / "log", now_ms=lambda: 0)
        self.log.create_topic(WORDS.topic)
        self.storage = ApplicationStorage(folder / ("storage" if sends else "log"), "app")
        self.storage.root.mkdir(mode=0o700, exist_ok=True)
        self.sending = SendingPublisher(self.storage, self.log)
        self._publisher: Publisher = self.sending if sends else EmbeddedPublisher(self.storage, self.log)
        self._state = open_state_directory(folder / "state")
        self.coordinator = self._coordinator()

    def append(self, *words: str) -> None:
        values = [word.encode() for word in words]
        self.log.append(WORDS, record_batch([None] * len(values), values, list(range(len(values)))))

    def run(self) -> None:
        engine = self.start()
        while run_epoch(self.coordinator, engine) is not None:
            pass
        self.coordinator.close()

    def start(self) -> LocalEngine:
        self.coordinator = self._coordinator()
        self.coordinator.open()
        return self.engine()

    def engine(self) -> LocalEngine:
        worker = Worker(
            plan=word_count().plan(),
            config=StreamsConfig(),
            storage=self.storage,
            log=self.log,
            directory=self._state,
            backend="lmdb",
            metrics=Metrics(),
        )
        return LocalEngine(lambda: worker)

    def rows(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        place = TopicPartition(topic, Partition(0))
        return [
            row
            for batch in self.log.read(place, Offset(0))
            for row in zip(batch.keys(), batch.values(), strict=True)
        ]

    def _coordinator(self) -> CommitCoordinator:
        plan = word_count().plan()
        return CommitCoordinator(self.storage, self.log, self._publisher, plan, clock=lambda: 0)


def word_count() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", value=serdes.string)
    words.group_by(lambda _, word: word).count(store="counts").to_stream().to("word-counts")
    return builder.build()


def test_a_publisher_that_sends_records_shows_what_the_embedded_one_shows(tmp_path: Path) -> None:
    shown = {}
    for sends in (False, True):
        folder = tmp_path / str(sends)
        folder.mkdir(mode=0o700)
        app = Application(folder, sends=sends)
        for words in (["to", "the", "river"], ["the", "river", "the"]):
            app.append(*words)
            app.run()
        shown[sends] = {topic: app.rows(topic) for topic in app.log.topics()}

    assert set(shown[True]) == {"words", "word-counts", "app-counts-changelog"}
    assert shown[True] == shown[False]
    assert not (tmp_path / "True" / "log" / "applications").exists()
    assert not (tmp_path / "True" / "log" / "sealed").exists()


def test_what_was_committed_and_not_sent_is_sent_by_the_next_coordinator_once(tmp_path: Path) -> None:
    app = Application(tmp_path, sends=True)
    app.append("to", "the", "river")
    with failpoints.armed("commit.manifest_written", skip=1), pytest.raises(InjectedCrash):
        app.run()
    app.coordinator.close()
    assert "word-counts" not in app.log.topics() or app.rows("word-counts") == []

    app.run()

    assert sorted(app.rows("word-counts")) == [
        (word, bytes(7) + b"\x01") for word in (b"river", b"the", b"to")
    ]
    assert len(app.sending.sent) == len(set(app.sending.sent))


def test_a_commit_that_failed_only_after_its_manifest_stands_when_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, job, answers = app_with_answers(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(ManifestRetention, "committed", full_disk)
        with pytest.raises(OSError):
            app.coordinator.commit(job, answers)

    manifest = app.coordinator.commit(job, answers)
    app.coordinator.publish(manifest)
    app.coordinator.close()

    assert manifest.epoch == job.epoch
    assert len(app.rows("word-counts")) == 3


def test_nothing_is_committed_before_the_witness_of_the_last_epoch_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, job, answers = app_with_answers(tmp_path)
    manifest = app.coordinator.commit(job, answers)
    witness = app.storage.witness.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(ManifestChain, "witness", full_disk)
        app.coordinator.publish(manifest)
        app.append("again")
        engine = app.engine()
        later = app.coordinator.plan_epoch()
        assert later is not None
        answers = list(engine.run_tasks(later))
        with pytest.raises(OSError):
            app.coordinator.commit(later, answers)
        assert app.coordinator.head == manifest
    assert app.storage.witness.read_bytes() == witness

    app.coordinator.publish(app.coordinator.commit(later, answers))
    app.coordinator.close()

    assert ManifestChain(app.storage).head() == app.coordinator.head
    assert len(app.rows("word-counts")) == 4


def app_with_answers(folder: Path) -> tuple[Application, EpochJob, list[TaskReport | WrongInstance]]:
    """An application whose tasks have answered, before anything is committed."""
    app = Application(folder, sends=False)
    app.append("to", "the", "river")
    engine = app.start()
    job = app.coordinator.plan_epoch()
    assert job is not None
    return app, job, list(engine.run_tasks(job))


def full_disk(*args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
