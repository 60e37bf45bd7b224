"""``millstream state``: what local state this host has, and taking it away.

Local state is a copy: what is deleted here is restored from the changelog when it is needed again.
"""

# ruff: noqa: D301  # a backspace on a line of its own tells click to leave the paragraph's lines alone

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from millstream.clock import now_ms
from millstream.commit.lease import check_not_run
from millstream.state.backends import supplier
from millstream.state.changelog.follow import position_of
from millstream.state.errors import TaskLockedError
from millstream.state.local.cleaning import LocalTask, clean, local_tasks
from millstream.state.local.directory import StateDirectory, TaskDirectory, existing_state_directory

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULT: Final = "millstream-state"
_NOBODY_KNOWS: Final = "-"


def _directory_option(command: F) -> F:
    return click.option(
        "--state-dir",
        "directory",
        callback=lambda _context, _option, path: existing_state_directory(Path(path)),
        metavar="FOLDER",
        default=_DEFAULT,
        show_default=True,
        envvar="MILLSTREAM_STATE_DIR",
        show_envvar=True,
        help="The state directory of this host.",
    )(command)


@click.group()
def state() -> None:
    """Look at the local state of this host; delete what is not used."""


@state.command("list")
@click.argument("app_id", required=False)
@_directory_option
def list_state(app_id: str | None, directory: StateDirectory) -> None:
    """List the tasks that have state here, of all applications or of one."""
    click.echo(f"{'application':<24}  {'task':>8}  {'version':>10}  {'bytes':>15}  last used")
    for task in local_tasks(directory, app_id):
        version = f"{task.checkpoint.version:,}" if task.checkpoint else _NOBODY_KNOWS
        click.echo(f"{task.app_id:<24}  {task.task:>8}  {version:>10}  {task.bytes:>15,}  {_ago(task)}")


@state.command()
@click.argument("app_id")
@click.argument("task")
@_directory_option
def show(app_id: str, task: str, directory: StateDirectory) -> None:
    """Show the stores of a task: version, offset in the changelog (or source topic), and about how many rows.

    Opens the stores, so nobody else may work on the task at that moment.

    \b
    Example:
      millstream state show word-count 0_3
    """
    found = next((one for one in local_tasks(directory, app_id) if one.task == task), None)
    if found is None:
        known = ", ".join(directory.tasks(app_id)) or "none"
        raise click.ClickException(
            f"Task {task!r} of application {app_id!r} has no state in {directory.path}. Tasks: {known}."
        )
    click.echo(f"{found.path}: {found.bytes:,} bytes, last used {_ago(found)}")
    click.echo(f"{'store':<32}  {'backend':<8}  {'version':>10}  {'offset':>12}  {'rows, about':>12}")
    with TaskDirectory(found.path).lock(timeout_ms=1_000):
        for backend, store in found.stores:
            with supplier(backend).open(TaskDirectory(found.path).store_path(backend, store)) as opened:
                position, size = position_of(opened, store), opened.size()
            rows = f"{size.approximate_entries:,}" if supplier(backend).persistent else _NOBODY_KNOWS
            click.echo(
                f"{store:<32}  {backend:<8}  {position.version:>10,}  {position.offset:>12,}  {rows:>12}"
            )


@state.command("clean")
@click.argument("app_id")
@_directory_option
@click.option("--unused-for-ms", type=click.IntRange(0), help="Only tasks that nobody used for so long.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def clean_state(app_id: str, directory: StateDirectory, unused_for_ms: int | None, *, yes: bool) -> None:
    """Delete the local state of an application's tasks, except of those that are in use.

    It is restored from the changelogs when it is needed again. Refused while the application runs.

    \b
    Example:
      millstream state clean word-count --unused-for-ms 600000 --yes
    """
    there = directory.tasks(app_id)
    if not there:
        known = ", ".join(directory.applications()) or "none"
        raise click.ClickException(
            f"Application {app_id!r} has no state in {directory.path}. Applications: {known}."
        )
    if not yes:
        click.confirm(f"Delete the local state of {app_id!r} ({len(there)} tasks)?", abort=True, err=True)
    check_not_run(directory, app_id, now_ms=now_ms())
    removed = clean(directory, app_id, unused_for_ms=unused_for_ms or 0)
    left = [task for task in there if task not in removed]
    click.echo(f"Deleted the state of {len(removed)} tasks: {', '.join(removed) or 'none'}.", err=True)
    for task in left:
        click.echo(f"Left {task}: {_why_left(directory, app_id, task)}.", err=True)


def _why_left(directory: StateDirectory, app_id: str, task: str) -> str:
    try:
        with TaskDirectory(directory.path / app_id / task).lock(timeout_ms=0):
            return "it was used lately"
    except TaskLockedError:
        return "it is in use"


def _ago(task: LocalTask) -> str:
    seconds = max(0, int(time.time() - task.last_used_s))
    return f"{seconds // 3600} h {seconds // 60 % 60} min ago" if seconds >= 60 else f"{seconds} s ago"  # noqa: PLR2004
