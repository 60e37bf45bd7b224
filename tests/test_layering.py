"""Who may import whom.

The tables are the map of the code: a layer may import the layers named in its row, and itself. Imports for
types count, and so do imports inside functions. A new top-level module or folder needs a row of its own.

Nor do modules import each other in a cycle. There, imports for types do not count: types may refer to each
other, as those of streams and tables do.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

PACKAGE = "millstream"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE

# Level 0: names that everything speaks. They may import each other and nothing above.
BASE = (
    "errors",
    "arguments",
    "config",
    "record",
    "clock",
    "types",
    "type_variables",
    "timestamps",
    "handlers",
    "failpoints",
    "offset_reset",
    "threads",
    "throttler",
    "frozen_heap",
    "small_pickles",
    "until",
    "names",
    "stop_signals",
    "kafka_names",
    "notebook",
    "windows",
    "suppressed",
    "state_dir",
)

# From the bottom to the top. "package" is millstream/__init__.py, the list of public names.
MAY_IMPORT: dict[str, set[str]] = {
    "base": set(),
    "serdes": {"base"},
    "console": {"base"},
    "run_screen": {"base", "console"},
    "durable": {"base"},
    "log": {"base", "serdes", "durable"},
    "io": {"base", "serdes", "log"},
    "state": {"base", "serdes", "durable", "log"},
    "stores": {"base", "serdes", "state"},
    "processors": {"base", "serdes", "state"},
    "topology": {"base", "serdes", "state", "processors"},
    "dsl": {"base", "serdes", "state", "processors", "topology"},
    "task": {"base", "serdes", "log", "state", "processors", "topology"},
    "commit": {"base", "serdes", "durable", "log", "state", "processors", "topology", "task"},
    "maintenance": {"base", "serdes", "durable", "log", "state", "topology", "commit"},
    "query": {"base", "serdes", "durable", "log", "io", "state", "processors", "topology", "task", "commit"},
    "engine": {
        "base",
        "serdes",
        "durable",
        "log",
        "io",
        "state",
        "processors",
        "topology",
        "task",
        "commit",
        "maintenance",
        "query",  # Spark's data source shows stores
    },
    "instances": {"base", "topology", "commit", "engine", "query"},
    "app": {
        "base",
        "instances",
        "console",
        "run_screen",
        "serdes",
        "durable",
        "log",
        "state",
        "processors",
        "topology",
        "task",
        "commit",
        "engine",
        "query",
    },
    # What users are handed of Spark: frames of topics, the data source.
    "consumer": {"base", "serdes", "log", "io", "engine"},
    "spark": {"base", "engine"},
    "package": {
        "base",
        "serdes",
        "io",
        "state",
        "stores",
        "processors",
        "topology",
        "dsl",
        "app",
        "consumer",
    },
}
EVERYTHING = set(MAY_IMPORT)
MAY_IMPORT["cli"] = EVERYTHING
MAY_IMPORT["__main__"] = {"cli"}
MAY_IMPORT["testing"] = EVERYTHING  # and nothing imports it

# Of some layers only a part may be seen.
ONLY: dict[tuple[str, str], tuple[str, ...]] = {
    ("dsl", "state"): ("millstream.state.specs",),
    ("topology", "state"): ("millstream.state.specs",),
}

# What stands behind a factory or a protocol: the only layer that may import it.
BEHIND: dict[str, str] = {
    "millstream.log.embedded": "log",  # millstream.log.open_log
    "millstream.engine.spark": "engine",  # and the composition root
}
COMPOSITION_ROOT = ("app", "cli", "consumer", "spark", "testing")

# Libraries that one place alone may know. None: nobody may, for stored bytes must never run code.
OWNERS: dict[str, str | None] = {
    "pyspark": "engine/spark/",
    "rocksdict": "state/backends/rocksdb.py",
    "lmdb": "state/backends/lmdb*.py",
    "confluent_kafka": "log/kafka.py",
    "fastavro": "serdes/avro_serde.py",
    "http.server": "query/server.py",
    "pickle": None,
    "cloudpickle": None,
    "dill": None,
    "marshal": None,
    "shelve": None,
}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, the line that imports it, and whether only for types."""

    module: str
    line: int
    for_types: bool = False


def violations(source: Path) -> list[str]:
    """Return every import under ``source`` that breaks a table, as ``path:line: reason``."""
    return [
        f"{path.relative_to(source).as_posix()}:{found.line}: {reason}"
        for path in sorted(source.rglob("*.py"))
        for found in imports_of(path, source)
        for reason in (library_violation(path, found, source) or layer_violation(path, found, source),)
        if reason
    ]


def cycles(source: Path) -> set[str]:
    """The modules that import each other in a cycle, and those between two cycles."""
    paths = {".".join(path.relative_to(source).with_suffix("").parts): path for path in source.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    imports = {
        name: {
            found.module.removeprefix(f"{PACKAGE}.")
            for found in imports_of(path, source)
            if not found.for_types and found.module != f"{PACKAGE}.{name}"
        }
        for name, path in modules.items()
    }
    while True:
        imported = set().union(*imports.values())
        left = {name for name, of in imports.items() if name in imported and of & imports.keys()}
        if len(left) == len(imports):
            return left
        imports = {name: imports[name] & left for name in left}


def imports_of(path: Path, source: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for line in range(node.lineno, (node.body[-1].end_lineno or 0) + 1)
    }
    for found in _all_imports(tree, path, source):
        yield replace(found, for_types=found.line in for_types)


def _all_imports(tree: ast.AST, path: Path, source: Path) -> Iterator[Import]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (Import(alias.name, node.lineno) for alias in names)
            case ast.ImportFrom(names=names):
                base = absolute(node, path, source)
                yield from (Import(target(base, alias.name, source), node.lineno) for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield Import(name, node.lineno)
            case _:
                pass


def absolute(node: ast.ImportFrom, path: Path, source: Path) -> str:
    """Return the full name of the module that names are imported from."""
    if not node.level:
        return node.module or ""
    parts = [PACKAGE, *path.relative_to(source).parent.parts]
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])


def target(base: str, name: str, source: Path) -> str:
    """Tell ``from millstream import serdes`` (a module) from ``from millstream import Record`` (a name)."""
    inside = source.joinpath(*base.split(".")[1:], name)
    is_module = base.partition(".")[0] == PACKAGE and (inside.is_dir() or inside.with_suffix(".py").is_file())
    known = base == PACKAGE and (name in BASE or name in MAY_IMPORT)
    outside = base.partition(".")[0] != PACKAGE
    return f"{base}.{name}" if is_module or known or outside else base


def layer_of(parts: tuple[str, ...]) -> str:
    """Return the layer of a module, given the parts of its name below the package."""
    if not parts or parts == ("__init__",):
        return "package"
    return "base" if parts[0] in BASE else parts[0]


def library_violation(path: Path, found: Import, source: Path) -> str | None:
    place = path.relative_to(source).as_posix()
    for library, owner in OWNERS.items():
        if not f"{found.module}.".startswith(f"{library}."):
            continue
        if owner is None:
            return f"nothing may import {library}"
        if not fnmatchcase(place, f"{owner}*" if owner.endswith("/") else owner):
            return f"only {owner} may import {library}"
    return None


def layer_violation(path: Path, found: Import, source: Path) -> str | None:
    package, *rest = found.module.split(".")
    if package != PACKAGE:
        return None
    importer = layer_of(path.relative_to(source).with_suffix("").parts)
    imported = layer_of(tuple(rest))
    if importer not in MAY_IMPORT or imported not in MAY_IMPORT:
        unknown = importer if importer not in MAY_IMPORT else imported
        return f"{unknown} is in no table of {Path(__file__).name}: give it a row"
    if imported == importer:
        return None
    for hidden, owner in BEHIND.items():
        if f"{found.module}.".startswith(f"{hidden}.") and importer not in (owner, *COMPOSITION_ROOT):
            return f"only {owner} may import {hidden}"
    if imported not in MAY_IMPORT[importer]:
        return f"{importer} may not import {imported} ({found.module})"
    parts = ONLY.get((importer, imported))
    if parts and not f"{found.module}.".startswith(tuple(f"{part}." for part in parts)):
        return f"{importer} may import only {', '.join(parts)} of {imported}, not {found.module}"
    return None


def test_the_code_keeps_to_its_layers() -> None:
    assert "\n".join(violations(SOURCE)) == ""


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    assert cycles(SOURCE) == set()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import millstream.dsl.a", {"dsl.a", "dsl.b"}),
        ("def f():\n    from millstream.dsl import a", {"dsl.a", "dsl.b"}),
        ("from .a import A", {"dsl.a", "dsl.b"}),
        ("if TYPE_CHECKING:\n    from millstream.dsl.a import A", set()),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import millstream.dsl.a", {"dsl.a", "dsl.b"}),
        ("import millstream.dsl.c", set()),
    ],
)
def test_a_line_that_makes_a_cycle_is_found(tmp_path: Path, line: str, expected: set[str]) -> None:
    write(tmp_path, "app.py", "import millstream.dsl.a")
    write(tmp_path, "dsl/a.py", "import millstream.dsl.b")
    write(tmp_path, "dsl/b.py", line)
    write(tmp_path, "dsl/c.py", "import millstream.errors")
    assert cycles(tmp_path) == expected


def test_the_tables_have_no_cycle() -> None:
    seen: set[str] = set()
    for layer, below in MAY_IMPORT.items():
        if below is not EVERYTHING:
            assert below <= seen, f"{layer} imports a layer that stands above it"
        seen.add(layer)


def test_one_line_that_knows_an_engine_is_found_in_the_real_code(tmp_path: Path) -> None:
    source = tmp_path / PACKAGE
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    expected: list[str] = []
    for layer in ("commit", "dsl", "processors", "task", "topology"):
        for library in ("confluent_kafka", "lmdb", "pyspark", "rocksdict"):
            write(source, f"{layer}/broken_{library}.py", f"import {library}")
            broken = f"{layer}/broken_{library}.py:1: only {OWNERS[library]} may import {library}"
            expected.append(broken)
    assert violations(source) == expected


@pytest.mark.parametrize(
    ("path", "line", "reason"),
    [
        (
            "errors.py",
            "from millstream.serdes import string",
            "base may not import serdes (millstream.serdes)",
        ),
        ("serdes/a.py", "from millstream import state", "serdes may not import state (millstream.state)"),
        (
            "serdes/a.py",
            "from ..state.specs import Store",
            "serdes may not import state (millstream.state.specs)",
        ),
        ("serdes/a.py", "def f():\n    import millstream.dsl", "serdes may not import dsl (millstream.dsl)"),
        (
            "dsl/a.py",
            "import millstream.task.task",
            "dsl may not import task (millstream.task.task)",
        ),
        (
            "dsl/a.py",
            "from millstream.state.stores.overlay import Overlay",
            "dsl may import only millstream.state.specs of state, not millstream.state.stores.overlay",
        ),
        ("dsl/a.py", "from millstream import Record", "dsl may not import package (millstream)"),
        ("cli/a.py", "import millstream.testing", "cli may not import testing (millstream.testing)"),
        ("app.py", "import millstream.testing", "app may not import testing (millstream.testing)"),
        ("app.py", "from millstream import cli", "app may not import cli (millstream.cli)"),
        ("state/a.py", "from pyspark.sql import SparkSession", "only engine/spark/ may import pyspark"),
        (
            "state/a.py",
            "import importlib\nimportlib.import_module('lmdb')",
            "only state/backends/lmdb*.py may import lmdb",
        ),
        ("state/backends/rocksdb_lmdb.py", "import lmdb", "only state/backends/lmdb*.py may import lmdb"),
        ("query/a.py", "from http import server", "only query/server.py may import http.server"),
        (
            "commit/a.py",
            "from millstream.log.embedded.file_log import FileLog",
            "only log may import millstream.log.embedded",
        ),
        ("engine/spark/a.py", "import pickle", "nothing may import pickle"),
        (
            "novelty/a.py",
            "import millstream.record",
            "novelty is in no table of test_layering.py: give it a row",
        ),
    ],
)
def test_one_line_that_breaks_a_rule_is_found(tmp_path: Path, path: str, line: str, reason: str) -> None:
    write(tmp_path, path, line)
    assert violations(tmp_path) == [f"{path}:{1 + line.count(chr(10))}: {reason}"]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("state/backends/rocksdb.py", "from rocksdict import Rdict"),
        ("state/backends/lmdb_tables.py", "import lmdb"),
        ("log/kafka.py", "import confluent_kafka"),
        ("engine/spark/session.py", "import pyspark"),
        ("dsl/a.py", "from millstream.state.specs import Store"),
        ("dsl/a.py", "from millstream.dsl.b import c"),
        ("serdes/a.py", "from millstream import errors"),
        ("testing/a.py", "from millstream import StreamsBuilder"),
        ("processors/a.py", "import httpserver, picklejar, http"),
    ],
)
def test_a_line_that_keeps_the_rules_is_fine(tmp_path: Path, path: str, line: str) -> None:
    write(tmp_path, path, line)
    assert violations(tmp_path) == []


def write(source: Path, path: str, text: str) -> None:
    file = source / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")
