"""The folder of topics: create, list, find, give more partitions or another configuration.

A topic is a folder with its configuration and one folder per partition. It is built under a temporary name
and renamed when it is complete and durable, so a topic is there as a whole or not at all. Creations exclude
each other by a lock; looking needs none.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from millstream import failpoints
from millstream.durable import (
    FileLayer,
    FrameKind,
    create_exclusive,
    disk_errors_named,
    held_lock,
    is_temporary,
    read_bounded,
    replace_durably,
    sync_folder,
    temporary_name,
)
from millstream.log.api import DELETE_RETENTION_MS, TimestampType, TopicConfig
from millstream.log.embedded.high_watermark import Watermark, create_watermark
from millstream.log.embedded.segment import HEADER, SegmentHeader, segment_name
from millstream.log.errors import InvalidTopicError, TopicExistsError, UnknownTopicError
from millstream.names import is_topic_name

MAX_PARTITIONS: Final = 4096
_TOPIC: Final = FrameKind(b"MSTP", version=1, max_bytes=4096)
_CONFIG: Final = "topic"
_LOCK: Final = "lock"


class Topic(msgspec.Struct, frozen=True):
    """What a topic's configuration file says."""

    id: str
    name: str
    partitions: int
    timestamp_type: TimestampType
    retention_ms: int | None = None
    retention_bytes: int | None = None
    is_compacted: bool = False
    delete_retention_ms: int = DELETE_RETENTION_MS

    def config(self) -> TopicConfig:
        """Return what the topic was created with, and the partitions that it has now."""
        return TopicConfig(**{field.name: getattr(self, field.name) for field in fields(TopicConfig)})


class TopicFolder:
    """All topics of a log."""

    def __init__(self, folder: Path, files: FileLayer, lock_timeout_ms: int) -> None:
        self._folder = folder
        self._files = files
        self._lock_timeout_ms = lock_timeout_ms

    def names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        if not self._folder.is_dir():
            return []
        return sorted(
            path.name
            for path in self._folder.iterdir()
            if not is_temporary(path.name) and (path / _CONFIG).exists()  # a crash may leave one half made
        )

    def find(self, name: str) -> Topic:
        """Return a topic; UnknownTopicError names those that exist."""
        path = self.path(name) / _CONFIG
        try:
            data = read_bounded(path, _TOPIC.max_bytes + 64, files=self._files)
        except FileNotFoundError:
            known = self.names()
            listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")  # noqa: PLR2004
            raise UnknownTopicError(
                f"There is no topic {name!r} in {self._folder.parent}. Topics: {listed or 'none yet'}. "
                "Likely cause: a typing error, or another folder. Remedy: create it (millstream topics "
                f"create {name})."
            ) from None
        topic = _TOPIC.decode(data, Topic, str(path))
        if topic.name != name:
            raise UnknownTopicError(
                f"The folder of topic {name!r} holds a topic called {topic.name!r}. Likely cause: the "
                "folder was renamed or copied. Remedy: give it its old name."
            )
        return topic

    def path(self, name: str) -> Path:
        """Return the folder of a topic, whether it exists or not."""
        return self._folder / check_name(name)

    def create(self, name: str, config: TopicConfig) -> None:
        """Create a topic.

        1. Build it under a temporary name, everything synced.
        2. Rename it.
        3. Sync the folder of topics.
        """
        target = self.path(name)
        check_topic(name, config)
        with held_lock(self._folder / _LOCK, timeout_ms=self._lock_timeout_ms):
            for path in list(self._folder.iterdir()):
                if is_temporary(path.name):  # a creation died halfway; we hold the lock, so nobody is at it
                    shutil.rmtree(path, ignore_errors=True)
            if target.exists():
                raise TopicExistsError(
                    f"Topic {name!r} is there already. Likely cause: it was created by an earlier run. "
                    "Remedy: use it as it is, or choose another name."
                )
            # 1
            temporary = temporary_name(target)
            topic = Topic(uuid.uuid4().hex, name, **asdict(config))
            with disk_errors_named(temporary):
                self._files.mkdir(temporary)
            self._build_partitions(temporary, topic, range(topic.partitions))
            create_exclusive(temporary / _CONFIG, [_TOPIC.encode(topic)], files=self._files)
            failpoints.hit("log.topic_built")
            # 2
            with disk_errors_named(target):
                self._files.rename(temporary, target)
            failpoints.hit("log.topic_named")
            # 3
            sync_folder(self._folder, files=self._files)

    def add_partitions(self, name: str, partitions: int) -> None:
        """Give a topic more partitions.

        1. Build the new ones in the topic's folder, everything synced. Nobody looks at them yet; what an
           earlier try left behind is removed first.
        2. Replace the configuration. From here on they are there, all of them.
        """
        folder = self.path(name)
        with held_lock(self._folder / _LOCK, timeout_ms=self._lock_timeout_ms):
            topic = self.find(name)
            if not topic.partitions <= partitions <= MAX_PARTITIONS:
                raise InvalidTopicError(
                    f"Topic {name!r} has {topic.partitions} partitions; it can't be given {partitions}, for "
                    f"partitions can only be added. Remedy: choose {topic.partitions} to {MAX_PARTITIONS}, "
                    "or create another topic."
                )
            if partitions == topic.partitions:
                return
            # 1
            for path in list(folder.iterdir()):
                if is_temporary(path.name):
                    self._files.unlink(path)
                elif path.name.isdigit() and int(path.name) >= topic.partitions:
                    shutil.rmtree(path)
            grown = replace(topic, partitions=partitions)
            self._build_partitions(folder, grown, range(topic.partitions, partitions))
            sync_folder(folder, files=self._files)
            failpoints.hit("log.partitions_built")
            # 2
            replace_durably(folder / _CONFIG, [_TOPIC.encode(grown)], files=self._files)
            failpoints.hit("log.partitions_counted")

    def alter(self, name: str, change: Callable[[TopicConfig], TopicConfig]) -> TopicConfig:
        """Give a topic another retention or compaction, all at once; returns what it has now."""
        with held_lock(self._folder / _LOCK, timeout_ms=self._lock_timeout_ms):
            topic = self.find(name)
            before = topic.config()
            config = change(before)
            fixed = (before.partitions, before.timestamp_type)
            if (config.partitions, config.timestamp_type) != fixed:
                raise InvalidTopicError(
                    f"Topic {name!r} keeps its timestamp type, and gets partitions by add_partitions. "
                    "Nothing was changed."
                )
            check_topic(name, config)
            altered = replace(topic, **asdict(config))
            replace_durably(self.path(name) / _CONFIG, [_TOPIC.encode(altered)], files=self._files)
            return config

    def delete(self, name: str) -> None:
        """Delete a topic and its records.

        1. Give its folder a temporary name, and sync the folder of topics. From here on it is gone.
        2. Delete the folder. If that is not finished, the next creation does it.
        """
        target = self.path(name)
        with held_lock(self._folder / _LOCK, timeout_ms=self._lock_timeout_ms):
            self.find(name)
            # 1
            temporary = temporary_name(target)
            self._files.rename(target, temporary)
            sync_folder(self._folder, files=self._files)
            failpoints.hit("log.topic_unnamed")
            # 2
            shutil.rmtree(temporary, ignore_errors=True)

    def _build_partitions(self, folder: Path, topic: Topic, partitions: range) -> None:
        files = self._files
        with disk_errors_named(folder):
            for partition in partitions:
                at = folder / str(partition)
                files.mkdir(at)
                header = HEADER.encode(SegmentHeader(topic.id, partition, 0, 0, {}))
                create_exclusive(at / segment_name(0), [header], files=files)
                create_watermark(at, Watermark(0, len(header), 0, 0), files)


def check_topic(name: str, config: TopicConfig) -> None:
    """Refuse a topic that can't be. Looks at nothing on disk."""
    check_name(name)
    if not 1 <= config.partitions <= MAX_PARTITIONS:
        raise InvalidTopicError(
            f"Topic {name!r} can't have {config.partitions} partitions. Remedy: choose 1 to {MAX_PARTITIONS}."
        )
    for what in ("retention_ms", "retention_bytes", "delete_retention_ms"):
        bound = getattr(config, what)
        if bound is not None and bound < 0:
            raise InvalidTopicError(
                f"Topic {name!r} can't have {what}={bound}. Remedy: choose 0 or more, or None for no bound."
            )


def check_name(name: str) -> str:
    """Return the name if a topic may be called so (Kafka's rule).

    >>> check_name("word-counts")
    'word-counts'
    """
    if is_topic_name(name):
        return name
    raise InvalidTopicError(
        f"A topic can't be called {name!r}. Remedy: use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' "
        "and '-', and don't begin with '.'."
    )
