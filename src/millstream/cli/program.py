"""``module:topology``: finds the program that a command is told, and says what is wrong with it."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from inspect import signature
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
        found = _made_by(found, module_name, name)
    if isinstance(found, StreamsBuilder):
        found = found.build()
    if not isinstance(found, Topology):
        raise click.ClickException(
            f"{name!r} in {module_name} is a {type(found).__name__}, and no topology. Remedy: name a "
            "variable that has what builder.build() returns, a StreamsBuilder, or a function without "
            "parameters that returns one of them."
        )
    return module_name.rpartition(".")[2], found


def _made_by(function: Callable[[], object], module_name: str, name: str) -> object:
    """What a function of the program makes; its errors are told like those of its module."""
    try:
        signature(function).bind()
    except ValueError:  # one of C has no signature that Python could tell
        pass
    except TypeError as error:
        raise click.ClickException(
            f"{name!r} in {module_name} can't be called without arguments: {error}. Remedy: name a function "
            "without parameters that returns a topology or a StreamsBuilder."
        ) from error
    try:
        return function()
    except MillstreamError:
        raise
    except (Exception, SystemExit) as error:
        again = f'python -c "import {module_name}; {module_name}.{name}()"'
        raise _failed(f"Function {name!r} of module {module_name!r} failed", error, again) from error


def _load(place: str) -> tuple[str, str, Any]:
    module_name, _, name = place.partition(":")
    if module_name.endswith(".py"):  # as the shell completes it
        if Path(module_name).is_absolute() or ".." in Path(module_name).parts:
            raise click.BadParameter(
                f"{module_name!r} is outside of the working folder. Change to its folder, and name it there.",
                param_hint="PROGRAM",
            )
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
        raise _not_imported(module_name, error) from error
    except (Exception, SystemExit) as error:
        raise _not_imported(module_name, error) from error
    if not hasattr(module, name):
        topologies = [
            key for key, value in vars(module).items() if isinstance(value, Topology | StreamsBuilder)
        ]
        raise click.ClickException(
            f"Module {module_name!r} has no {name!r}. Topologies in it: {', '.join(topologies) or 'none'}. "
            f"{_HINT}"
        )
    return module_name, name, getattr(module, name)


def _not_imported(module_name: str, error: BaseException) -> click.ClickException:
    return _failed(f"Module {module_name!r} can't be imported", error, f"python -m {module_name}")


def _failed(what: str, error: BaseException, again: str) -> click.ClickException:
    last = traceback.extract_tb(error.__traceback__)[-1]
    # A syntax error says its place itself; the last call was Python's own.
    place = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
    return click.ClickException(
        f"{what}: {type(error).__name__}: {error}{place}. Remedy: mend it; {again} shows the whole traceback."
    )
