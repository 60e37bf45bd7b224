"""Which log an application's local state belongs to: a note beside it.

``<state_dir>/<app_id>/.log`` holds the path of the log. Whoever is to delete the state finds there whether a
coordinator runs the application: between epochs no task is locked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from millstream.durable import ensure_private_folder, read_bounded, replace_durably
from millstream.state.local.directory import StateDirectory

__all__ = ["note_log", "noted_log"]

_LOG_FILE: Final = ".log"
_LONGEST_PATH: Final = 1 << 16


def note_log(directory: StateDirectory, app_id: str, log_root: Path) -> StateDirectory:
    """Note where the log is, before the application works here. Gives the directory."""
    if noted_log(directory, app_id) != log_root.resolve():
        note = directory.path / app_id / _LOG_FILE
        ensure_private_folder(note.parent)
        replace_durably(note, [os.fsencode(log_root.resolve())])
    return directory


def noted_log(directory: StateDirectory, app_id: str) -> Path | None:
    """Where the log of an application is; None if nobody has noted it."""
    try:
        noted = read_bounded(directory.path / app_id / _LOG_FILE, _LONGEST_PATH)
    except FileNotFoundError:
        return None
    return Path(os.fsdecode(noted)) if noted else None
