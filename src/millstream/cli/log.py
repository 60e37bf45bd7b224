"""``millstream log``: whether the log is whole."""

# ruff: noqa: D301  # a backspace on a line of its own tells click to leave the paragraph's lines alone

from __future__ import annotations

from dataclasses import asdict

import click
from rich import filesize

from millstream.cli.options import json_option, log_option
from millstream.cli.tables import show_json
from millstream.log import FileLog
from millstream.maintenance.verification import verify


@click.group("log")
def log_group() -> None:
    """Check the log."""


@log_group.command("verify")
@log_option
@json_option
def verify_log(log: FileLog, *, is_json: bool) -> None:
    """Read every record, manifest and sealed file, and compare it with its checksum.

    Nothing is changed, and applications may run meanwhile. Ends with status 1 if anything is damaged, and
    says of each what to do.

    \b
    Example:
      millstream log verify
    """
    parts = records = size = 0
    damaged = []
    for part in verify(log):
        parts, records, size = parts + 1, records + part.records, size + part.bytes
        if part.damage is not None:
            damaged.append(part.what)
        if is_json:
            show_json(asdict(part))
        elif part.damage is not None:
            click.echo(f"{part.what}: {part.damage}")
    if damaged:
        raise click.ClickException(
            f"{len(damaged)} of {parts} parts are damaged: {', '.join(damaged)}. Remedy: stop the "
            "applications that use them, restore the log's folder as a whole from a backup, and verify it "
            "again; what to do about each is said above."
        )
    if not is_json:
        click.echo(
            f"The log is whole: {parts} partitions and applications, {records:,} records, "
            f"{filesize.decimal(size)}.",
            err=True,
        )
