"""`split()`: the first branch whose predicate holds gets the row."""

from __future__ import annotations

from tests.processors.kit import batch_of, fails_on, opened, pairs_of

from millstream.processors.branch import Branch

ROWS = batch_of(("a", 1), ("b", 6), ("c", 12), ("d", 1))


def small(key: str, value: int) -> bool:
    return value < 10


def tiny(key: str, value: int) -> bool:
    return value < 5


def test_the_first_predicate_that_holds_decides() -> None:
    operator = Branch((small, tiny), ("small", "tiny", "rest"))
    opened(operator)
    out = operator.process(ROWS)
    assert {child: pairs_of(rows) for child, rows in out.items()} == {
        "small": [("a", 1), ("b", 6), ("d", 1)],
        "rest": [("c", 12)],
    }


def test_without_a_default_branch_other_rows_are_dropped_and_counted() -> None:
    operator = Branch((tiny,), ("tiny",))
    notes = opened(operator)
    out = operator.process(ROWS)
    assert list(out) == ["tiny"]
    assert notes.drops == 2


def test_later_predicates_are_not_asked_once_one_holds() -> None:
    operator = Branch((small, fails_on("a")), ("small", "other"))
    notes = opened(operator)
    operator.process(batch_of(("a", 1)))
    assert notes.failures == []


def test_a_row_whose_predicate_fails_goes_to_no_branch() -> None:
    operator = Branch((fails_on(6, result=True),), ("all", "rest"))
    notes = opened(operator)
    out = operator.process(ROWS)
    assert pairs_of(out["all"]) == [("a", 1), ("c", 12), ("d", 1)]
    assert notes.messages == [(1, "can't do 6")]


def test_a_split_without_branches_drops_everything() -> None:
    operator = Branch((), ())
    notes = opened(operator)
    assert operator.process(ROWS) == {}
    assert notes.drops == 4
