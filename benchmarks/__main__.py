"""Runs the cases, each in a process of its own, and writes results, tables and plots.

python -m benchmarks                     every case
python -m benchmarks --quick             a minute's worth; prints, and writes nothing
python -m benchmarks --only row_tier     one case; the others keep their last results
python -m benchmarks --report            the document again, from the results at hand
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Scale, shown
from benchmarks.machine import describe
from benchmarks.report import write_report

CASES = {
    "row_tier": "The row tier against a plain loop, one core",
    "column_tier": "The column tier against a plain loop, one core",
    "throughput": "Records per second, against Spark's own Structured Streaming",
    "windows": "Windows, against Spark's own, and epochs with many open windows",
    "joins": "Joins, against what Spark offers for them",
    "small_epochs": "Small epochs, and from append to visible",
    "growth": "Cost of growth: keys, shuffles, partitions",
    "recovery": "Recovery after kill -9",
    "instances": "Instances: takeover by a standby, and what a standby costs",
    "memory": "Memory over 200 epochs",
    "start_up": "Start-up",
    "state_backends": "State: epochs, restores, expiry and memory of each backend",
    "snapshots": "Snapshots: restores from them, and epochs beside them",
    "disk": "Disk: what state takes, against its live bytes",
    "scale": "Many tasks: a thousand partitions, and a coordinator with ten thousand tasks",
}
"""Each is a function of that name in the module of that name."""
QUICK = ("row_tier", "column_tier", "throughput", "small_epochs")
RESULTS = Path(__file__).parent / "results"
DOCUMENT = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def main() -> None:
    """Do what the command line says."""
    given = _arguments()
    if given.recovery_child is not None:
        import_module("benchmarks.recovery").run_child(given.recovery_child)
    elif given.start_up_child is not None:
        import_module("benchmarks.start_up").run_child(given.start_up_child)
    elif given.instances_child is not None:
        import_module("benchmarks.instances").run_child(given.instances_child)
    elif given.case is not None:
        _run_here(given.case, Scale(given.quick), given.into)
    elif given.report:
        write_report(_all_results(), CASES, DOCUMENT)
    else:
        _run_all(given.only or (QUICK if given.quick else tuple(CASES)), quick=given.quick)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small, and nothing is written")
    parser.add_argument("--only", nargs="+", choices=list(CASES), help="these cases")
    parser.add_argument("--report", action="store_true", help="write the document again")
    for internal in ("--case", "--into", "--recovery-child", "--start-up-child", "--instances-child"):
        kind: Callable[[str], Any] = str if internal == "--case" else Path
        parser.add_argument(internal, type=kind, help=argparse.SUPPRESS)
    return parser.parse_args()


def _run_all(names: tuple[str, ...], *, quick: bool) -> None:
    missed: list[str] = []
    for name in names:
        print(f"\n{CASES[name]}", flush=True)
        began = time.monotonic()
        result = _run_apart(name, quick=quick)
        figures = [Figure(**figure) for figure in result["figures"]]
        width = max(len(figure.name) for figure in figures)
        for figure in figures:
            print(f"  {figure.name:{width}}  {shown(figure.value, figure.unit):>16}  {figure.verdict}")
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
        missed += [figure.name for figure in figures if figure.is_met is False]
        if not quick:
            RESULTS.mkdir(exist_ok=True)
            text = json.dumps(result, indent=1) + "\n"
            (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")
            write_report(_all_results(), CASES, DOCUMENT)
    print(f"\n{len(missed)} goals missed" + "".join(f"\n  {name}" for name in missed))


def _run_apart(name: str, *, quick: bool) -> dict[str, Any]:
    """Run a case in a process of its own, so that none inherits a warm JVM or a large heap."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "benchmarks", "--case", name, "--into", file.name]
        subprocess.run([*command, *(["--quick"] if quick else [])], check=True)  # noqa: S603 - this very program
        result: dict[str, Any] = json.loads(Path(file.name).read_text(encoding="utf-8"))
        return result


def _run_here(name: str, scale: Scale, into: Path) -> None:
    machine = describe()
    figures: list[Figure] = getattr(import_module(f"benchmarks.{name}"), name)(scale)
    result = {
        "case": name,
        "at": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine,
        "figures": [figure.as_dict() for figure in figures],
    }
    into.write_text(json.dumps(result), encoding="utf-8")


def _all_results() -> dict[str, dict[str, Any]]:
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(RESULTS.glob("*.json"))
        if path.stem in CASES
    }


if __name__ == "__main__":
    main()
