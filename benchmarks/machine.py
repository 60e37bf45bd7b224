"""The machine and the versions that a benchmark ran on."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

__all__ = ["describe"]

_MEMORY = r"MemTotal:\s*(\d+)"
_LIBRARIES = ("pyspark", "pyarrow", "polars", "lmdb", "rocksdict", "msgspec")


def describe() -> dict[str, str]:
    """What a reader needs to know to compare."""
    return {
        "processor": _first(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo")) or platform.processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{int(_first(_MEMORY, Path('/proc/meminfo')) or 0) >> 20} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
    }


def _first(pattern: str, path: Path) -> str | None:
    try:
        match = re.search(pattern, path.read_text(encoding="utf-8"))
    except OSError:
        return None
    return match.group(1).strip() if match else None
