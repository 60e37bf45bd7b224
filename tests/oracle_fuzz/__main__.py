"""`make fuzz-oracle`: random cases through Kafka Streams' own test driver and through ours.

Stops at the first difference, shrinks it and prints it, with the command that plays it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from tests.oracle_fuzz.check import Checked, check, report
from tests.oracle_fuzz.generate import random_case
from tests.oracle_fuzz.kafka import Kafka
from tests.oracle_fuzz.spec import Case, described

_PROGRESS_SECONDS = 30


def main() -> int:
    """Play the seeds that the command line asks for. 0 if nothing differs."""
    parser = argparse.ArgumentParser(description=__doc__, prog="make fuzz-oracle")
    parser.add_argument("--n", type=int, default=200, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--only", help="play cases that have an operator with this in its name: join")
    parser.add_argument("--case", type=Path, help="play this case, as a report printed it, instead")
    parser.add_argument("--keep-going", action="store_true", help="print a difference and go on")
    parser.add_argument("--shrink-seconds", type=float, default=60, help="look for a smaller case so long")
    parser.add_argument("--show", action="store_true", help="print the cases")
    options = parser.parse_args()
    with Kafka() as kafka:
        if options.case:
            checked = check(Case.from_json(options.case.read_text()), kafka)
            print(report(checked, kafka, None, options.shrink_seconds) if checked.wrong else "no difference")
            return bool(checked.wrong)
        return _play_seeds(options, kafka)


def _play_seeds(options: argparse.Namespace, kafka: Kafka) -> int:
    started = told = time.monotonic()
    seen: Counter[str] = Counter()
    differences = 0
    for seed in range(options.seed, options.seed + options.n):
        case = random_case(seed)
        seen["seeds"] += 1
        if options.only and not any(options.only in op for op in case.ops()):
            continue
        if options.show:
            print(f"seed {seed}\n{described(case)}", flush=True)
        try:
            checked = check(case, kafka)
        except RuntimeError as error:
            raise SystemExit(f"seed {seed}: {error}\n{described(case)}") from error
        _count(seen, checked)
        now = time.monotonic()
        if checked.wrong:
            differences += 1
            print(report(checked, kafka, seed, options.shrink_seconds), flush=True)
            if not options.keep_going:
                break
        if now - told > _PROGRESS_SECONDS:
            told = now
            print(f"... {seen['cases']} cases, {differences} differences, seed {seed}", flush=True)
        if options.minutes is not None and now - started > options.minutes * 60:
            break
    last = options.seed + seen.pop("seeds") - 1
    seeds = f"seeds {options.seed} to {last}"
    print(f"{differences} differences in {seen['cases']} cases, {seeds}: {_summary(seen)}")
    return bool(differences)


def _count(seen: Counter[str], checked: Checked) -> None:
    seen["cases"] += 1
    seen["runs"] += checked.runs
    seen["refused by both"] += checked.refused
    seen["records"] += len(checked.case.actions)


def _summary(seen: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in seen.items() if what != "cases")


if __name__ == "__main__":
    sys.exit(main())
