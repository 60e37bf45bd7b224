"""Collection: sealed files that nobody needs any more are deleted."""

from __future__ import annotations

import errno
from pathlib import Path

from millstream import failpoints
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.log.api import SealedLog


def collect(
    storage: ApplicationStorage, log: SealedLog, chain: ManifestChain, head: Manifest, collected_to: int = 0
) -> int:
    """Delete the sealed files that neither a topic, nor a task, nor a manifest that is kept needs; how many.

    A file of an epoch above the head is never touched: its epoch may be running. Of epochs up to
    `collected_to` that are still kept nothing can have become garbage.
    """
    kept = range(head.oldest, collected_to + 1)
    folders = [
        (epoch, folder)
        for epoch, folder in storage.epoch_folders()
        if epoch <= head.epoch and epoch not in kept
    ]
    if not folders:
        return 0
    needed = log.referenced_files()
    needed.update(entry.file for entry in head.tasks.values())
    for record in chain.kept(head, collected_to):
        needed.update(record.tasks[task].file for task in record.sealed)
    collected = 0
    for _, folder in folders:
        paths = list(folder.iterdir())
        garbage = [path for path in paths if storage.relative(path) not in needed]
        for path in garbage:
            storage.files.unlink(path)
            failpoints.hit("maintenance.file_collected")
        if len(garbage) == len(paths):
            _remove(storage, folder)
        collected += len(garbage)
    return collected


def _remove(storage: ApplicationStorage, folder: Path) -> None:
    """Remove the folder of an epoch, unless a task that was given up long ago seals in it just now."""
    try:
        storage.files.rmdir(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
