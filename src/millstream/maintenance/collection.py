"""Collection: sealed files that nobody needs any more are deleted.

A file that several tasks share (:mod:`millstream.commit.seal_group`) stays while a topic points into it. One
that is mostly of no use is let go: those who still point into it are rewritten, though they have hardly
anything to be rewritten for. Else a task that is idle for a year would keep what others sealed beside it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from millstream import failpoints
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.commit.seal_group import is_shared
from millstream.log.api import SealedLog, TopicPartition
from millstream.throttler import maybe_throttle

_USED_PART: Final = 4
"""A file of which topics need less than this part is mostly of no use. Directories are never needed."""


def collect(
    storage: ApplicationStorage,
    log: SealedLog,
    chain: ManifestChain,
    head: Manifest,
    collected_to: int = 0,
    rewrite: Callable[[Collection[TopicPartition]], int] = lambda _: 0,
) -> int:
    """Delete the sealed files that neither a topic, nor a task, nor a manifest that is kept needs; how many.

    A file of an epoch above the head is never touched: its epoch may be running. Of epochs up to
    `collected_to` that are still kept nothing can have become garbage. `rewrite` makes partitions do without
    sealed files, if it can; how many of them it did that for.
    """
    kept = range(head.oldest, collected_to + 1)
    folders = [
        (epoch, list(folder.iterdir()), folder)
        for epoch, folder in storage.epoch_folders()
        if epoch <= head.epoch and epoch not in kept
    ]
    if not folders:
        return 0
    references = log.references()
    past = [path for epoch, paths, _ in folders if epoch < head.oldest for path in paths]
    if rewrite(_partitions_in_the_way(storage, past, references)):
        references = log.references()
    needed = {*references, *_named(chain, head, collected_to)}
    collected = 0
    for _, paths, folder in folders:
        garbage = [path for path in paths if storage.relative(path) not in needed]
        for path in garbage:
            storage.files.unlink(path)
            failpoints.hit("maintenance.file_collected")
            maybe_throttle()
        if len(garbage) == len(paths):
            _remove(storage, folder)
        collected += len(garbage)
    return collected


def _named(chain: ManifestChain, head: Manifest, collected_to: int) -> set[str]:
    """The files that manifests need: of those that are kept, and of tasks that may read theirs again."""
    named = {entry.file for entry in head.tasks.values() if not entry.is_shared}
    for record in chain.kept(head, collected_to):
        named.update(record.tasks[task].file for task in record.sealed)
    return named


def _partitions_in_the_way(
    storage: ApplicationStorage,
    files: Sequence[Path],
    references: Mapping[str, Mapping[TopicPartition, int]],
) -> set[TopicPartition]:
    """The partitions that point into shared files which are mostly of no use."""
    found: set[TopicPartition] = set()
    for path in files:
        held = references.get(storage.relative(path), {})
        if held and is_shared(path) and _USED_PART * sum(held.values()) < path.stat().st_size:
            found.update(held)
    return found


def _remove(storage: ApplicationStorage, folder: Path) -> None:
    """Remove the folder of an epoch, unless a task that was given up long ago seals in it just now."""
    try:
        storage.files.rmdir(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
