"""A word count small enough to be run thousands of times, and what its result must be.

Two stores: ``counts`` has a changelog, ``seen`` has none. The result is compared with a fold of the words
that knows nothing of the library.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.executor import InProcessExecutor

from millstream import Store, StreamsBuilder, StreamsConfig, Topology, serdes
from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.store_opening import apply_commit
from millstream.durable.layer import OS_FILES, FileLayer, OsFileLayer
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.log.embedded.partition import Limits
from millstream.state.backends import memory, supplier
from millstream.state.changelog.follow import NO_LISTENER, RestoreListener
from millstream.types import Offset, Partition

WORDS = TopicPartition("words", Partition(0))
COUNTS = TopicPartition("word-counts", Partition(0))
APPLICATION = "app"
TASK = "0_0"


class FastFiles(OsFileLayer):
    """Files without syncs, for tests in which the power stays on."""

    def fsync(self, fd: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


@dataclass
class Result:
    """What an application has made of its input."""

    counts: dict[str, int]
    seen: dict[str, int]
    updates: list[tuple[str, int]]


def fold(words: Sequence[str]) -> Result:
    """What it has to make of it."""
    counts: Counter[str] = Counter()
    updates = []
    for word in words:
        counts[word] += 1
        updates.append((word, counts[word]))
    return Result(dict(counts), dict(counts), updates)


def word_count() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", key=serdes.string, value=serdes.string).group_by_key()
    counts = words.count(store=Store("counts", caching=False))
    counts.to_stream().to("word-counts", key=serdes.string, value=serdes.int64)
    words.count(store=Store("seen", caching=False, logging=False, backend="memory"))
    return builder.build()


@dataclass
class SmallApp:
    """A word count in two folders below a root: the log, and the local state."""

    root: Path
    backend: str
    files: FileLayer = OS_FILES
    words: list[str] = field(default_factory=list)
    """What was acknowledged."""
    hours: int = 0
    retained_manifests: int = 100
    config: StreamsConfig | None = None
    listener: RestoreListener = NO_LISTENER
    limits: Limits | None = None

    @property
    def log_root(self) -> Path:
        return self.root / "log"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def application_folder(self) -> Path:
        return self.log_root / "applications" / APPLICATION

    @property
    def task_folder(self) -> Path:
        return self.state / APPLICATION / TASK

    def log(self) -> FileLog:
        """The log, opened as another process would."""
        return FileLog(self.log_root, files=self.files, limits=self.limits)

    def create(self) -> None:
        self.root.mkdir(mode=0o700, exist_ok=True)
        self.root.chmod(0o700)
        self.log().create_topic("words")

    def append(self, *words: str) -> None:
        keys = [word.encode() for word in words]
        self.log().append(WORDS, record_batch(keys, [b""] * len(words), range(len(words))))
        self.words += words

    def start(self) -> InProcessExecutor:
        """Start a coordinator, long after the end of the process before: its memory and lease are gone."""
        memory._kept.clear()
        self.hours += 1
        now = self.hours * 3_600_000
        return InProcessExecutor(
            word_count(),
            application_id=APPLICATION,
            log_root=self.log_root,
            state_dir=self.state,
            backend=self.backend,
            files=self.files,
            limits=self.limits,
            clock=lambda: now,
            settings=CoordinatorSettings(retained_manifests=self.retained_manifests),
            config=self.config,
            listener=self.listener,
            apply_after_commit=self.config is not None,
        )

    def run(self) -> Result:
        """Start, process all input, bring the local stores to the head, end; say what is there then."""
        with self.start() as executor:
            executor.run_until_caught_up()
            entry = executor.coordinator.head.tasks.get(TASK)
            if entry is not None:
                apply_commit(executor.worker, PlannedTask(TASK, 0, WORDS.partition, 0), entry)
        return self.result()

    def result(self) -> Result:
        """What the local stores and the output topic hold."""
        updates: list[tuple[str, int]] = []
        for batch in self.log().read(COUNTS, Offset(0)):
            rows = zip(batch.keys(), batch.values(), strict=True)
            updates += [((key or b"").decode(), int.from_bytes(value or b"", "big")) for key, value in rows]
        return Result(self._stored(self.backend, "counts"), self._stored("memory", "seen"), updates)

    def expected(self) -> Result:
        return fold(self.words)

    def _stored(self, backend: str, store: str) -> dict[str, int]:
        with supplier(backend).open(self.task_folder / backend / store) as rows:
            return {key.decode(): int.from_bytes(value[8:], "big") for key, value in rows.scan()}


class Tree:
    """The content of a folder, kept in memory: a folder can be made what it was, quickly."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.files = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
        self._folders = {path for path in root.rglob("*") if path.is_dir()}

    def put_back(self) -> None:
        """Make the folder what it was."""
        for path in sorted(self._root.rglob("*"), reverse=True):
            if path.is_dir():
                if path not in self._folders:
                    shutil.rmtree(path)
            elif path not in self.files:
                path.unlink()
        for folder in sorted(self._folders):
            folder.mkdir(mode=0o700, exist_ok=True)
        for path, content in self.files.items():
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)
                path.chmod(0o600)
