"""What maintenance deletes, against a naive model of what anybody needs.

Histories are random: which tasks seal in an epoch, attempts that lose, an epoch under way, snapshots that
take any number of epochs, followers and readers that stop anywhere. The model keeps all that was ever
written, in lists and dictionaries.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.maintenance import test_planted_maintenance_bugs as bugs
from tests.state.small_app import FastFiles, word_count

from millstream.commit import manifest as manifests
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import Manifest, ManifestChain, TaskEntry
from millstream.commit.seal_group import SealGroup
from millstream.commit.sealed_file import SealedContent, write_sealed
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.log.api import LogRecordBatch, SealedRange, Stamp
from millstream.log.embedded.partition import Limits
from millstream.maintenance.maintenance import maintain
from millstream.maintenance.retention import PinnedEpochs
from millstream.state.backends.memory import MemoryBackend
from millstream.state.changelog.follow import StorePosition, Target, follow
from millstream.state.errors import DamagedStoreError
from millstream.types import Attempt, Epoch, Offset, Partition, Term, Version

APPLICATION = "app"
OUTPUT, CHANGELOG = "word-counts", "app-counts-changelog"
PARTITIONS = 2
TASKS = [f"0_{number}" for number in range(PARTITIONS)]

State = dict[bytes, bytes]
Row = tuple[bytes, bytes | None]

ROWS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([None, b"1", b"2"])),
    min_size=1,
    max_size=3,
)


def fold(rows: list[Row]) -> State:
    """What a store holds after some writes."""
    state: State = {}
    for key, value in rows:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


@dataclass
class Reader:
    """Somebody who reads an output, and has stopped somewhere."""

    task: str
    expected: list[Row]
    batches: Iterator[LogRecordBatch]
    found: list[Row] = field(default_factory=list)

    def step(self) -> bool:
        for batch in self.batches:
            self.found += zip(batch.keys(), batch.values(), strict=True)  # type: ignore[arg-type]
            return True
        return False


class CollectorMachine(RuleBasedStateMachine):
    """An application's files, and all that was ever in them."""

    @initialize(retained=st.integers(1, 4), segment_entries=st.integers(1, 5), standing=st.integers(0, 3))
    def begin(self, retained: int, segment_entries: int, standing: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(manifests, "STANDING_MANIFESTS", standing)
        self.standing = standing
        self.scratch = tempfile.TemporaryDirectory()
        root = Path(self.scratch.name) / "log"
        self.now = 1_000
        self.retained = retained
        files = FastFiles()
        self.log = FileLog(
            root, files=files, limits=Limits(segment_entries=segment_entries), now_ms=lambda: self.now
        )
        self.log.create_topic("words", TopicConfig(PARTITIONS))
        self.log.create_topic(OUTPUT, TopicConfig(PARTITIONS))
        self.log.create_topic(CHANGELOG, TopicConfig(PARTITIONS, is_compacted=True, delete_retention_ms=0))
        self.folder = ApplicationStorage(root, APPLICATION, files)
        self.folder.ensure()
        self.chain = ManifestChain(self.folder)
        self.plan = word_count().plan()
        self.history: list[Manifest] = []
        self.attempts = count()
        self.outputs: dict[str, list[Row]] = {task: [] for task in TASKS}
        self.changes: dict[str, list[Row]] = {task: [] for task in TASKS}
        self.lost: list[tuple[int, Path]] = []
        """Of attempts that lost, or whose epoch is under way: the epoch and the file."""
        self.snapshots: list[tuple[str, TaskEntry]] = []
        self.at_work: list[tuple[str, int]] = []
        """Of snapshots that are being taken: the task, and its version when they began."""
        self.followers: dict[str, tuple[MemoryBackend, Offset]] = {}
        self.readers: list[Reader] = []
        self.commit([(task, [(b"a", b"1")], [(b"a", b"1")]) for task in TASKS], attempts=1)

    # Life -------------------------------------------------------------------------------------------------

    @rule(
        writes=st.lists(
            st.tuples(st.sampled_from(TASKS), ROWS, ROWS),
            max_size=PARTITIONS,
            unique_by=lambda write: write[0],
        ),
        attempts=st.integers(1, 2),
        is_shared=st.booleans(),
    )
    def commit(
        self, writes: list[tuple[str, list[Row], list[Row]]], attempts: int, is_shared: bool = False
    ) -> None:
        """An epoch; every task that seals does so as often as there are attempts, and the last one counts.

        If they share a file, it is that of the last attempts.
        """
        head = self.history[-1] if self.history else None
        epoch = Epoch(len(self.history) + 1)
        self.now += 10
        entries = dict(head.tasks) if head else {}
        with SealGroup(self.folder) as group:
            for task, out, changed in writes:
                for _ in range(attempts - 1):
                    entry = self._sealed(epoch, task, out, changed)
                    self.lost.append((epoch, self.folder.root / entry.file))
                entries[task] = self._sealed(epoch, task, out, changed, group if is_shared else None)
                self.outputs[task] += out
                self.changes[task] += changed
        manifest = Manifest(
            application_id=APPLICATION,
            epoch=epoch,
            term=Term(1),
            parent=head.digest() if head else "",
            fingerprint="plan",
            clock_ms=self.now,
            positions=(),
            tasks=entries,
            sealed=tuple(sorted(task for task, _, _ in writes)),
            inferred_types=(),
            oldest=max(head.oldest if head else 1, epoch - self.retained + 1),
        )
        self.chain.witness(self.chain.place(manifest))
        self.history.append(manifest)
        self._publish(manifest)

    @rule(task=st.sampled_from(TASKS))
    def seal_what_is_not_committed_yet(self, task: str) -> None:
        epoch = Epoch(len(self.history) + 1)
        entry = self._sealed(epoch, task, [(b"x", b"y")], [])
        self.lost.append((epoch, self.folder.root / entry.file))

    @rule(task=st.sampled_from(TASKS), is_quick=st.booleans())
    def begin_a_snapshot(self, task: str, is_quick: bool) -> None:
        entry = self.history[-1].tasks[task]
        if entry.version not in self._epochs_on_disk():
            return  # of a task that was idle for too long: nobody can tell whose it is
        if is_quick:
            self.snapshots.append((task, entry))
        else:
            self.at_work.append((task, entry.version))

    @precondition(lambda self: self.at_work)
    @rule(data=st.data())
    def finish_a_snapshot(self, data: st.DataObject) -> None:
        """It is of the version with which it began, or of one that was committed while it waited."""
        task, since = self.at_work.pop(data.draw(st.integers(0, len(self.at_work) - 1)))
        entries = [manifest.tasks[task] for manifest in self.history[since - 1 :] if task in manifest.sealed]
        self.snapshots.append((task, data.draw(st.sampled_from(entries))))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def drop_a_snapshot(self, data: st.DataObject) -> None:
        self.snapshots.pop(data.draw(st.integers(0, len(self.snapshots) - 1)))

    @rule(task=st.sampled_from(TASKS), steps=st.integers(0, 2))
    def begin_to_read(self, task: str, steps: int) -> None:
        batches = self.log.read(self._place(OUTPUT, task), Offset(0))
        self.readers.append(Reader(task, list(self.outputs[task]), batches))
        for _ in range(steps):
            self.readers[-1].step()

    @precondition(lambda self: self.readers)
    @rule()
    def read_to_the_end(self) -> None:
        reader = self.readers.pop(0)
        while reader.step():
            pass
        assert reader.found == reader.expected

    @rule(task=st.sampled_from(TASKS), data=st.data())
    def follow_to_a_commit_that_is_kept(self, task: str, data: st.DataObject) -> None:
        kept = [manifest for manifest in self._kept() if task in manifest.tasks]
        entry = data.draw(st.sampled_from(kept)).tasks[task]
        backend, position = self.followers.get(task, (MemoryBackend(), Offset(0)))
        if position > entry.changelogs["counts"]:
            return
        self.followers[task] = self._followed(backend, task, entry), entry.changelogs["counts"]

    # Maintenance ----------------------------------------------------------------------------------------

    @rule(min_entries=st.integers(1, 4), later=st.integers(0, 1))
    def run_maintenance(self, min_entries: int, later: int) -> None:
        self.now += later
        head = self.history[-1]
        since = min((version for _, version in self.at_work), default=None)
        pinned = PinnedEpochs({entry.version for _, entry in self.snapshots}, since)
        before = self._epochs_on_disk()
        maintain(self.folder, self.log, self.plan, head, pinned, min_entries=min_entries)
        kept = {manifest.epoch for manifest in self._kept()}
        idle = {entry.version for entry in head.tasks.values()} - kept
        needed: set[int] = set(sorted(idle, reverse=True)[: self.standing])
        needed |= {entry.version for _, entry in self.snapshots}
        needed |= {epoch for epoch in before if since is not None and epoch >= since}
        assert self._epochs_on_disk() == kept | (needed & before), "manifests"
        self._check_files(head)
        self._check_topics()
        self._check_snapshots(head)

    def _check_files(self, head: Manifest) -> None:
        needed = {entry.file for entry in head.tasks.values() if entry.part == (0, 0)}
        needed |= {manifest.tasks[task].file for manifest in self._kept() for task in manifest.sealed}
        missing = [file for file in needed if not (self.folder.root / file).exists()]
        assert not missing, "a manifest that is kept needs them"
        for epoch, path in self.lost:
            assert path.exists() == (epoch > head.epoch), f"{path}: of an attempt, the head is {head.epoch}"
        self.lost = [(epoch, path) for epoch, path in self.lost if epoch > head.epoch]
        there = {self.folder.relative(path) for path in self.folder.root.glob("sealed/*/*/*")}
        running = {self.folder.relative(path) for _, path in self.lost}
        references = self.log.references()
        assert there <= needed | running | set(references), "nobody needs them"
        for file in there - needed - running:
            size, used = (self.folder.root / file).stat().st_size, sum(references[file].values())
            assert 4 * used >= size or not file.endswith(".shared"), f"{file}: {used} of {size} are used"

    def _check_topics(self) -> None:
        """Indexes point at what is there, and changelogs are enough for every commit that is kept."""
        for task in TASKS:
            batches = self.log.read(self._place(OUTPUT, task), Offset(0))
            found = [row for batch in batches for row in zip(batch.keys(), batch.values(), strict=True)]
            assert found == self.outputs[task]
            for manifest in self._kept():
                if task in manifest.tasks:
                    self._followed(MemoryBackend(), task, manifest.tasks[task])

    def _check_snapshots(self, head: Manifest) -> None:
        """Whose a snapshot is can be told, and it can be brought to the head, or is refused."""
        for task, entry in self.snapshots:
            assert self.chain.read(entry.version).tasks[task] == entry
            backend = MemoryBackend()
            state = sorted(self._state(task, entry).items())
            backend.write(state, marker=self._marker(entry).encoded())
            self._followed(backend, task, head.tasks[task])

    # Inside -----------------------------------------------------------------------------------------------

    def _followed(self, backend: MemoryBackend, task: str, entry: TaskEntry) -> MemoryBackend:
        """A store that was brought to a version; one that is too old for that begins anew."""
        target = Target("counts", self._place(CHANGELOG, task), self._marker(entry))
        try:
            follow(backend, target, self.log)
        except DamagedStoreError:
            backend = MemoryBackend()
            follow(backend, target, self.log)
        assert dict(backend.scan()) == self._state(task, entry)
        return backend

    def _sealed(
        self, epoch: Epoch, task: str, out: list[Row], changed: list[Row], group: SealGroup | None = None
    ) -> TaskEntry:
        place = Partition(int(task[2:]))
        published = {
            (topic, place): record_batch(
                [key for key, _ in rows], [value for _, value in rows], [self.now] * len(rows)
            )
            for topic, rows in ((OUTPUT, out), (CHANGELOG, changed))
            if rows
        }
        path = self.folder.sealed_file(epoch, task, 0, Term(1), Attempt(next(self.attempts)))
        content = SealedContent(task, epoch, published, {}, self.now)
        if group is None:
            sealed = write_sealed(self.folder, path, content)
        else:
            sealed = group.seal(path, content, is_read_again=False)
        before = self.history[-1].tasks.get(task) if self.history else None
        return TaskEntry(
            version=epoch,
            file=sealed.path,
            digest=sealed.digest,
            sections=sealed.sections,
            changelogs={"counts": Offset(len(self.changes[task]) + len(changed))},
            stream_time=0,
            partition_times=(),
            punctuations=(),
            previous=(before.version, before.digest) if before else (0, ""),
            part=sealed.part,
        )

    def _publish(self, manifest: Manifest) -> None:
        self.log.publish_all(
            (
                TopicPartition(section.topic, section.partition),
                SealedRange(
                    manifest.tasks[task].file,
                    section.start,
                    section.length,
                    section.count,
                    section.min_timestamp,
                    section.max_timestamp,
                    Stamp(APPLICATION, task, manifest.epoch),
                ),
            )
            for task in manifest.sealed
            for section in manifest.tasks[task].sections
        )

    def _kept(self) -> list[Manifest]:
        return self.history[-self.retained :]

    def _state(self, task: str, entry: TaskEntry) -> State:
        return fold(self.changes[task][: entry.changelogs["counts"]])

    def _marker(self, entry: TaskEntry) -> StorePosition:
        return StorePosition(Version(entry.version), entry.changelogs["counts"], entry.digest)

    def _place(self, topic: str, task: str) -> TopicPartition:
        return TopicPartition(topic, Partition(int(task[2:])))

    def _epochs_on_disk(self) -> set[int]:
        return {int(path.name) for path in self.folder.manifests.iterdir()}

    def teardown(self) -> None:
        if hasattr(self, "scratch"):
            self.patch.undo()
            with self.scratch:
                while self.readers:
                    self.read_to_the_end()


TestNothingThatIsNeededIsDeleted = CollectorMachine.TestCase
TestNothingThatIsNeededIsDeleted.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, print_blob=True
)


def the_collector_ignores_what_is_pinned(patch: pytest.MonkeyPatch) -> None:
    real = ManifestChain.remove_unneeded
    patch.setattr(ManifestChain, "remove_unneeded", lambda chain, head, _pinned: real(chain, head, ()))


def a_snapshot_at_work_pins_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PinnedEpochs, "__contains__", lambda self, epoch: epoch in self.listed)


def a_snapshot_at_work_pins_where_it_began_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        PinnedEpochs, "__contains__", lambda self, epoch: epoch == self.at_work_since or epoch in self.listed
    )


@pytest.mark.parametrize(
    "plant",
    [
        bugs.compaction_ignores_the_manifests_that_are_kept,
        bugs.the_collector_ignores_the_manifests_that_are_kept,
        bugs.manifests_go_one_too_early,
        bugs.the_collector_ignores_the_indexes,
        bugs.the_collector_takes_what_is_sealed_just_now,
        the_collector_ignores_what_is_pinned,
        a_snapshot_at_work_pins_nothing,
        a_snapshot_at_work_pins_where_it_began_only,
        bugs.a_changelog_does_not_say_that_deletions_are_gone,
        bugs.folding_loses_a_record,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017 - whichever it meets first
        run_state_machine_as_test(
            seed(3)(type("Planted", (CollectorMachine,), {})),
            settings=settings(
                TestNothingThatIsNeededIsDeleted.settings,
                database=None,
                max_examples=500,
                phases=[Phase.generate],
                print_blob=False,
            ),
        )
