"""``millstream state``: the rows of stores at the last commit; what local state this host has.

Local state is a copy: what is deleted here is restored from the changelog when it is needed again.
"""

# ruff: noqa: D301  # a backspace on a line of its own tells click to leave the paragraph's lines alone

from __future__ import annotations

import time
from typing import Any, Final

import click

from millstream.cli.names import application_argument, store_argument, task_argument
from millstream.cli.options import json_option, log_option, state_option, yes_option
from millstream.cli.stored import CommittedStore, as_text, export, largest_first, shown
from millstream.cli.tables import show_json, show_rows, told
from millstream.clock import now_ms
from millstream.commit.lease import check_not_run
from millstream.log import FileLog
from millstream.state.backends import supplier
from millstream.state.changelog.follow import position_of
from millstream.state.errors import TaskLockedError
from millstream.state.local.cleaning import LocalTask, clean, local_tasks
from millstream.state.local.directory import StateDirectory, TaskDirectory

_NOBODY_KNOWS: Final = "-"


@click.group()
def state() -> None:
    """Read the rows of stores; look at the local state of this host, and delete what is not used."""


@state.command()
@application_argument()
@store_argument
@click.argument("key")
@log_option
@json_option
def get(app_id: str, store: str, key: str, log: FileLog, *, is_json: bool) -> None:
    """Show what a store has for a key, at the last commit: one row, or one per window.

    A key that is no text is written as JSON: 7, true, {"shop": "north"}; bytes as hex digits. Ends with
    status 1 if there is no such row.

    \b
    Example:
      millstream state get wordcount counts river
    """
    opened = CommittedStore.open(log, app_id, store)
    rows = list(opened.get(opened.key_of(key)))
    if not rows:
        raise click.ClickException(
            f"Store {store!r} has no row of key {key!r} (epoch {opened.replica.version})."
        )
    _show(rows, is_json=is_json)


@state.command()
@application_argument()
@store_argument
@log_option
@click.option("-n", "--limit", type=click.IntRange(1), default=10, show_default=True, help="How many rows.")
@click.option("--by", "field", metavar="FIELD", help="The field of the value to go by.")
@json_option
def top(app_id: str, store: str, log: FileLog, limit: int, field: str | None, *, is_json: bool) -> None:
    """Show the rows with the largest values, at the last commit.

    \b
    Examples:
      millstream state top wordcount counts
      millstream state top shop totals --by amount -n 3
    """
    rows = largest_first(CommittedStore.open(log, app_id, store).rows(), field)
    _show(rows[:limit], is_json=is_json)


@state.command("export")
@application_argument()
@store_argument
@click.argument("file")
@log_option
@json_option
def export_state(app_id: str, store: str, file: str, log: FileLog, *, is_json: bool) -> None:
    """Write all rows of a store, at the last commit, to a file: .csv, .parquet or .jsonl ("-": here).

    \b
    Example:
      millstream state export wordcount counts counts.parquet
    """
    opened = CommittedStore.open(log, app_id, store)
    count = export(opened.rows(), file)
    if file != "-":
        row = {"store": store, "rows": count, "epoch": opened.replica.version, "file": file}
        told(
            f"Wrote {count:,} rows of {store!r} (epoch {opened.replica.version}) to {file}.",
            row,
            is_json=is_json,
        )


def _show(rows: list[dict[str, Any]], *, is_json: bool) -> None:
    if is_json:
        for row in rows:
            show_json(shown(row))
    else:
        columns = list(dict.fromkeys(name for row in rows for name in row)) or ["key", "value"]
        show_rows(map(as_text, rows), columns, is_json=False)


@state.command("list")
@application_argument(required=False)
@state_option
@json_option
def list_state(app_id: str | None, directory: StateDirectory, *, is_json: bool) -> None:
    """List the tasks that have state here, of all applications or of one.

    \b
    Example:
      millstream state list wordcount
    """
    if is_json:
        for task in local_tasks(directory, app_id):
            show_json(_task_row(task))
        return
    click.echo(f"{'application':<24}  {'task':>8}  {'version':>10}  {'bytes':>15}  last used")
    for task in local_tasks(directory, app_id):
        version = f"{task.checkpoint.version:,}" if task.checkpoint else _NOBODY_KNOWS
        click.echo(f"{task.app_id:<24}  {task.task:>8}  {version:>10}  {task.bytes:>15,}  {_ago(task)}")


@state.command()
@application_argument()
@task_argument
@state_option
@json_option
def show(app_id: str, task: str, directory: StateDirectory, *, is_json: bool) -> None:
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
    if not is_json:
        click.echo(f"{found.path}: {found.bytes:,} bytes, last used {_ago(found)}")
        click.echo(f"{'store':<32}  {'backend':<8}  {'version':>10}  {'offset':>12}  {'rows, about':>12}")
    with TaskDirectory(found.path).lock(timeout_ms=1_000):
        for backend, store in found.stores:
            with supplier(backend).open(TaskDirectory(found.path).store_path(backend, store)) as opened:
                position, size = position_of(opened, store), opened.size()
            rows = f"{size.approximate_entries:,}" if supplier(backend).persistent else _NOBODY_KNOWS
            if is_json:
                entries = size.approximate_entries if supplier(backend).persistent else None
                row = {"store": store, "backend": backend, "version": position.version}
                show_json({**row, "offset": position.offset, "approximate_rows": entries})
                continue
            click.echo(
                f"{store:<32}  {backend:<8}  {position.version:>10,}  {position.offset:>12,}  {rows:>12}"
            )


@state.command("clean")
@application_argument()
@state_option
@click.option("--unused-for-ms", type=click.IntRange(0), help="Only tasks that nobody used for so long.")
@yes_option
@json_option
def clean_state(
    app_id: str, directory: StateDirectory, unused_for_ms: int | None, *, yes: bool, is_json: bool
) -> None:
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
    message = f"Deleted the state of {len(removed)} tasks: {', '.join(removed) or 'none'}."
    told(message, {"application": app_id, "deleted": removed, "left": left}, is_json=is_json)
    for task in [] if is_json else left:
        click.echo(f"Left {task}: {_why_left(directory, app_id, task)}.", err=True)


def _task_row(task: LocalTask) -> dict[str, Any]:
    return {
        "application": task.app_id,
        "task": task.task,
        "version": task.checkpoint.version if task.checkpoint else None,
        "bytes": task.bytes,
        "last_used_ms": int(task.last_used_s * 1000),
        "stores": [{"backend": backend, "store": store} for backend, store in task.stores],
    }


def _why_left(directory: StateDirectory, app_id: str, task: str) -> str:
    try:
        with TaskDirectory(directory.path / app_id / task).lock(timeout_ms=0):
            return "it was used lately"
    except TaskLockedError:
        return "it is in use"


def _ago(task: LocalTask) -> str:
    seconds = max(0, int(time.time() - task.last_used_s))
    return f"{seconds // 3600} h {seconds // 60 % 60} min ago" if seconds >= 60 else f"{seconds} s ago"  # noqa: PLR2004
