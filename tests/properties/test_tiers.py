"""Random topologies in both tiers: row == column == naive oracle, whatever the batches.

A failure prints its seed, a command that replays it, and a smaller example.
"""

from __future__ import annotations

import pytest
from tests.properties.check import Epochs, difference, report_on
from tests.properties.column_build import build_in_columns
from tests.properties.engine import Results, run_engine, run_oracle
from tests.properties.generate import random_column_spec
from tests.properties.inputs import punctual
from tests.properties.spec import Spec

TEST_FILE = "tests/properties/test_tiers.py"


def run_columns(
    spec: Spec, epochs: Epochs, share: float, max_rows: int | None = None, *, as_if_many: bool = False
) -> Results:
    built, _ = build_in_columns(spec, share)
    return run_engine(
        spec,
        epochs,
        max_rows=max_rows,
        fresh_tasks=max_rows is not None,
        built=built,
        as_if_many=as_if_many,
    )


def tiers_are_equal(spec: Spec, epochs: Epochs) -> str | None:
    """Functions, expressions and a mixture of them give what the naive oracle gives, cached or not."""
    for chosen in (spec, spec.uncached()):
        oracle = run_oracle(chosen, epochs)
        for name, found in (
            ("rows", run_engine(chosen, epochs)),
            ("columns", run_columns(chosen, epochs, share=1)),
            ("both tiers", run_columns(chosen, epochs, share=0.5)),
        ):
            if wrong := difference(name, found.visible(), "oracle", oracle):
                return wrong
    return None


def column_sizes_are_invisible(spec: Spec, epochs: Epochs) -> str | None:
    """Batches that are taken for large ones give the same, late records among them or not."""
    for given in (epochs, punctual(epochs)):
        oracle = run_oracle(spec, given)
        for share in (1, 0.5):
            many = run_columns(spec, given, share, as_if_many=True)
            if wrong := difference("as if there were many", many.visible(), "oracle", oracle):
                return wrong
    return None


def column_batches_are_invisible(spec: Spec, epochs: Epochs) -> str | None:
    """However an epoch's rows are cut into batches, columns give the same."""
    whole = run_columns(spec, epochs, share=0.8)
    for max_rows in (1, 5):
        cut = run_columns(spec, epochs, share=0.8, max_rows=max_rows)
        if wrong := difference(f"at most {max_rows} rows at once", cut, "all at once", whole):
            return wrong
    return None


def test_tiers_of_seed(seed_of_tiers: int) -> None:
    seed = seed_of_tiers
    print(f"seed {seed}")
    report = report_on(
        seed,
        random_column_spec(seed),
        (tiers_are_equal, column_sizes_are_invisible, column_batches_are_invisible),
        TEST_FILE,
    )
    if report is not None:
        pytest.fail(report, pytrace=False)


def test_most_topologies_have_operators_of_both_tiers() -> None:
    specs = [random_column_spec(seed) for seed in range(200)]
    columns = [build_in_columns(spec, share=1)[1] for spec in specs]
    assert sum(columns) > 800
    assert sum(count > 0 for count in columns) > 180
