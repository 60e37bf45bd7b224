"""``millstream completion``: the script that lets a shell complete commands, options and names."""

# ruff: noqa: D301  # a backspace on a line of its own tells click to leave the paragraph's lines alone

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that lets your shell complete commands, options, and the names of topics and the like.

    \b
    Examples:
      millstream completion bash > ~/.local/share/bash-completion/completions/millstream
      millstream completion zsh > ~/.zfunc/_millstream
      millstream completion fish > ~/.config/fish/completions/millstream.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # the choices above are those that click knows
    click.echo(made(context.find_root().command, {}, "millstream", "_MILLSTREAM_COMPLETE").source())
