"""Is a process still the one it was? By its id and the time at which it was started."""

from __future__ import annotations

import os
from pathlib import Path


def process_started(pid: int) -> str | None:
    """When a process was started, as the system tells it; None if there is none or it is not told."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = status.rsplit(")", 1)[1].split()
    return None if fields[0] == "Z" else fields[19]


def process_is_alive(pid: int, started: str) -> bool:
    """Whether the process that was started then is still there."""
    if started:
        return process_started(pid) == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
