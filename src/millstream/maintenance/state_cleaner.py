"""Local state of tasks that have moved away, or that there are no more: deleted, on the host that has it.

Every process of a host that runs tasks looks now and then, and not after every task. What is deleted was not
used for the configured time, is not locked, and its task is known to have its state elsewhere, or is none of
the application's any more. A task that merely had nothing to do keeps its state, and every host
that of global stores. What killed processes left beside the stores goes, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millstream.commit.epoch_job import EpochJob
from millstream.state.local.cleaning import clean, remove_remains
from millstream.state.local.directory import StateDirectory

_logger = logging.getLogger(__name__)
_LONGEST_PAUSE_S: Final = 60.0

_looked_at: dict[Path, float] = {}
"""When this process looked last, by the folder of the application."""


def cleaning_pause_s(delay_ms: int) -> float:
    """How long a process waits at least before it looks again.

    >>> cleaning_pause_s(600_000), cleaning_pause_s(5_000), cleaning_pause_s(-1)
    (60.0, 5.0, 60.0)
    """
    return _LONGEST_PAUSE_S if delay_ms < 0 else min(_LONGEST_PAUSE_S, delay_ms / 1000)


def clean_now_and_then(
    directory: StateDirectory,
    delay_ms: int,
    job: EpochJob,
    is_elsewhere: Callable[[str], bool] | None = None,
) -> list[str]:
    """Delete what is not needed here; once a minute at most, or once per delay if that is shorter.

    With a negative delay, only what killed processes left. `is_elsewhere` knows the tasks of which nothing
    has to be here; without it, the job says where those are that it plans.
    """
    homes = {planned.task_id: planned.expected_instance for planned in job.tasks}

    def has_moved(task: str) -> bool:
        return homes.get(task) not in (None, directory.instance_id)

    def may_go(task: str) -> bool:
        if task in job.global_tasks:  # each host has a copy, whoever runs the task
            return False
        is_gone = task not in homes and not job.has_task(task)
        return is_gone or (is_elsewhere or has_moved)(task)

    return clean_what_may_go(directory, delay_ms, job.application_id, may_go)


def clean_what_may_go(
    directory: StateDirectory, delay_ms: int, application_id: str, may_go: Callable[[str], bool]
) -> list[str]:
    """The same, for whoever knows of which tasks nothing has to be here."""
    folder = directory.path / application_id
    now = time.monotonic()
    looked_at = _looked_at.get(folder)
    if looked_at is not None and now - looked_at < cleaning_pause_s(delay_ms):
        return []
    _looked_at[folder] = now
    removed: list[str] = []
    try:
        remove_remains(directory, application_id)
        if delay_ms >= 0:
            removed = clean(directory, application_id, unused_for_ms=delay_ms, may_go=may_go)
    except OSError:  # whoever cannot clean up can still work
        _logger.warning("Local state in %s could not be cleaned up", folder, exc_info=True)
        return []
    if removed:
        _logger.info("Deleted local state in %s that is not used here: %s", folder, ", ".join(removed))
    return removed
