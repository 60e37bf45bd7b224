"""``millstream apps``: the applications of a log: what they are, how far they are, reset and delete.

What is shown comes from the log: no application is asked, and none is disturbed. What changes something is
refused while the application runs.
"""

# ruff: noqa: D301  # a backspace on a line of its own tells click to leave the paragraph's lines alone

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from millstream.cli.names import application_argument, committed_stores, offer_topics
from millstream.cli.options import json_option, log_option, state_folder_option, time_ms, yes_option
from millstream.cli.tables import show_json, show_rows, told
from millstream.clock import now_ms
from millstream.commit.application_storage import ApplicationStorage, application_ids
from millstream.commit.lease import running_owner
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.engine.assignment.view import AssignmentFile
from millstream.log import FileLog, TopicPartition
from millstream.maintenance.application_reset import (
    ResetPlan,
    delete,
    find_application,
    plan_reset,
    reset,
)
from millstream.state.local.directory import StateDirectory, existing_state_directory
from millstream.types import Offset


def _state_directory(_context: click.Context, _option: click.Parameter, path: str) -> StateDirectory | None:
    """The state directory, if there is one: a host need not have any state."""
    return existing_state_directory(Path(path)) if Path(path).exists() else None


_optional_state = state_folder_option(_state_directory)


@click.group()
def apps() -> None:
    """List and describe applications, show their lag; reset and delete them."""


@apps.command("list")
@log_option
@json_option
def list_apps(log: FileLog, *, is_json: bool) -> None:
    """List the applications of the log: whether they run, their last commit, how much is waiting.

    \b
    Example:
      millstream apps list --log file:/srv/log
    """
    log.topics()  # says so if there is no log
    rows = []
    for app_id in application_ids(log.root):
        storage = ApplicationStorage(log.root, app_id)
        head = ManifestChain(storage).latest()
        rows.append(
            {
                "application": app_id,
                "state": "running" if _owner(storage) else "stopped",
                "epoch": None if head is None else head.epoch,
                "committed": None if head is None else _moment(head.clock_ms, is_json=is_json),
                "lag": None if head is None else sum(row["lag"] for row in _lag_rows(log, head)),
            }
        )
    show_rows(rows, ["application", "state", "epoch", "committed", "lag"], is_json=is_json)


@apps.command()
@application_argument()
@log_option
@json_option
def describe(app_id: str, log: FileLog, *, is_json: bool) -> None:
    """Show who runs an application, what it reads, writes and keeps, and its tasks.

    \b
    Example:
      millstream apps describe wordcount
    """
    storage = find_application(log, app_id)
    head = ManifestChain(storage).latest()
    owner = _owner(storage)
    about = {
        "application": app_id,
        "state": "running" if owner else "stopped",
        "run_by": None if owner is None else str(owner),
        "epoch": None if head is None else head.epoch,
        "term": None if head is None else head.term,
        "committed": None if head is None else _moment(head.clock_ms, is_json=is_json),
        "reads": [] if head is None else sorted({topic for topic, _, _ in head.positions}),
        "writes": [] if head is None else _sinks(head),
    }
    stores = [] if head is None else _stores(head)
    tasks = [] if head is None else [{"task": task, "version": entry.version} for task, entry in _tasks(head)]
    if is_json:
        show_json({**about, "stores": stores, "tasks": tasks})
        return
    for name, value in about.items():
        text = ", ".join(value) or "nothing" if isinstance(value, list) else value
        click.echo(f"{name.replace('_', ' '):<12} {'-' if text is None else text}")
    for rows, columns in ((stores, ["store", "kind", "changelog"]), (tasks, ["task", "version"])):
        if rows:
            click.echo()
            show_rows(rows, columns, is_json=False)


@apps.command()
@application_argument()
@log_option
@json_option
def lag(app_id: str, log: FileLog, *, is_json: bool) -> None:
    """Show per partition how far an application has committed, and how many records are waiting.

    \b
    Example:
      millstream apps lag wordcount
    """
    head = ManifestChain(find_application(log, app_id)).latest()
    rows = [] if head is None else _lag_rows(log, head)
    show_rows(rows, ["topic", "partition", "committed", "end", "lag"], is_json=is_json)


@apps.command()
@application_argument()
@log_option
@json_option
def assignment(app_id: str, log: FileLog, *, is_json: bool) -> None:
    """Show where each task runs and who keeps copies of its state, how far they are, and why there.

    As the application has said last, on Spark; without, there is one place only.

    \b
    Example:
      millstream apps assignment wordcount
    """
    rows = [structs.asdict(one) for one in AssignmentFile(find_application(log, app_id).path).read()]
    if not rows:
        note = "has said nothing of where its tasks run: it has not run on Spark."
        click.echo(f"Application {app_id!r} {note}", err=True)
        return
    columns = ["task", "role", "host", "slot", "version", "position", "lag", "why"]
    show_rows(rows, columns, is_json=is_json)


@apps.command("reset")
@application_argument()
@log_option
@_optional_state
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Only the offsets of this topic (may be repeated).",
    shell_complete=offer_topics,
)
@click.option("--to-earliest", is_flag=True, help="Read from the first record that is there.")
@click.option("--to-latest", is_flag=True, help="Read what comes from now on.")
@click.option("--to-offset", type=click.IntRange(0), help="Read from this offset of each partition.")
@click.option(
    "--to-time", callback=time_ms, metavar="TIME", help="Read from this time: 2026-01-31T08:00:00Z, 2h (ago)."
)
@click.option("--shift-by", type=int, metavar="N", help="Read from N records later (earlier if negative).")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@yes_option
@json_option
def reset_app(
    app_id: str,
    log: FileLog,
    directory: StateDirectory | None,
    topics: tuple[str, ...],
    *,
    dry_run: bool,
    yes: bool,
    is_json: bool,
    **targets: Any,
) -> None:
    """Let an application begin anew: without state, from the offsets that you choose.

    Like Kafka's application reset tool. Its changelogs, its local state on this host and what it remembers
    are deleted; its output topics stay as they are, and it appends to them again. Topics for which no offset
    is chosen are read from where the program says (offset_reset; global tables from the beginning). On
    other hosts, delete the local state with "millstream state clean". Refused while it runs.

    \b
    Examples:
      millstream apps reset wordcount --to-earliest --dry-run
      millstream apps reset wordcount --to-time 2h --yes
      millstream apps reset shop --topic orders --to-offset 1000 --yes
    """
    storage = find_application(log, app_id)
    given = [name for name, value in targets.items() if value not in (None, False)]
    if len(given) > 1:
        options = " and ".join("--" + name.replace("_", "-") for name in given)
        raise click.UsageError(f"{options} contradict each other; give one of them.")
    plan = plan_reset(storage, log, lambda place, before: _chosen(log, place, before, targets), topics)
    _show_plan(plan, is_json=is_json)
    if dry_run:
        told("Nothing was changed (--dry-run).", {"application": app_id, "reset": False}, is_json=is_json)
        return
    if not yes:
        click.confirm(f"Reset application {app_id!r}? Its state will be deleted.", abort=True, err=True)
    manifest = reset(storage, log, plan, directory)
    row = {"application": app_id, "reset": True, "epoch": manifest.epoch}
    told(f"Application {app_id!r} is reset (epoch {manifest.epoch}). Start it again.", row, is_json=is_json)


@apps.command("delete")
@application_argument()
@log_option
@_optional_state
@yes_option
@json_option
def delete_app(
    app_id: str, log: FileLog, directory: StateDirectory | None, *, yes: bool, is_json: bool
) -> None:
    """Delete an application: its state, its changelogs, and what it remembers. Its output topics stay.

    To begin anew under the same name, reset it instead: topics remember who wrote them, and don't take
    epochs that begin at 1 again from the same name. Refused while it runs.

    \b
    Example:
      millstream apps delete wordcount --yes
    """
    storage = find_application(log, app_id)
    if not yes:
        click.confirm(f"Delete application {app_id!r} and its state for good?", abort=True, err=True)
    stay = delete(storage, log, directory)
    row = {"application": app_id, "deleted": True, "topics_that_stay": list(stay)}
    told(
        f"Deleted application {app_id!r}. Topics that stay: {', '.join(stay) or 'none'}.",
        row,
        is_json=is_json,
    )


def _chosen(log: FileLog, place: TopicPartition, before: Offset, targets: dict[str, Any]) -> Offset | None:
    """Where to read a partition from: within what is there; None if the program is to say."""
    earliest, latest = log.earliest(place), log.latest(place)
    wanted: int | None = None
    if targets["to_earliest"]:
        wanted = earliest
    elif targets["to_latest"]:
        wanted = latest
    elif targets["to_offset"] is not None:
        wanted = targets["to_offset"]
    elif targets["to_time"] is not None:
        found = log.offset_for_time(place, targets["to_time"])
        wanted = latest if found is None else found
    elif targets["shift_by"] is not None:
        wanted = before + targets["shift_by"]
    return None if wanted is None else Offset(min(max(wanted, earliest), latest))


def _show_plan(plan: ResetPlan, *, is_json: bool) -> None:
    rows = [
        {
            "topic": source.place.topic,
            "partition": source.place.partition,
            "committed": source.before,
            "from": source.after if is_json or source.after is not None else "as the program says",
        }
        for source in plan.sources
    ]
    show_rows(rows, ["topic", "partition", "committed", "from"], is_json=is_json)
    for topic in plan.changelogs:
        told(f"{topic}: will be deleted.", {"topic": topic, "delete": True}, is_json=is_json)


def _owner(storage: ApplicationStorage) -> Any:
    return running_owner(storage, now_ms=now_ms())


def _lag_rows(log: FileLog, head: Manifest) -> list[dict[str, Any]]:
    there = set(log.topics())
    rows = []
    for topic, number, committed in head.positions:
        end = log.latest(TopicPartition(topic, number)) if topic in there else committed
        lag = max(0, end - committed)
        rows.append({"topic": topic, "partition": number, "committed": committed, "end": end, "lag": lag})
    return rows


def _sinks(head: Manifest) -> list[str]:
    inside = head.plan["repartition_topics"]
    return sorted(
        {
            topic
            for sub in head.plan["subtopologies"]
            for node in sub["nodes"]
            if node["kind"] == "SinkNode"
            for topic in node["topics"]
            if topic not in inside
        }
    )


def _stores(head: Manifest) -> list[dict[str, Any]]:
    return [
        {
            "store": store["name"],
            "kind": store["kind"],
            "changelog": store.get("source_topic") or ("own" if store["logging"] else "none"),
        }
        for store in committed_stores(head)
    ]


def _tasks(head: Manifest) -> list[tuple[str, Any]]:
    return sorted(head.tasks.items(), key=lambda item: [int(part) for part in item[0].split("_")])


def _moment(time: int, *, is_json: bool) -> int | str:
    if is_json:
        return time
    return datetime.fromtimestamp(time / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
