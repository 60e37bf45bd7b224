"""The ways in which a case is played: with caches or without, in rows or columns, one by one or at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.oracle_fuzz.build import build, build_in_columns, has_columns
from tests.oracle_fuzz.known import agreed, deletions_at_the_latest_time, is_fault, is_fault_of_grace, is_open
from tests.oracle_fuzz.ours import play, play_at_once
from tests.oracle_fuzz.results import Results, difference
from tests.oracle_fuzz.spec import Case

Play = Callable[[Case], Results]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of playing a case on our side."""

    name: str
    play: Play
    caches: bool = True
    at_once: bool = False
    columns: bool = False


VARIANTS = (
    Variant("rows", lambda case: play(case, build)),
    Variant("columns", lambda case: play(case, build_in_columns), columns=True),
    Variant("new tasks after each commit", lambda case: play(case, build, fresh_tasks=True)),
    Variant("rows, uncached", lambda case: play(case, build), caches=False),
    Variant("columns, uncached", lambda case: play(case, build_in_columns), caches=False, columns=True),
    Variant("rows at once", lambda case: play_at_once(case, build), caches=False, at_once=True),
    Variant(
        "rows at once, as if many",
        lambda case: play_at_once(case, build, as_if_many=True),
        caches=False,
        at_once=True,
    ),
    Variant(
        "columns at once, as if many",
        lambda case: play_at_once(case, build_in_columns, as_if_many=True),
        caches=False,
        at_once=True,
        columns=True,
    ),
)
BY_NAME = {variant.name: variant for variant in VARIANTS}


def played(case: Case, variant: Variant) -> Case:
    """The case as a variant plays it."""
    case = agreed(case if variant.caches else case.uncached())
    return case.as_tasks_take_it() if variant.at_once else case


def differs(case: Case, variant: Variant, kafka: Play) -> str | None:
    """What differs if a case is played in one way, None if nothing does.

    Raises `RuntimeError` if Kafka's side can't play the case.
    """
    if is_open(case) or (variant.columns and not has_columns(case)):
        return None
    case = played(case, variant)
    expected = kafka(case)
    if is_fault(expected.refused) or is_fault_of_grace(case, expected.error):
        return None
    if variant.at_once:
        if expected.error is not None or case.has_caches() or not _keeps_its_order(case):
            return None
        expected = expected.in_one()
    with deletions_at_the_latest_time() as noted:
        try:
            ours = variant.play(case)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no refusal, and Kafka did not do it
            return f"ours fails:\n  {type(error).__name__}: {error}"
    return None if noted else difference(ours, expected)


def _keeps_its_order(case: Case) -> bool:
    """Whether a task that takes all records at once has them in the order in which Kafka has them one by one.

    What comes from topics of the log is played in that order (see `Case.as_tasks_take_it`). But where several
    repartitions meet, or a repartition and a topic, what is sent in an epoch is put into another order. And
    whether nothing happens between the records.
    """
    if any(step.get("every") is not None for step in case.steps):
        return False
    try:
        plan = build(case, lambda *_: None).plan()
    except Exception:  # noqa: BLE001 - other variants tell of it
        return False
    read = [[topic for source in sub.sources for topic in source.topics] for sub in plan.subtopologies]
    return all(len(topics) == 1 or not plan.repartition_topics.keys() & set(topics) for topics in read)
