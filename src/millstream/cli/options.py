"""Options that several commands have: where the log and the state are, formats, JSON, times."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from millstream.cli.formats import FORMATS, Format, avro_format, format_names
from millstream.log import open_log
from millstream.state.local.directory import existing_state_directory

F = TypeVar("F", bound=Callable[..., Any])
Callback = Callable[[click.Context, click.Parameter, Any], Any]

DEFAULT_LOG: Final = "file:./millstream-data"
DEFAULT_STATE: Final = "millstream-state"
_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def address_option(
    callback: Callback | None = None, *, what: str = "Where the log is: file:FOLDER."
) -> Callable[[F], F]:
    """``--log``: gives the address of the log, or what the callback makes of it."""
    return click.option(
        "--log",
        callback=callback,
        metavar="ADDRESS",
        default=DEFAULT_LOG,
        show_default=True,
        envvar="MILLSTREAM_LOG",
        show_envvar=True,
        help=what,
    )


def log_option(command: F) -> F:
    """``--log``: gives the opened log."""
    return address_option(lambda _context, _option, address: open_log(address))(command)


def state_folder_option(callback: Callback) -> Callable[[F], F]:
    """``--state-dir``: gives what the callback makes of the folder."""
    return click.option(
        "--state-dir",
        "directory",
        callback=callback,
        metavar="FOLDER",
        default=DEFAULT_STATE,
        show_default=True,
        envvar="MILLSTREAM_STATE_DIR",
        show_envvar=True,
        help="The state directory of this host.",
    )


def state_option(command: F) -> F:
    """``--state-dir``: gives the state directory, which must be there."""
    return state_folder_option(lambda _context, _option, path: existing_state_directory(Path(path)))(command)


def json_option(command: F) -> F:
    """``--json``: what is told is JSON, an object a line."""
    return click.option("--json", "is_json", is_flag=True, help="JSON, an object a line.")(command)


def yes_option(command: F) -> F:
    """``--yes``: don't ask."""
    return click.option("--yes", is_flag=True, help="Don't ask.")(command)


def format_options(default: str | None = "string") -> Callable[[F], F]:
    """``--key-format`` and ``--value-format``. Without a default: None is what the application wrote."""

    def add(command: F) -> F:
        for part in ("value", "key"):
            command = click.option(
                f"--{part}-format",
                metavar="FORMAT",
                default=default,
                show_default=default is not None,
                is_eager=True,  # before --key, which is written so
                callback=_format,
                help=f"How a {part} is written: {', '.join(FORMATS)} or avro:SCHEMA_FILE.",
            )(command)
        return command

    return add


def _format(_context: click.Context, option: click.Parameter, name: str | None) -> Format | None:
    if name is None:
        return None
    if name in FORMATS:
        return FORMATS[name]
    if name.startswith("avro:"):
        return avro_format(name.removeprefix("avro:"))
    raise click.BadParameter(f"{name!r} is not one of {format_names()}.", param_hint=option.opts[0])


def time_ms(_context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """A moment: milliseconds since 1970, a date and time, or how long ago.

    >>> parse_time("1500", now_ms=0), parse_time("1970-01-01T00:01:00Z", now_ms=0)
    (1500, 60000)
    >>> parse_time("2h", now_ms=7_300_000), parse_time("yesterday", now_ms=0)
    (100000, None)
    """
    from millstream.clock import now_ms  # noqa: PLC0415 - read when it is asked for

    if text is None:
        return None
    found = parse_time(text, now_ms=now_ms())
    if found is None or found < 0:
        raise click.BadParameter(
            f"{text!r} is no time. Use milliseconds since 1970, a date and time such as "
            "2026-01-31T08:00:00+01:00 (without a zone: local time), or how long ago, such as 30min or 2h.",
            param_hint=option.opts[0],
        )
    return found


def parse_time(text: str, *, now_ms: int) -> int | None:
    """A moment in milliseconds since 1970; None if the text says none."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms - int(float(ago[1]) * _UNIT_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
