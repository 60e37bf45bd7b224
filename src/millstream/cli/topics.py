"""``millstream topics``: create, alter, delete, list, describe, compact, produce, consume.

Text in, text out: lines or JSON lines, files or pipes. What the commands print on standard output is data;
what they tell is on standard error.
"""

# ruff: noqa: D301  # a backspace on a line of its own tells click to leave the paragraph's lines alone

from __future__ import annotations

import io
import sys
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO, Final, cast

import click

from millstream.cli.consume import LineWriter
from millstream.cli.formats import Format, Windows, has_key, windowed
from millstream.cli.names import owner_of_changelog, topic_argument
from millstream.cli.options import format_options, json_option, log_option, time_ms, yes_option
from millstream.cli.produce import (
    LineParser,
    TableColumns,
    header_option,
    is_table,
    open_inputs,
    produce_stream,
    produce_table,
)
from millstream.cli.tables import show_json, told
from millstream.commit.source_changelog import compaction_bound
from millstream.io.consumer import TopicConsumer
from millstream.io.positions import Position
from millstream.io.producer import Producer
from millstream.log import FileLog, TimestampType, TopicConfig, TopicPartition
from millstream.log.errors import TopicExistsError
from millstream.types import Partition

_LAST_MS: Final = 253_402_300_799_000
"""The last second of the year 9999, with which calendars end."""
_TIMESTAMP_TYPES: Final = {kind.value: kind for kind in TimestampType} | {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}
"""Our names, and those of Kafka's message.timestamp.type."""


def _encoded(_context: click.Context, _option: click.Parameter, text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _key(context: click.Context, _option: click.Parameter, text: str | None) -> bytes | None:
    form: Format = context.params["key_format"]
    try:
        return None if text is None else form.parse(text.encode())
    except (ValueError, TypeError) as error:
        raise click.BadParameter(f"{text!r} is not {form.name} ({error})", param_hint="--key") from error


def _windows(_context: click.Context, _option: click.Parameter, text: str | None) -> Windows | None:
    if text is None or text == "sessions":
        return text  # type: ignore[return-value]  # compared just now
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise click.BadParameter(f'{text!r} is neither a size in milliseconds nor "sessions"')
    return int(text)


def _standard_output() -> BinaryIO:
    """Standard output, for bytes: all that is written, also where Python was told not to buffer."""
    ours = sys.stdout.buffer
    if isinstance(ours, io.BufferedIOBase):
        return cast("BinaryIO", ours)
    return open(sys.stdout.fileno(), "wb", closefd=False)


@click.group()
def topics() -> None:
    """Create, alter, delete, list and describe topics; write and read their records."""


@topics.command()
@click.argument("topic")
@log_option
@click.option("-p", "--partitions", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--timestamp-type",
    "--timestamps",
    type=click.Choice(list(_TIMESTAMP_TYPES)),
    default=TimestampType.CREATE_TIME.value,
    show_default=True,
    help="Whose clock gives a record its time: the producer's or the log's.",
)
@click.option("--retention-ms", type=click.IntRange(0), help="Records older than this may go.")
@click.option("--retention-bytes", type=click.IntRange(0), help="The oldest go if a partition is larger.")
@click.option("--compact", is_flag=True, help="Keep the last record of each key only.")
@click.option("--if-missing", is_flag=True, help="Do nothing if the topic is there already.")
@json_option
def create(
    topic: str,
    log: FileLog,
    partitions: int,
    timestamp_type: str,
    retention_ms: int | None,
    retention_bytes: int | None,
    *,
    compact: bool,
    if_missing: bool,
    is_json: bool,
) -> None:
    """Create a topic (and the log, if it is the first one).

    \b
    Examples:
      millstream topics create lines
      millstream topics create orders --partitions 4 --timestamp-type append-time
      millstream topics create clicks --retention-ms 604800000
      millstream topics create customers --compact
    """
    kind = _TIMESTAMP_TYPES[timestamp_type]
    config = TopicConfig(partitions, kind, retention_ms, retention_bytes, compact)
    try:
        log.create_topic(topic, config)
    except TopicExistsError:
        if not if_missing:
            raise
        told(f"Topic {topic!r} is there already.", {"topic": topic, "created": False}, is_json=is_json)
    else:
        row = {"topic": topic, "created": True, **_config_row(config)}
        told(f"Created topic {topic!r} (partitions: {partitions}).", row, is_json=is_json)


@topics.command()
@topic_argument()
@log_option
@click.option("-p", "--partitions", type=click.IntRange(1), help="How many there shall be in all.")
@click.option("--retention-ms", type=click.IntRange(-1), help="Records older than this may go; -1: none.")
@click.option(
    "--retention-bytes", type=click.IntRange(-1), help="The oldest go if a partition is larger; -1: none."
)
@click.option("--compact/--no-compact", default=None, help="Keep the last record of each key only, or all.")
@click.option(
    "--delete-retention-ms", type=click.IntRange(0), help="How long a compacted topic keeps tombstones."
)
@json_option
def alter(
    topic: str,
    log: FileLog,
    partitions: int | None,
    retention_ms: int | None,
    retention_bytes: int | None,
    *,
    compact: bool | None,
    delete_retention_ms: int | None,
    is_json: bool,
) -> None:
    """Give a topic more partitions, another retention, or compaction.

    With more partitions records stay where they are. Keys of records that come later may go to another
    partition than before; an application that keeps state by the partitions of the topic will refuse to go
    on, and say what to do. Retention and compaction are applied when the topic is maintained next: by the
    application that reads or writes it, or by "millstream topics compact".

    \b
    Examples:
      millstream topics alter orders --partitions 8
      millstream topics alter clicks --retention-ms 604800000
      millstream topics alter customers --compact --retention-ms -1
    """
    given = {
        "retention_ms": retention_ms,
        "retention_bytes": retention_bytes,
        "delete_retention_ms": delete_retention_ms,
        "is_compacted": compact,
    }
    changes: dict[str, Any] = {
        name: None if value == -1 else value for name, value in given.items() if value is not None
    }
    if partitions is None and not changes:
        raise click.UsageError("Nothing to alter: give --partitions, --retention-ms or another option.")
    owner = owner_of_changelog(topic, log)
    if changes and owner is not None:
        raise click.ClickException(
            f"{topic!r} is a changelog: application {owner!r} decides what it keeps. Nothing was changed."
        )
    before = log.config(topic)
    if partitions is not None:
        log.add_partitions(topic, partitions)
    if changes:
        log.alter_topic(topic, lambda config: replace(config, **changes))
    now = log.config(topic)
    if is_json:
        show_json({"topic": topic, **_config_row(now)})
    elif not changes:
        click.echo(
            f"Topic {topic!r} has {now.partitions} partitions now (before: {before.partitions}).", err=True
        )
    else:
        click.echo(f"Topic {topic!r} is altered: {_summary(now)}.", err=True)


@topics.command()
@topic_argument()
@log_option
@yes_option
@click.option(
    "--force", is_flag=True, help="Also a topic that holds the state of an application that is there."
)
@json_option
def delete(topic: str, log: FileLog, *, yes: bool, force: bool, is_json: bool) -> None:
    """Delete a topic and all its records, for good.

    The changelog of an application is its state: it is not deleted while the application is there, unless
    you insist; the application can't start afterwards.

    \b
    Example:
      millstream topics delete old-clicks --yes
    """
    records = sum(partition.latest - partition.earliest for partition in log.describe(topic).partitions)
    reason = None if force else _why_it_is_needed(topic, log)
    if reason is not None:
        raise click.ClickException(
            f"{topic!r} {reason}. Nothing was deleted. Remedy: delete another topic; if the application is "
            "not to run any more, say --force."
        )
    if not yes:
        click.confirm(f"Delete topic {topic!r} and its {records:,} records for good?", abort=True, err=True)
    log.delete_topic(topic)
    row = {"topic": topic, "deleted": True, "records": records}
    told(f"Deleted topic {topic!r} ({records:,} records).", row, is_json=is_json)


def _why_it_is_needed(topic: str, log: FileLog) -> str | None:
    owner = owner_of_changelog(topic, log)
    if owner is not None:
        return (
            f"is a changelog: it holds the state of application {owner!r}, which could not start without it"
        )
    if compaction_bound(log.root, TopicPartition(topic, Partition(0))) is not None:
        return "is read by an application that has it for the changelog of a table: it holds its state"
    return None


@topics.command("list")
@log_option
@click.option("--internal", is_flag=True, help="Also the changelogs of applications.")
@json_option
def list_topics(log: FileLog, *, internal: bool, is_json: bool) -> None:
    """List the topics, one per line. Those that applications keep for themselves only if asked for.

    \b
    Example:
      millstream topics list --internal
    """
    for name in log.topics():
        owner = owner_of_changelog(name, log)
        if owner is not None and not internal:
            continue
        if is_json:
            show_json({"topic": name, "internal": owner is not None, **_config_row(log.config(name))})
        else:
            click.echo(name)


@topics.command()
@topic_argument()
@log_option
@json_option
def describe(topic: str, log: FileLog, *, is_json: bool) -> None:
    """Show a topic's configuration and the offsets of its partitions.

    \b
    Example:
      millstream topics describe orders
    """
    found = log.describe(topic)
    rows = [
        {
            "partition": one.partition,
            "earliest": one.earliest,
            "latest": one.latest,
            "records": one.latest - one.earliest,
        }
        for one in found.partitions
    ]
    records = sum(row["records"] for row in rows)
    if is_json:
        offsets = {"records": records, "offsets": rows}
        show_json({"topic": topic, **_config_row(found.config), **offsets})
        return
    click.echo(f"{topic}: {_summary(found.config, records)}")
    click.echo(f"{'partition':>9}  {'earliest':>12}  {'latest':>12}  {'records':>12}")
    for row in rows:
        click.echo(
            f"{row['partition']:>9}  {row['earliest']:>12,}  {row['latest']:>12,}  {row['records']:>12,}"
        )


def _config_row(config: TopicConfig) -> dict[str, Any]:
    return {**asdict(config), "timestamp_type": config.timestamp_type.value}


def _summary(config: TopicConfig, records: int | None = None) -> str:
    kept = [
        *([f"for {config.retention_ms:,} ms"] if config.retention_ms is not None else []),
        *([f"{config.retention_bytes:,} bytes of a partition"] if config.retention_bytes is not None else []),
        *(["the last of each key"] if config.is_compacted else []),
    ]
    count = "" if records is None else f", {records:,} records"
    keeps = f", keeps {' and '.join(kept)}" if kept else ""
    return f"{config.partitions} partitions, {config.timestamp_type.value}{count}{keeps}"


@topics.command()
@topic_argument("names", nargs=-1, metavar="[TOPIC]...")
@log_option
@json_option
def compact(names: tuple[str, ...], log: FileLog, *, is_json: bool) -> None:
    """Merge small segments, compact, and apply the retention of topics (default: of all).

    Applications do this for the topics that they read and write, and they alone do it for their changelogs:
    they know which versions are still needed. It may run while others read and write.

    \b
    Example:
      millstream topics compact clicks

    "tidy" is another name of this command.
    """
    for topic in names or log.topics():
        owner = owner_of_changelog(topic, log)
        if owner is not None:
            message = f"{topic}: left to application {owner!r}, whose changelog it is."
            told(message, {"topic": topic, "left_to": owner}, is_json=is_json)
            continue
        before = log.describe(topic).partitions
        rewritten = 0
        for partition in before:
            place = TopicPartition(topic, partition.partition)
            rewritten += log.rewrite(place, min_entries=1, up_to=partial(compaction_bound, log.root, place))
            log.retain(place)
        gone = sum(
            now.earliest - then.earliest
            for then, now in zip(before, log.describe(topic).partitions, strict=True)
        )
        row = {"topic": topic, "partitions_rewritten": rewritten, "records_gone": gone}
        message = f"{topic}: {rewritten} partitions rewritten, {gone:,} records let go."
        told(message, row, is_json=is_json)


topics.add_command(compact, "tidy")


@topics.command()
@topic_argument()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@log_option
@format_options()
@click.option(
    "--json", "is_json", is_flag=True, help="Lines are JSON objects: key, value, timestamp, headers."
)
@click.option("--key-separator", callback=_encoded, help="A line is the key, this text, and the value.")
@click.option("--key", callback=_key, help="The key of every record.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    callback=lambda _context, _option, texts: tuple(map(header_option, texts)),
    metavar="NAME=VALUE",
    help="A header of every record.",
)
@click.option(
    "--partition", type=click.IntRange(0), help="Where every record goes; otherwise its key decides."
)
@click.option("--timestamp", type=click.IntRange(0), metavar="MS", help="The time of every record; else now.")
@click.option("--null-marker", callback=_encoded, help="A value with this text is a tombstone (null).")
@click.option("--key-column", help="Of a table: the column that is the key.")
@click.option(
    "--value-column",
    "value_columns",
    multiple=True,
    help="Of a table: the column that is the value; several: a JSON record of these. Else all columns.",
)
@click.option("--timestamp-column", help="Of a table: the column with the times of records.")
def produce(
    topic: str,
    files: tuple[str, ...],
    log: FileLog,
    partition: int | None,
    key_column: str | None,
    value_columns: tuple[str, ...],
    timestamp_column: str | None,
    **options: Any,
) -> None:
    """Append records to a topic: a line each, from FILES or from standard input.

    A file that ends in .csv or .parquet is a table: a record per row.

    \b
    Examples:
      echo "to the river" | millstream topics produce lines
      millstream topics produce orders orders.txt --key-separator : --value-format json
      millstream topics produce orders --json < orders.jsonl
      tail -f app.log | millstream topics produce logs -H host=web1
      millstream topics produce orders orders.parquet --key-column shop

    A JSON line is an object with any of "key", "value", "timestamp" (ms) and "headers" (an object); other
    fields are ignored, so the output of "consume --json" can be fed back.
    """
    parser = LineParser(partition=_known(log, topic, partition), **options)
    started = time.monotonic()
    count = 0
    columns = TableColumns(key_column, value_columns, timestamp_column)
    for_lines = {
        "--json": options["is_json"],
        "--header": options["headers"],
        "--partition": partition is not None,
        **{f"--{name.replace('_', '-')}": options[name] for name in ("key_separator", "key", "null_marker")},
        "--timestamp": options["timestamp"] is not None,
    }
    columns.check(files, for_lines)
    for name in filter(is_table, files):
        count += produce_table(log, topic, name, columns, options["key_format"], options["value_format"])
    if not any(map(is_table, files)):
        with Producer(log, topic) as producer:
            for name, stream, size in open_inputs(files):
                count += produce_stream(producer, parser, stream, name=name, total_bytes=size)
    seconds = time.monotonic() - started
    rate = f" in {seconds:.1f} s ({count / seconds:,.0f}/s)" if seconds >= 1 else ""
    click.echo(f"Appended {count:,} records to {topic!r}{rate}.", err=True)


@topics.command()
@topic_argument()
@log_option
@format_options()
@click.option(
    "--json", "is_json", is_flag=True, help="Show JSON lines: key, value, offset, headers and so on."
)
@click.option("--key-separator", callback=_encoded, help="Show the key, this text, and the value.")
@click.option(
    "--windows",
    callback=_windows,
    metavar="SIZE_MS|sessions",
    help="Keys have a window: show its start, its end and the key.",
)
@click.option(
    "--null-marker",
    callback=_encoded,
    default="null",
    show_default=True,
    help="How a null key or value is shown.",
)
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option(
    "--from-beginning", is_flag=True, help="Begin with the first record (default, unless following)."
)
@click.option("--offset", type=click.IntRange(0), help="Begin at this offset of each partition.")
@click.option(
    "--from",
    "from_time",
    callback=time_ms,
    metavar="TIME",
    help="Begin at this time: milliseconds, 2026-01-31T08:00:00+01:00, or 2h (ago).",
)
@click.option("--key", callback=_key, help="Only records with this key.")
@click.option("--max-messages", "left", type=click.IntRange(0), help="Stop after so many records.")
@click.option("-f", "--follow", is_flag=True, help="Wait for new records, until Ctrl-C.")
def consume(
    topic: str,
    log: FileLog,
    partition: int | None,
    offset: int | None,
    from_time: int | None,
    key: bytes | None,
    *,
    from_beginning: bool,
    follow: bool,
    key_format: Format,
    windows: Windows | None,
    **options: Any,
) -> None:
    """Show the records of a topic, a line each. Those of several partitions are merged by their time.

    \b
    Examples:
      millstream topics consume lines
      millstream topics consume word-counts --key-separator " = " --value-format int64
      millstream topics consume orders --json --offset 1000 --max-messages 10
      millstream topics consume clicks-per-minute --json --windows 60000 --value-format int64
      millstream topics consume orders --follow --from-beginning
      millstream topics consume orders --from 2h --key ann --value-format json
    """
    if from_beginning + (offset is not None) + (from_time is not None) > 1:
        raise click.UsageError(
            "--from-beginning, --offset and --from contradict each other; give one of them."
        )
    known = _known(log, topic, partition)
    start: Position = "latest" if follow and not from_beginning else "earliest"
    if offset is not None:
        start = offset
    elif from_time is not None:
        start = datetime.fromtimestamp(min(from_time, _LAST_MS) / 1000, UTC)
    keys = key_format if windows is None else windowed(key_format, windows)
    wants = None if key is None else has_key(key, windows)
    writer = LineWriter(_standard_output(), key_format=keys, wants_key=wants, **options)
    chosen = None if known is None else [known]
    writer.write(TopicConsumer(log, topic, start=start, partitions=chosen, follow=follow))


def _known(log: FileLog, topic: str, partition: int | None) -> int | None:
    """Return the partition if the topic has it; without one, ``None``."""
    count = log.config(topic).partitions
    if partition is not None and partition >= count:
        raise click.BadParameter(
            f"topic {topic!r} has no partition {partition}; choose 0 to {count - 1}.",
            param_hint="--partition",
        )
    return partition
