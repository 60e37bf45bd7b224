"""``millstream run`` and ``millstream describe``: a program from its module, without a main function."""

# ruff: noqa: D301  # a backspace on a line of its own tells click to leave the paragraph's lines alone

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import click

from millstream.cli.names import program_argument
from millstream.cli.options import address_option, json_option
from millstream.cli.program import load_topology
from millstream.cli.tables import show_json
from millstream.config import Engine, StreamsConfig
from millstream.until import Until


@click.command()
@program_argument
@click.option("--app-id", help="The application's name. [default: the module's name]")
@address_option()
@click.option("--config", "file", type=click.Path(exists=True, dir_okay=False), help="Settings, in TOML.")
@click.option(
    "--state-dir", type=click.Path(file_okay=False, path_type=Path), help="The state directory of this host."
)
@click.option(
    "--engine", type=click.Choice(get_args(Engine)), help="What runs tasks, in place of the settings' engine."
)
@click.option(
    "--until",
    metavar="caught-up|SECONDS",
    help="When to end; without it: on Ctrl-C.",
    callback=lambda _c, _o, t: _until(t),
)
@click.option(
    "--standby", is_flag=True, help="If it runs already, wait until it ends, or dies, and go on then."
)
@click.option("-q", "--quiet", is_flag=True, help="Show nothing but errors.")
@json_option
def run(
    program: str,
    app_id: str | None,
    log: str,
    file: str | None,
    state_dir: Path | None,
    engine: Engine | None,
    until: Until,
    *,
    standby: bool,
    quiet: bool,
    is_json: bool,
) -> None:
    """Run the topology of a module: PROGRAM is module:topology, for example wordcount:topology.

    A terminal shows what happens as a live table, anything else a line a second. Settings come from a file
    or from MILLSTREAM_<NAME> in the environment. With --json the figures are printed at the end.

    \b
    Examples:
      millstream run wordcount:topology
      millstream run shop.totals:build --app-id totals --until caught-up
      millstream run wordcount --engine local --until 10 --quiet
    """
    from millstream import Streams  # noqa: PLC0415 - Spark is loaded by this
    from millstream.console import Watcher  # noqa: PLC0415

    module, topology = load_topology(program)
    config = StreamsConfig.from_env() if file is None else StreamsConfig.from_toml(file)
    if state_dir is not None:
        config = replace(config, state_dir=state_dir)
    made = Streams(
        topology,
        app_id=app_id or module,
        log=log,
        engine=engine,
        config=config,
        quiet=quiet or is_json,
        standby=standby,
    )
    watcher = Watcher()
    with made as app, ExitStack() as stack:
        if not (quiet or is_json or watcher.is_terminal):  # a terminal is shown more by the application
            stack.enter_context(watcher.following(app.figures))
        app.run(until=until)
        metrics = app.metrics()
    if is_json:
        show_json({"application": app.app_id, **metrics})


def _until(text: str | None) -> Until:
    if text is None or text == "caught-up":
        return cast("Until", text)
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither caught-up nor a number of seconds.", param_hint="--until"
        ) from None


@click.command()
@program_argument
@click.option("--mermaid", is_flag=True, help="A picture, in the language of Mermaid.")
@json_option
def describe(program: str, *, mermaid: bool, is_json: bool) -> None:
    """Show the topology of a module, in Kafka's text format: PROGRAM is module:topology.

    \b
    Examples:
      millstream describe wordcount:topology
      millstream describe wordcount:topology --mermaid > wordcount.mmd
    """
    _, topology = load_topology(program)
    if is_json:
        show_json(topology.plan().summary)
    else:
        click.echo(topology.to_mermaid() if mermaid else topology.describe())
