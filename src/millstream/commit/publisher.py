"""Step 8: a log shows what a manifest names, exactly once, however often it is asked to.

How that is done depends on the log, so it stands behind a protocol. The embedded log takes ranges of sealed
files in, without copying a row; a log that is a service is sent records.
"""

from __future__ import annotations

from typing import Protocol

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import LostManifestError, Manifest, Section
from millstream.log.api import SealedLog, SealedRange, Stamp, TopicPartition
from millstream.types import Partition


class Publisher(Protocol):
    """Publishes the epochs of one application, in their order."""

    def check_head(self, head: Manifest | None) -> None:
        """Refuse a log that shows an epoch above the head: it has seen a manifest that is gone."""

    def publish(self, manifest: Manifest) -> None:
        """Show what the manifest names, unless that epoch is shown already.

        Raises an InvalidPublicationError if what it names is not there any more.
        """


class EmbeddedPublisher(Publisher):
    """Topic indexes take sealed rows in at the next offsets, each entry with (application, task, epoch)."""

    def __init__(self, storage: ApplicationStorage, log: SealedLog) -> None:
        self._storage = storage
        self._log = log

    def check_head(self, head: Manifest | None) -> None:
        last = 0 if head is None else head.epoch
        for topic in self._log.topics():
            for number in range(self._log.config(topic).partitions):
                found = self._log.publications(TopicPartition(topic, Partition(number)))
                for (publisher, task), publication in found.items():
                    if publisher == self._storage.application_id and publication.epoch > last:
                        raise LostManifestError(
                            f"Topic {topic!r} shows epoch {publication.epoch} of task {task}, but the last "
                            f"manifest of application {publisher!r} is {last}. Nothing was changed. "
                            "Likely cause: the application's folder was deleted, or restored from an older "
                            "backup than its topics. Remedy: restore both from the same backup, or start the "
                            "application under another app_id."
                        )

    def publish(self, manifest: Manifest) -> None:
        self._log.publish_all(
            (TopicPartition(section.topic, section.partition), _range(manifest, task_id, section))
            for task_id in manifest.sealed
            for section in manifest.tasks[task_id].sections
        )


def _range(manifest: Manifest, task_id: str, section: Section) -> SealedRange:
    return SealedRange(
        file=manifest.tasks[task_id].file,
        start=section.start,
        length=section.length,
        count=section.count,
        min_timestamp=section.min_timestamp,
        max_timestamp=section.max_timestamp,
        stamp=Stamp(manifest.application_id, task_id, manifest.epoch),
    )
