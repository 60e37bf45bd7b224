"""The command ``millstream``: finds the commands, and turns errors into messages.

A mistake of the user or of the environment ends in one message and a status, never in a traceback: 1 for an
error, 2 for wrong usage, 130 after Ctrl-C, 141 when whoever reads our output went away. Whatever else is
raised is a bug of ours and shows where.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, Final, cast

import click

from millstream.durable import disk_errors_named
from millstream.errors import MillstreamError

_COMMANDS: Final = {
    "apps": "millstream.cli.apps:apps",
    "completion": "millstream.cli.completion:completion",
    "describe": "millstream.cli.run:describe",
    "doctor": "millstream.cli.doctor:doctor",
    "log": "millstream.cli.log:log_group",
    "new": "millstream.cli.new:new",
    "run": "millstream.cli.run:run",
    "state": "millstream.cli.state:state",
    "topics": "millstream.cli.topics:topics",
}
_INTERRUPTED: Final = 130
_BROKEN_PIPE: Final = 141


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for, so that ``--help`` and errors are quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; ``None`` if there is none of that name."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        return cast("click.Command", getattr(importlib.import_module(module), name))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; show our own errors as messages, and end quietly when we are told to stop."""
        try:
            with disk_errors_named(Path()):
                return super().invoke(ctx)
        except MillstreamError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)
        except BrokenPipeError:
            # The reader of our output is gone; Python must not try to flush what is left to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(_BROKEN_PIPE)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="millstream")
def millstream() -> None:
    """Stateful streams in Python, run by Spark."""


def main() -> None:
    """Run the command line and exit."""
    millstream.main(prog_name="millstream")
