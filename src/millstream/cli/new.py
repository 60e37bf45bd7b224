"""``millstream new``: a project to begin with: a topology, a test that runs, some data and a README."""

# ruff: noqa: D301  # a backspace on a line of its own tells click to leave the paragraph's lines alone

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from millstream.cli.options import json_option
from millstream.cli.tables import told

_FILES: Final = {
    "topology.py.txt": "{module}.py",
    "test_topology.py.txt": "test_{module}.py",
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "gitignore.txt": ".gitignore",
    "lines.txt": "lines.txt",
}
"""From the files in `skeleton/` to those of the project."""
_INSTALL: Final = "  python -m pip install pytest\n"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def new(folder: Path, *, is_json: bool) -> None:
    """Make a project in FOLDER: a topology, a test that runs, some data, and a README that says how.

    \b
    Example:
      millstream new wordcount && cd wordcount && python -m pytest
    """
    module = re.sub(r"\W+", "_", folder.resolve().name).lower()
    if not module.isidentifier():
        raise click.BadParameter(
            f"{folder.name!r} can't name a Python module. Begin it with a letter.", param_hint="FOLDER"
        )
    known = find_spec(module)  # without an origin it is a folder, no module
    if keyword.iskeyword(module) or (known is not None and known.origin is not None):
        raise click.BadParameter(
            f"{module!r} is a name that Python or an installed package has already. Choose another one.",
            param_hint="FOLDER",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.ClickException(
            f"{folder} is there already. Nothing was written. Remedy: name another folder, or an empty one."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = [_write(folder, module, source, target) for source, target in _FILES.items()]
    except OSError as error:
        raise click.ClickException(
            f"{folder} can't be written: {error.strerror}. Remedy: name a folder that you may write into."
        ) from error
    row = {"folder": str(folder), "module": module, "files": made}
    told(
        f"Made {folder}: {', '.join(made)}.\n"
        "Go on with:\n"
        f"  cd {folder}\n"
        f"{_INSTALL if find_spec('pytest') is None else ''}"
        "  python -m pytest\n"
        "  millstream topics create lines\n"
        "  millstream topics produce lines lines.txt\n"
        f"  millstream run {module}:topology --until caught-up\n"
        f"  millstream state top {module} counts",
        row,
        is_json=is_json,
    )


def _write(folder: Path, module: str, source: str, target: str) -> str:
    text = (files("millstream.cli") / "skeleton" / source).read_text(encoding="utf-8")
    name = target.format(module=module)
    (folder / name).write_text(text.replace("{module}", module), encoding="utf-8")
    return name
