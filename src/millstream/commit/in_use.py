"""Local state of an application that somebody runs is not to be deleted, idle or not."""

from __future__ import annotations

from pathlib import Path

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.lease import Owner, running_driver
from millstream.state.errors import StateInUseError
from millstream.state.local.directory import StateDirectory
from millstream.state.local.log_note import noted_log

__all__ = ["check_not_run"]


def check_not_run(
    directory: StateDirectory,
    app_id: str,
    *,
    now_ms: int,
    log_root: Path | None = None,
    us: Owner | None = None,
) -> None:
    """Refuse if a coordinator other than `us` runs it: on the log that the state notes, or on this one.

    A coordinator that starts just now is not seen, and need not be: it restores what is missing.
    """
    logs = (noted_log(directory, app_id), None if log_root is None else log_root.resolve())
    for root in filter(None, dict.fromkeys(logs)):
        coordinator = running_driver(ApplicationStorage(root, app_id), now_ms=now_ms)
        if coordinator is not None and coordinator != us:
            raise StateInUseError(
                f"The local state of application {app_id!r} in {directory.path} is in use: {coordinator} runs the "
                f"application, on the log {root}. Nothing was deleted. Remedy: close it there, or end that "
                "process. A coordinator on another host that was killed counts as running until its lease ends."
            )
