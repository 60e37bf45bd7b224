"""The properties of a seed, and the search for a smaller example when one does not hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from tests.properties.engine import Results, run_engine, run_oracle
from tests.properties.generate import is_legal, random_spec
from tests.properties.inputs import Epoch, describe_epochs, punctual, random_epochs
from tests.properties.spec import Spec, describe

Epochs = tuple[Epoch, ...]
Check = Callable[[Spec, Epochs], str | None]
"""None, or what is wrong."""

SHRINKING_SECONDS = 6.0
TEST_FILE = "tests/properties/test_random_topologies.py"


def engine_equals_oracle(spec: Spec, epochs: Epochs) -> str | None:
    """One epoch at a time, the engine gives what the naive oracle gives."""
    return difference("engine", run_engine(spec, epochs).visible(), "oracle", run_oracle(spec, epochs))


def batches_are_invisible(spec: Spec, epochs: Epochs) -> str | None:
    """However an epoch's rows are cut into batches, and with tasks old or new, the results are the same."""
    whole = run_engine(spec, epochs)
    for max_rows in (1, 2, 7):
        cut = run_engine(spec, epochs, max_rows=max_rows, fresh_tasks=max_rows == 2)
        if found := difference(f"at most {max_rows} rows at once", cut, "all at once", whole):
            return found
    return None


def commits_are_invisible(spec: Spec, epochs: Epochs) -> str | None:
    """Without caching, a task may commit wherever it likes: after 1, 2, 7 or all of its rows."""
    spec = spec.uncached()
    whole = run_engine(spec, epochs)
    for rows in (1, 2, 7):
        cut = run_engine(spec, epochs, rows_per_commit=rows, fresh_tasks=rows == 2)
        if found := difference(f"a commit every {rows} rows", cut, "one commit per epoch", whole):
            return found
    return None


def size_is_invisible(spec: Spec, epochs: Epochs) -> str | None:
    """Batches that are taken for large ones, and go in columns where they can, give the same."""
    for chosen, given in ((spec, epochs), (spec, punctual(epochs)), (spec.uncached(), epochs)):
        few, many = run_engine(chosen, given), run_engine(chosen, given, as_if_many=True)
        if found := difference("as if there were many", many, "few rows", few):
            return found
    return None


def uncached_engine_equals_oracle(spec: Spec, epochs: Epochs) -> str | None:
    """The same as `engine_equals_oracle`, with every update going on at once."""
    return engine_equals_oracle(spec.uncached(), epochs)


PROPERTIES: tuple[Check, ...] = (
    engine_equals_oracle,
    uncached_engine_equals_oracle,
    batches_are_invisible,
    commits_are_invisible,
    size_is_invisible,
)


def check_seed(seed: int, properties: tuple[Check, ...] = PROPERTIES) -> str | None:
    """None, or a report on the first property that does not hold for the topology of a seed."""
    return report_on(seed, random_spec(seed), properties, TEST_FILE)


def report_on(seed: int, spec: Spec, properties: tuple[Check, ...], test_file: str) -> str | None:
    """None, or a report on the first property that does not hold for a topology."""
    epochs = random_epochs(spec)
    for holds in properties:
        if outcome(holds, spec, epochs) is not None:
            small, few = shrink(holds, spec, epochs)
            return report(seed, holds, small, few, test_file)
    return None


def outcome(holds: Check, spec: Spec, epochs: Epochs) -> str | None:
    """What a check says; an exception counts as wrong."""
    try:
        return holds(spec, epochs)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is to be reported
        return f"{type(error).__name__} was raised: {error}"


def report(seed: int, holds: Check, spec: Spec, epochs: Epochs, test_file: str = TEST_FILE) -> str:
    """All that somebody needs who has never heard of the seed before."""
    return "\n".join(
        [
            f"seed {seed} breaks the property {holds.__name__}: {holds.__doc__}",
            f"replay: pytest {test_file} --seed {seed}",
            "the smallest example found:",
            describe(spec),
            describe_epochs(epochs),
            outcome(holds, spec, epochs) or "(it does not fail any more: the failure is not deterministic)",
        ]
    )


def shrink(holds: Check, spec: Spec, epochs: Epochs) -> tuple[Spec, Epochs]:
    """A smaller example that is still wrong: fewer operators, epochs and records."""
    deadline = time.monotonic() + SHRINKING_SECONDS
    kind = _kind(outcome(holds, spec, epochs))
    shrinking = True
    while shrinking:
        shrinking = False
        for fewer_ops, fewer_epochs in _smaller(spec, epochs):
            if time.monotonic() > deadline:
                return spec, epochs
            if _kind(outcome(holds, fewer_ops, fewer_epochs)) == kind:
                spec, epochs, shrinking = fewer_ops, fewer_epochs, True
                break
    return spec, epochs


def _kind(found: str | None) -> str | None:
    """Whether runs differ, or which exception was raised: a smaller example must be wrong in the same way."""
    return found and found.split(maxsplit=1)[0]


def _smaller(spec: Spec, epochs: Epochs) -> Iterator[tuple[Spec, Epochs]]:
    for op in spec.ops:
        fewer = spec.without(op.id)
        if fewer.input_topics and is_legal(fewer):
            wanted = set(fewer.input_topics)
            yield (
                fewer,
                tuple(
                    replace(epoch, records=tuple(row for row in epoch.records if row.topic in wanted))
                    for epoch in epochs
                ),
            )
    for number, epoch in enumerate(epochs):
        yield spec, epochs[:number] + epochs[number + 1 :]
        for size in (8, 1):
            for start in range(0, len(epoch.records), size):
                kept = epoch.records[:start] + epoch.records[start + size :]
                yield spec, (*epochs[:number], replace(epoch, records=kept), *epochs[number + 1 :])


def difference(one_name: str, one: Results, other_name: str, other: Results) -> str | None:
    """Where two runs differ, None if they do not."""
    lines = []
    for field in fields(Results):
        left: dict[Any, Any] = getattr(one, field.name)
        right: dict[Any, Any] = getattr(other, field.name)
        for place in sorted(left.keys() | right.keys()):
            if left.get(place) != right.get(place):
                lines.append(f"differing {field.name} of {place}:")
                lines += [f"  {one_name}: {left.get(place)}", f"  {other_name}: {right.get(place)}"]
    return "\n".join(lines) or None
