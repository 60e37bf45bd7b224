"""``millstream doctor``: is all there that an application needs here, and what to do if not.

Each check looks at one thing and answers "ok", "warning" or "error" with what was found and the remedy.
Nothing is changed; with ``--spark`` a Spark is started and ended.
"""

# ruff: noqa: D301  # a backspace on a line of its own tells click to leave the paragraph's lines alone

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

import click
from rich import filesize

from millstream.cli.options import DEFAULT_STATE, address_option, json_option
from millstream.cli.tables import show_json
from millstream.config import StreamsConfig
from millstream.durable import check_private_folder, check_storage
from millstream.engine.spark.java import find_java, version_of
from millstream.errors import MillstreamError

Verdict = Literal["ok", "warning", "error"]

_MARKS: Final = {"ok": "ok", "warning": "!!", "error": "XX"}
_COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "red"}
_LITTLE_DISK: Final = 1 << 30
_LITTLE_MEMORY: Final = 2 << 30
_OLDEST_PYTHON: Final = (3, 11)
_PACKAGES: Final = ("pyspark", "polars", "pyarrow", "lmdb", "rocksdict", "msgspec")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


@click.command()
@address_option(what="Where the log is or will be: file:FOLDER.")
@click.option(
    "--state-dir",
    default=DEFAULT_STATE,
    show_default=True,
    envvar="MILLSTREAM_STATE_DIR",
    show_envvar=True,
    help="Where the state of this host is or will be.",
)
@click.option("--spark", "starts_spark", is_flag=True, help="Also start a Spark, and run a job on it.")
@json_option
def doctor(log: str, state_dir: str, *, starts_spark: bool, is_json: bool) -> None:
    """Check Python, Java, Spark's settings, memory, disk and permissions, and say what to do.

    Ends with status 1 if something is there that an application can't run with.

    \b
    Examples:
      millstream doctor
      millstream doctor --log file:/srv/log --state-dir /srv/state --spark
    """
    findings = []
    for finding in _findings(Path(log.removeprefix("file:")), Path(state_dir), starts_spark=starts_spark):
        findings.append(finding)
        if is_json:
            show_json(asdict(finding))
        else:
            _show(finding)
    errors = sum(finding.verdict == "error" for finding in findings)
    warnings = sum(finding.verdict == "warning" for finding in findings)
    if errors:
        raise click.ClickException(f"{errors} of {len(findings)} checks failed; what to do is said above.")
    if not is_json:
        told = f" ({warnings} to look at)" if warnings else ""
        click.echo(f"Millstream can run here{told}.", err=True)


def _show(finding: Finding) -> None:
    mark = click.style(f"{_MARKS[finding.verdict]:>3}", fg=_COLOURS[finding.verdict])
    click.echo(f"{mark}  {finding.check:<12} {finding.found}")
    if finding.remedy:
        click.echo(f"     {'':<12} {finding.remedy}")


def _findings(log: Path, state: Path, *, starts_spark: bool) -> Iterator[Finding]:
    yield _python()
    yield _packages()
    yield _guarded("java", _java)
    yield _guarded("settings", _settings)
    yield from _spark_environment()
    yield _memory()
    yield _guarded("log", lambda: _folder("log", log))
    yield _guarded("state", lambda: _folder("state", state))
    yield _guarded("scratch", lambda: _folder("scratch", Path(tempfile.gettempdir()), is_ours=False))
    if starts_spark:
        yield _guarded("spark", _spark)


def _guarded(check: str, look: Callable[[], Finding]) -> Finding:
    """What a check found; what it could not do is a finding, too."""
    try:
        return look()
    except (MillstreamError, OSError) as error:
        found, _, remedy = str(error).partition(" Remedy: ")
        return Finding(check, "error", found, f"Remedy: {remedy}" if remedy else "")


def _python() -> Finding:
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return Finding("python", "error", found, "Remedy: use Python 3.11 or later.")
    return Finding("python", "ok", found)


def _packages() -> Finding:
    found, missing = [], []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        remedy = "Remedy: install Millstream again (pip install millstream)."
        return Finding("packages", "error", f"missing: {', '.join(missing)}", remedy)
    return Finding("packages", "ok", ", ".join(found))


def _java() -> Finding:
    java = find_java()
    return Finding("java", "ok", f"{version_of(java)} ({java})")


def _settings() -> Finding:
    config = StreamsConfig.from_env()
    given = sorted(name for name in os.environ if name.startswith("MILLSTREAM_"))
    spark = ", ".join(f"{name}={value}" for name, value in config.spark_settings.items())
    found = (
        f"{', '.join(given) or 'no MILLSTREAM_* in the environment'}{f'; Spark: {spark}' if spark else ''}"
    )
    return Finding("settings", "ok", found)


def _spark_environment() -> Iterator[Finding]:
    """What of the environment PySpark takes up, and what would break an application."""
    home = os.environ.get("SPARK_HOME")
    if home is not None:
        release = Path(home) / "RELEASE"
        remedy = "Remedy: unset SPARK_HOME, unless it is the same version as the pyspark package."
        found = release.read_text(encoding="utf-8").splitlines()[0] if release.is_file() else home
        yield Finding("spark home", "warning", f"SPARK_HOME is set: {found}", remedy)
    python = os.environ.get("PYSPARK_PYTHON")
    if python is not None and shutil.which(python) != sys.executable:
        remedy = "It does no harm: Millstream starts Spark's workers with this Python."
        yield Finding("workers", "ok", f"PYSPARK_PYTHON is {python}. {remedy}")
    folder = os.environ.get("SPARK_CONF_DIR")
    defaults = Path(folder) / "spark-defaults.conf" if folder else None
    if defaults is not None and defaults.is_file():
        yield from _defaults(defaults)


def _defaults(path: Path) -> Iterator[Finding]:
    from millstream.engine.spark.session import SETTINGS  # noqa: PLC0415 - loads PySpark

    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [line.split(None, 1) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    given = {pair[0]: pair[1].strip() for pair in pairs if len(pair) > 1}
    wrong = [name for name, value in SETTINGS.items() if given.get(name, value) != value]
    if wrong:
        told = ", ".join(f"{name} {given[name]}" for name in wrong)
        remedy = (
            "A Spark that Millstream makes overrides this; for a session of your own set "
            + ", ".join(f"{name}={SETTINGS[name]}" for name in wrong)
            + "."
        )
        yield Finding("spark", "warning", f"{path} has {told}", remedy)
    else:
        yield Finding("spark", "ok", f"{path} has nothing against it")


def _memory() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return Finding("machine", "ok", f"{cores} cores")
    found = f"{cores} cores, {filesize.decimal(total)} of memory"
    if total < _LITTLE_MEMORY:
        remedy = (
            "Spark's JVM takes 1 GB by default. Remedy: a larger machine, or engine='local', or a smaller "
            "spark.driver.memory in spark_settings."
        )
        return Finding("machine", "warning", found, remedy)
    return Finding("machine", "ok", found)


def _folder(check: str, folder: Path, *, is_ours: bool = True) -> Finding:
    there = folder
    while not there.exists():
        there = there.parent
    if there == folder and is_ours:
        check_private_folder(folder)
    if not os.access(there, os.W_OK | os.X_OK):
        remedy = f"Remedy: name another folder, or let this user write there (chown {os.geteuid()} {there})."
        return Finding(check, "error", f"{there} can't be written by user {os.geteuid()}", remedy)
    with tempfile.TemporaryDirectory(dir=there, prefix=".millstream-doctor-") as probe:
        check_storage(Path(probe))
    free = shutil.disk_usage(there).free
    state = folder.resolve() if there == folder else f"{folder.resolve()} (not there yet)"
    found = f"{state}: {filesize.decimal(free)} free"
    if free < _LITTLE_DISK:
        return Finding(check, "warning", found, "Remedy: make room, or name a folder on a larger disk.")
    return Finding(check, "ok", found)


def _spark() -> Finding:
    from millstream.engine.spark.session import make_context  # noqa: PLC0415 - loads PySpark

    began = time.monotonic()
    context = make_context("millstream-doctor", {"spark.ui.enabled": "false"}, is_short_run=True)
    try:
        release = context.version
        answer = context.parallelize([1, 2, 3], 1).map(lambda number: number * 2).sum()
    finally:
        context.stop()
    found = f"{release}: a job with sum {answer}, in {time.monotonic() - began:.1f} s with its start and end"
    return Finding("spark", "ok", found)
