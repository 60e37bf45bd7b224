"""``millstream topics``: create, alter, delete, list, describe, compact, produce, consume.

Text in, text out: lines or JSON lines, files or pipes. What the commands print on standard output is data;
what they tell is on standard error.
"""

# ruff: noqa: D301  # a backspace on a line of its own tells click to leave the paragraph's lines alone

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO, Final, TypeVar, cast

import click

from millstream.cli.consume import Consumer
from millstream.cli.formats import FORMATS, Format, Windows, windowed
from millstream.cli.produce import (
    LineParser,
    TableColumns,
    header_option,
    is_table,
    open_inputs,
    produce_stream,
    produce_table,
)
from millstream.commit.source_changelog import compaction_bound
from millstream.io.producer import Producer
from millstream.log import FileLog, TimestampType, TopicConfig, TopicPartition, open_log
from millstream.log.errors import TopicExistsError
from millstream.types import Offset, Partition

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULT_LOG: Final = "file:./millstream-data"
_TIMESTAMP_TYPES: Final = {kind.value: kind for kind in TimestampType} | {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}
"""Our names, and those of Kafka's message.timestamp.type."""


def _log_option(command: F) -> F:
    return click.option(
        "--log",
        callback=lambda _context, _option, address: open_log(address),
        metavar="ADDRESS",
        default=_DEFAULT_LOG,
        show_default=True,
        envvar="MILLSTREAM_LOG",
        show_envvar=True,
        help="Where the log is: file:FOLDER.",
    )(command)


def _format_options(command: F) -> F:
    for part in ("value", "key"):
        command = click.option(
            f"--{part}-format",
            type=click.Choice(list(FORMATS)),
            default="string",
            show_default=True,
            is_eager=True,  # before --key, which is written so
            callback=lambda _context, _option, name: FORMATS[name],
            help=f"How a {part} is written.",
        )(command)
    return command


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
@_log_option
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
        click.echo(f"Topic {topic!r} is there already.", err=True)
    else:
        click.echo(f"Created topic {topic!r} (partitions: {partitions}).", err=True)


@topics.command()
@click.argument("topic")
@_log_option
@click.option(
    "-p", "--partitions", type=click.IntRange(1), required=True, help="How many there shall be in all."
)
def alter(topic: str, log: FileLog, partitions: int) -> None:
    """Give a topic more partitions. Records stay where they are.

    Keys of records that come later may go to another partition than before. An application that keeps
    state by the partitions of the topic will refuse to go on, and say what to do.

    \b
    Example:
      millstream topics alter orders --partitions 8
    """
    before = log.config(topic).partitions
    log.add_partitions(topic, partitions)
    click.echo(f"Topic {topic!r} has {partitions} partitions now (before: {before}).", err=True)


@topics.command()
@click.argument("topic")
@_log_option
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option(
    "--force", is_flag=True, help="Also a topic that holds the state of an application that is there."
)
def delete(topic: str, log: FileLog, *, yes: bool, force: bool) -> None:
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
    click.echo(f"Deleted topic {topic!r} ({records:,} records).", err=True)


def _why_it_is_needed(topic: str, log: FileLog) -> str | None:
    owner = _owner_of_changelog(topic, log)
    if owner is not None:
        return (
            f"is a changelog: it holds the state of application {owner!r}, which could not start without it"
        )
    if compaction_bound(log.root, TopicPartition(topic, Partition(0))) is not None:
        return "is read by an application that has it for the changelog of a table: it holds its state"
    return None


def _owner_of_changelog(topic: str, log: FileLog) -> str | None:
    folder = log.root / "applications"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    is_changelog = topic.endswith("-changelog")
    return next((name for name in names if is_changelog and topic.startswith(f"{name}-")), None)


@topics.command("list")
@_log_option
def list_topics(log: FileLog) -> None:
    """List the topics, one per line."""
    for name in log.topics():
        click.echo(name)


@topics.command()
@click.argument("topic")
@_log_option
def describe(topic: str, log: FileLog) -> None:
    """Show a topic's configuration and the offsets of its partitions."""
    found = log.describe(topic)
    config = found.config
    records = sum(partition.latest - partition.earliest for partition in found.partitions)
    kept = [
        *([f"for {config.retention_ms:,} ms"] if config.retention_ms is not None else []),
        *([f"{config.retention_bytes:,} bytes of a partition"] if config.retention_bytes is not None else []),
        *(["the last of each key"] if config.is_compacted else []),
    ]
    keeps = f", keeps {' and '.join(kept)}" if kept else ""
    kind = config.timestamp_type.value
    click.echo(f"{topic}: {config.partitions} partitions, {kind}, {records:,} records{keeps}")
    click.echo(f"{'partition':>9}  {'earliest':>12}  {'latest':>12}  {'records':>12}")
    for partition in found.partitions:
        low, high = partition.earliest, partition.latest
        click.echo(f"{partition.partition:>9}  {low:>12,}  {high:>12,}  {high - low:>12,}")


@topics.command()
@click.argument("names", nargs=-1, metavar="[TOPIC]...")
@_log_option
def compact(names: tuple[str, ...], log: FileLog) -> None:
    """Merge small segments, compact, and apply the retention of topics (default: of all).

    Applications do this for the topics that they read and write, and they alone do it for their changelogs:
    they know which versions are still needed. It may run while others read and write.

    \b
    Example:
      millstream topics compact clicks

    "tidy" is another name of this command.
    """
    for topic in names or log.topics():
        owner = _owner_of_changelog(topic, log)
        if owner is not None:
            click.echo(f"{topic}: left to application {owner!r}, whose changelog it is.", err=True)
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
        click.echo(f"{topic}: {rewritten} partitions rewritten, {gone:,} records let go.", err=True)


topics.add_command(compact, "tidy")


@topics.command()
@click.argument("topic")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@_log_option
@_format_options
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
    for_lines = ("is_json", "key_separator", "key", "headers", "timestamp", "null_marker")
    columns.check(files, {"partition": partition is not None, **{name: options[name] for name in for_lines}})
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
@click.argument("topic")
@_log_option
@_format_options
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
@click.option("--max-messages", "left", type=click.IntRange(0), help="Stop after so many records.")
@click.option("-f", "--follow", is_flag=True, help="Wait for new records, until Ctrl-C.")
def consume(
    topic: str,
    log: FileLog,
    partition: int | None,
    offset: int | None,
    *,
    from_beginning: bool,
    follow: bool,
    key_format: Format,
    windows: Windows | None,
    **options: Any,
) -> None:
    """Show the records of a topic, a line each, partition after partition.

    \b
    Examples:
      millstream topics consume lines
      millstream topics consume word-counts --key-separator " = " --value-format int64
      millstream topics consume orders --json --offset 1000 --max-messages 10
      millstream topics consume clicks-per-minute --json --windows 60000 --value-format int64
      millstream topics consume orders --follow --from-beginning
    """
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning and --offset contradict each other; give one of them.")
    known = _known(log, topic, partition)
    numbers = range(log.config(topic).partitions) if known is None else [known]
    first = log.latest if follow and not from_beginning else log.earliest
    start = first if offset is None else lambda _partition: Offset(offset)
    keys = key_format if windows is None else windowed(key_format, windows)
    consumer = Consumer(log, _standard_output(), start, key_format=keys, **options)
    consumer.run([TopicPartition(topic, Partition(number)) for number in numbers])
    if follow:
        consumer.follow()


def _known(log: FileLog, topic: str, partition: int | None) -> int | None:
    """Return the partition if the topic has it; without one, ``None``."""
    count = log.config(topic).partitions
    if partition is not None and partition >= count:
        raise click.BadParameter(
            f"topic {topic!r} has no partition {partition}; choose 0 to {count - 1}.",
            param_hint="--partition",
        )
    return partition
