"""``module:topology``: finds the program that a command is told, and says what is wrong with it."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from millstream import StreamsBuilder, Topology
from millstream.errors import MillstreamError

_HINT = "Write module:topology, for example wordcount:topology for the variable `topology` in wordcount.py."


def load_topology(place: str) -> tuple[str, Topology]:
    """The name of a program's module, and its topology: that, a builder, or a function that makes one."""
    module_name, name, found = _load(place)
    if callable(found) and not isinstance(found, Topology | StreamsBuilder):
        found = found()
    if isinstance(found, StreamsBuilder):
        found = found.build()
    if not isinstance(found, Topology):
        raise click.ClickException(
            f"{name!r} in {module_name} is a {type(found).__name__}, and no topology. Remedy: name a "
            "variable that has what builder.build() returns, a StreamsBuilder, or a function without "
            "parameters that returns one of them."
        )
    return module_name.rpartition(".")[2], found


def _load(place: str) -> tuple[str, str, Any]:
    module_name, _, name = place.partition(":")
    if module_name.endswith(".py"):  # as the shell completes it
        module_name = module_name.removesuffix(".py").replace("/", ".").lstrip(".")
    name = name or "topology"
    if not module_name:
        raise click.BadParameter(f"{place!r} names no module. {_HINT}", param_hint="PROGRAM")
    here = str(Path.cwd())
    if here not in sys.path:  # Spark's workers import the program by the same path
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except MillstreamError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.split(".")[0] == error.name.split(".")[0]:
            raise click.ClickException(
                f"There is no module {module_name!r} in {here} or on the Python path. Likely cause: a typing "
                f"error, or another working folder. {_HINT}"
            ) from error
        raise _failed(module_name, error) from error
    except Exception as error:
        raise _failed(module_name, error) from error
    if not hasattr(module, name):
        topologies = [
            key for key, value in vars(module).items() if isinstance(value, Topology | StreamsBuilder)
        ]
        raise click.ClickException(
            f"Module {module_name!r} has no {name!r}. Topologies in it: {', '.join(topologies) or 'none'}. "
            f"{_HINT}"
        )
    return module_name, name, getattr(module, name)


def _failed(module_name: str, error: Exception) -> click.ClickException:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return click.ClickException(
        f"Module {module_name!r} can't be imported: {type(error).__name__}: {error} "
        f"({last.filename}, line {last.lineno}). Remedy: mend it; python -m {module_name} shows the whole "
        "traceback."
    )
