"""Maintenance: files, disk and the time of a start stay flat, and nothing that anybody needs is deleted."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.commit.table_app import fold
from tests.commit.test_reused_source_topics import made
from tests.simulation.executor import InProcessExecutor
from tests.simulation.faulty_files import FaultyFiles
from tests.state.small_app import FastFiles, SmallApp, word_count

from millstream import StreamsBuilder, failpoints, serdes
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import ManifestChain
from millstream.commit.store_opening import apply_commit
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.log.embedded.partition import Limits
from millstream.maintenance.maintenance import maintain
from millstream.query.replica import StoreReplica
from millstream.state.backends import supplier
from millstream.state.backends.memory import MemoryBackend
from millstream.state.changelog.follow import Progress, StorePosition, Target, follow
from millstream.throttler import Throttler
from millstream.types import Offset, Partition, Version

WORDS = ["to", "the", "river", "sea"]


def app_of(root: Path, backend: str = "memory", **more: object) -> SmallApp:
    app = SmallApp(root, backend, **more)  # type: ignore[arg-type]
    app.create()
    return app


def run_epochs(app: SmallApp, executor: InProcessExecutor, count: int, *, every: int = 20) -> None:
    for number in range(count):
        app.append(WORDS[number % len(WORDS)], "to")
        executor.run_epoch()
        if number % every == 0:
            executor.run_maintenance(min_entries=8)


def files_of(app: SmallApp) -> Counter[str]:
    """How many files there are of each kind."""
    paths = (path.relative_to(app.log_root) for path in app.log_root.rglob("*") if path.is_file())
    return Counter("/".join(path.parts[:2]) for path in paths)


def check(app: SmallApp) -> None:
    """The store with a changelog, and the output. What has no changelog lives no longer than its process."""
    found, expected = app.run(), app.expected()
    assert (found.counts, found.updates) == (expected.counts, expected.updates)


def test_files_and_disk_stay_flat_over_many_epochs(tmp_path: Path) -> None:
    app = app_of(tmp_path / "app", files=FastFiles())
    with app.start() as executor:
        run_epochs(app, executor, 300)
        early = files_of(app)
        run_epochs(app, executor, 300)
        late = files_of(app)
    assert sum(late.values()) < 1.2 * sum(early.values()) + 10
    changelog = list((app.log_root / "topics/app-counts-changelog/0").glob("*.segment"))
    assert sum(path.stat().st_size for path in changelog) < 40_000, "four keys, however many epochs"
    check(app)


def test_everything_is_as_before_after_a_restore_from_what_is_left(tmp_path: Path) -> None:
    app = app_of(tmp_path / "app", "lmdb", files=FastFiles())
    with app.start() as executor:
        run_epochs(app, executor, 150)
        executor.run_maintenance()
    shutil.rmtree(app.state)
    check(app)


def test_a_store_that_is_far_behind_is_restored_and_not_brought_forward(tmp_path: Path) -> None:
    app = app_of(tmp_path / "app", "lmdb", files=FastFiles())
    app.append("to", "gone")
    app.run()
    shutil.copytree(app.state, tmp_path / "old")
    with app.start() as executor:
        run_epochs(app, executor, 150)
        executor.run_maintenance()
    shutil.rmtree(app.state)
    shutil.copytree(tmp_path / "old", app.state)
    assert app.run().counts == app.expected().counts


def test_a_manifest_that_is_kept_must_be_there(tmp_path: Path) -> None:
    app = app_of(tmp_path / "app", files=FastFiles())
    with app.start() as executor:
        run_epochs(app, executor, 150)
        executor.run_maintenance()
    manifests = sorted((app.application_folder / "manifests").iterdir())
    assert len(manifests) <= 101
    chain = ManifestChain(ApplicationStorage(app.log_root, "app"))
    head = chain.head()
    assert head is not None
    assert int(manifests[0].name) == head.oldest
    manifests[0].unlink()
    with pytest.raises(Exception, match="The history of application 'app' is not whole"):
        app.run()


def test_pinned_manifests_stay_and_do_not_disturb(tmp_path: Path) -> None:
    app = app_of(tmp_path / "app", files=FastFiles())
    with app.start() as executor:
        for _ in range(120):
            app.append("to")
            executor.run_epoch()
        head = executor.coordinator.head
        maintain(executor.worker.storage, executor.log, executor.worker.plan, head, {7})
    names = sorted(int(path.name) for path in (app.application_folder / "manifests").iterdir())
    assert names[:2] == [7, head.oldest]
    check(app)


def test_what_a_lost_attempt_sealed_is_collected_and_what_runs_is_not(tmp_path: Path) -> None:
    app = app_of(tmp_path / "app", files=FastFiles())
    with app.start() as executor:
        app.append("to", "the")
        executor.run_epoch()
        head = executor.coordinator.head
        folder = executor.worker.storage
        lost = folder.sealed_file(head.epoch, "0_0", 0, head.term, 77)  # type: ignore[arg-type]
        lost.write_bytes(b"of an attempt that lost")
        app.append("sea")
        job = executor.coordinator.plan_epoch()
        assert job is not None
        reports = executor.run_tasks(job)
        executor.run_maintenance()
        assert not lost.exists()
        manifest = executor.coordinator.commit(job, reports)
        executor.coordinator.publish(manifest)
    check(app)


POINTS = [
    "maintenance.manifest_removed",
    "maintenance.file_collected",
    "log.rewritten_named",
    "log.replaced_removed",
]


@pytest.mark.parametrize("action", ["raise", "torn-raise"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_in_the_middle_of_maintenance_changes_nothing(
    tmp_path: Path, point: str, action: failpoints.Action
) -> None:
    fired = 0
    for skip in range(3):
        root = tmp_path / str(skip)
        files = FaultyFiles(root)
        app = app_of(root, "lmdb", files=files, retained_manifests=5)
        executor = app.start()
        for number in range(60):
            app.append(WORDS[number % 4])
            executor.run_epoch()
            if number % 10 != 9:
                continue
            with failpoints.armed(point, action, skip=skip) as armed:
                try:
                    executor.run_maintenance(min_entries=4)
                except failpoints.InjectedCrash:
                    if skip:
                        files.power_cut(random.Random(number))
                    executor = app.start()
            fired += armed.fired
        executor.close()
        check(app)
    assert fired


def test_a_reader_reads_the_same_while_files_are_folded_and_collected(tmp_path: Path) -> None:
    app = app_of(tmp_path / "app", files=FastFiles())
    with app.start() as executor:
        run_epochs(app, executor, 60, every=1_000)
        place = TopicPartition("word-counts", Partition(0))
        whole = [value for batch in app.log().read(place, 0) for value in batch.values()]  # type: ignore[arg-type]
        reading = app.log().read(place, 0)  # type: ignore[arg-type]
        for _ in range(120):
            app.append("sea")
            executor.run_epoch()
        report = executor.run_maintenance()
        assert report.files_collected
        assert [value for batch in reading for value in batch.values()] == whole


def test_a_store_can_be_had_at_every_commit_that_is_kept(tmp_path: Path) -> None:
    app = app_of(tmp_path / "app", files=FastFiles(), retained_manifests=10)
    expected: dict[int, dict[str, int]] = {}
    with app.start() as executor:
        for number in range(60):
            app.append(WORDS[number % len(WORDS)], "to")
            manifest = executor.run_epoch()
            assert manifest is not None
            expected[manifest.epoch] = dict(Counter(app.words))
            if number % 10 == 9:
                executor.run_maintenance()
        chain = ManifestChain(executor.worker.storage)
        place = TopicPartition("app-counts-changelog", Partition(0))
        assert executor.log.compacted(place).to, "nothing was compacted"
        for kept in chain.kept(executor.coordinator.head):
            entry = kept.tasks["0_0"]
            target = Target(
                "counts", place, StorePosition(Version(entry.version), entry.changelogs["counts"])
            )
            with MemoryBackend() as store:
                follow(store, target, executor.log)
                found = {key.decode(): int.from_bytes(value[8:], "big") for key, value in store.scan()}
            assert found == expected[kept.epoch]


class Restored:
    """How many records each follow applies."""

    def __init__(self) -> None:
        self.records: list[int] = []

    def on_start(self, progress: Progress) -> None:
        self.records.append(progress.total_records)

    def on_batch(self, progress: Progress) -> None: ...
    def on_end(self, progress: Progress) -> None: ...
    def on_suspended(self, progress: Progress) -> None: ...


def test_a_task_that_was_idle_for_long_goes_on_with_the_stores_that_it_has(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    log = FileLog(tmp_path / "log", files=FastFiles())
    log.create_topic("words", TopicConfig(partitions=2))
    listener = Restored()

    def put(partition: int, *words: str) -> None:
        rows = record_batch([word.encode() for word in words], [b""] * len(words), [0] * len(words))
        log.append(TopicPartition("words", Partition(partition)), rows)

    with InProcessExecutor(
        word_count(),
        application_id="app",
        log_root=log.root,
        state_dir=tmp_path / "state",
        backend="lmdb",
        files=FastFiles(),
        settings=CoordinatorSettings(retained_manifests=5),
        listener=listener,
        apply_after_commit=False,
    ) as executor:
        for _ in range(3):
            put(0, "a", "b", "c")
            executor.run_epoch()
        for _ in range(20):
            put(1, "x")
            executor.run_epoch()
            executor.run_maintenance()
        listener.records.clear()
        put(0, "a")
        executor.run_epoch()
        entry = executor.coordinator.head.tasks["0_0"]
        apply_commit(executor.worker, PlannedTask("0_0", 0, Partition(0), 0), entry)
        assert max(listener.records) <= 3, "all of it was restored"
    for backend, store in (("lmdb", "counts"), ("memory", "seen")):
        with supplier(backend).open(tmp_path / "state/app/0_0" / backend / store) as opened:
            found = {key: int.from_bytes(value[8:], "big") for key, value in opened.scan()}
        assert found == {b"a": 4, b"b": 3, b"c": 3}


def test_topics_that_are_chosen_per_record_are_folded_too(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    log = FileLog(tmp_path / "log", files=FastFiles())
    log.create_topic("in")
    log.create_topic("chosen")
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.bytes, value=serdes.bytes).to(lambda *_: "chosen")
    with InProcessExecutor(
        builder.build(),
        application_id="app",
        log_root=log.root,
        state_dir=tmp_path / "state",
        files=FastFiles(),
        settings=CoordinatorSettings(retained_manifests=5),
    ) as executor:
        for number in range(30):
            log.append(TopicPartition("in", Partition(0)), record_batch([b"k"], [b"%d" % number], [number]))
            executor.run_epoch()
        executor.run_maintenance()
    assert len([path for path in (log.root / "sealed").rglob("*") if path.is_file()]) <= 5
    chosen = TopicPartition("chosen", Partition(0))
    values = [value for batch in log.read(chosen, Offset(0)) for value in batch.values()]
    assert values == [b"%d" % number for number in range(30)]


def test_input_that_was_not_read_yet_is_not_let_go(tmp_path: Path) -> None:
    root = tmp_path / "app"
    root.mkdir(0o700)
    log = FileLog(root / "log", files=FastFiles(), limits=Limits(segment_entries=2))
    log.create_topic("in", TopicConfig(retention_bytes=1_000))
    place = TopicPartition("in", Partition(0))
    for number in range(40):
        log.append(place, record_batch([b"%d" % number], [bytes(500)], [number]))
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.bytes, value=serdes.bytes).to("out")
    with InProcessExecutor(
        builder.build(),
        application_id="app",
        log_root=root / "log",
        state_dir=root / "state",
        files=FastFiles(),
        settings=CoordinatorSettings(max_records=10),
    ) as executor:
        for read in (10, 20, 30, 40):
            executor.run_epoch()
            executor.run_maintenance()
            assert read - 2 <= log.earliest(place) <= read
    out = TopicPartition("out", Partition(0))
    assert sum(len(batch) for batch in log.read(out, Offset(0))) == 40


def test_without_an_answer_of_the_snapshots_all_but_manifests_is_tidied_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(tmp_path / "app", files=FastFiles(), retained_manifests=5)

    def nobody_knows() -> tuple[int, ...]:
        raise OSError("the bucket does not answer")

    with app.start() as executor:
        executor.maintenance._pinned = nobody_knows
        run_epochs(app, executor, 60)
        report = executor.run_maintenance()
        assert (report.manifests_removed, report.files_collected > 0) == (0, True)
        assert "No manifest is removed: nobody knows which ones snapshots need. the bucket" in caplog.text
        executor.maintenance._pinned = tuple
        assert executor.run_maintenance().manifests_removed > 50
    check(app)


def test_a_topic_that_a_stopped_application_follows_has_few_files_all_the_same(tmp_path: Path) -> None:
    follower = made(tmp_path / "app", topic=TopicConfig(is_compacted=True))
    follower.append([(b"ann", b"rome")])
    follower.run()  # and never again
    builder = StreamsBuilder()
    builder.stream("moves", key=serdes.bytes, value=serdes.bytes).to("users")
    log = follower.log()
    log.create_topic("moves", TopicConfig(retention_bytes=1_000))
    files: list[int] = []
    with InProcessExecutor(
        builder.build(),
        application_id="writer",
        log_root=follower.root / "log",
        state_dir=follower.root / "state",
        files=FastFiles(),
        settings=CoordinatorSettings(retained_manifests=5),
    ) as executor:
        for number in range(400):
            log.append(TopicPartition("moves", Partition(0)), record_batch([b"ann"], [b"oslo"], [number]))
            executor.run_epoch()
            if number % 20 == 19:
                executor.run_maintenance()
                files.append(sum(1 for path in (follower.root / "log").rglob("*") if path.is_file()))
    assert files[-1] <= 1.5 * files[5], files
    assert follower.restored() == fold([(b"ann", b"rome")])


def test_a_query_between_a_commit_and_its_publication_sees_the_commit_before(tmp_path: Path) -> None:
    app = app_of(tmp_path / "app", files=FastFiles())
    with app.start() as executor:
        app.append("to")
        executor.run_epoch()
        folder = executor.worker.storage
        replicas = [StoreReplica(folder, executor.log, executor.worker.plan, "counts") for _ in range(2)]
        assert replicas[0].get("to") == 1
        app.append("to", "sea")
        job = executor.coordinator.plan_epoch()
        assert job is not None
        manifest = executor.coordinator.commit(job, executor.run_tasks(job))
        for replica in replicas:
            assert (replica.get("to"), replica.version) == (1, manifest.epoch - 1)
        executor.coordinator.publish(manifest)
        for replica in replicas:
            assert (replica.get("to"), replica.get("sea"), replica.version) == (2, 1, manifest.epoch)


def test_a_query_asks_again_if_the_commit_before_was_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_of(tmp_path / "app", files=FastFiles(), retained_manifests=2)
    with app.start() as executor:
        app.append("to")
        executor.run_epoch()
        app.append("to", "sea")
        job = executor.coordinator.plan_epoch()
        assert job is not None
        manifest = executor.coordinator.commit(job, executor.run_tasks(job))
        log = FileLog(executor.log.root, files=FastFiles())
        replica = StoreReplica(executor.worker.storage, log, executor.worker.plan, "counts")
        ends = log.latest

        def go_on_meanwhile(place: TopicPartition) -> Offset:
            end = ends(place)
            monkeypatch.setattr(log, "latest", ends)
            executor.coordinator.publish(manifest)
            for _ in range(3):
                app.append("to")
                executor.run_epoch()
            executor.run_maintenance()
            return end

        monkeypatch.setattr(log, "latest", go_on_meanwhile)
        assert (replica.get("to"), replica.version) == (5, executor.coordinator.head.epoch)


def test_a_changelog_is_compacted_however_often_maintenance_comes(tmp_path: Path) -> None:
    """More often than manifests go: what is folded then must not grow for ever with what comes after it."""
    app = app_of(tmp_path / "app", files=FastFiles(), retained_manifests=20)
    place = TopicPartition("app-counts-changelog", Partition(0))
    with app.start() as executor:
        for _ in range(60):
            app.append(*WORDS)
            executor.run_epoch()
            executor.run_maintenance()
        head = executor.coordinator.head
        behind = head.tasks["0_0"].changelogs["counts"] - executor.log.compacted(place).to
    assert behind <= 3 * 20 * len(WORDS), "compaction follows, as far behind as manifests are kept"
    check(app)


def test_what_a_late_task_seals_while_its_folder_is_removed_is_collected_next_time(tmp_path: Path) -> None:
    app = app_of(tmp_path / "app", files=LateTask(), retained_manifests=2)
    with app.start() as executor:
        run_epochs(app, executor, 12, every=4)
        assert isinstance(app.files, LateTask)
        assert app.files.sealed, "nothing was sealed late"
        executor.run_maintenance()
        assert not app.files.sealed[0].exists()
    check(app)


class LateTask(FastFiles):
    """Files into which a task that was given up seals, at the worst moment, once."""

    def __init__(self) -> None:
        self.sealed: list[Path] = []

    def rmdir(self, path: Path) -> None:
        if not self.sealed:
            self.sealed.append(path / "0_0.s0-t1-a99")
            self.sealed[0].write_bytes(b"too late")
        super().rmdir(path)


class CountedSteps(Throttler):
    """Gives way to nobody, and counts how often it could."""

    steps = 0

    def step_ended(self) -> None:
        self.steps += 1


def test_it_could_give_way_after_each_file_and_each_block(tmp_path: Path) -> None:
    app = app_of(tmp_path / "app", files=FastFiles())
    throttler = CountedSteps()
    with app.start() as executor:
        run_epochs(app, executor, 150, every=1000)
        with throttler.throttled():
            report = executor.run_maintenance(min_entries=8)
    entries = 150  # of the changelog at least, each of an epoch
    assert report.files_collected > 0
    assert report.manifests_removed > 0
    assert throttler.steps > report.files_collected + report.manifests_removed + entries
