"""The fuzzer without Kafka: cases, their interpretation, and the search for smaller ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.oracle_fuzz.build import Building, build
from tests.oracle_fuzz.generate import random_case
from tests.oracle_fuzz.known import agreed, is_fault
from tests.oracle_fuzz.ours import play
from tests.oracle_fuzz.results import Results, difference
from tests.oracle_fuzz.shrink import candidates, shrink
from tests.oracle_fuzz.spec import Action, Case, Step, described
from tests.oracle_fuzz.variants import VARIANTS, differs

SEEDS = range(150)
HELPERS = {
    "build",
    "parent",
    "sides",
    "predicate",
    "new_key",
    "types",
    "grouped",
    "store",
    "folds",
    "numbers",
    "windows",
    "joiner",
}
"""Methods that make no operator."""


def in_rows(case: Case) -> Results:
    return play(case, build)


def counting(**more: object) -> Case:
    store = {"named": True, "cached": True, "retention": None, "versioned": None}
    fold = {"kind": "sum", "init": 0, "a": 1, "null": -1}
    types = ["string", "int64"]
    steps: list[Step] = [
        {"id": 0, "op": "stream", "of": [], "topic": "in0", "types": types},
        {"id": 1, "op": "peek", "of": [0], "from": types},
        {"id": 2, "op": "group_by_key", "of": [1], "types": types, "named": False, "from": types},
        {
            "id": 3,
            "op": "aggregation",
            "of": [2],
            "how": "count",
            "fold": fold,
            "merger": fold,
            "number": None,
            "windows": None,
            "emit": "update",
            "store": store,
            "types": types,
            "from": types,
            **more,
        },
        {"id": 4, "op": "to_stream", "of": [3], "key": None},
        {"id": 5, "op": "to", "of": [4], "types": types},
    ]
    values = [1, 2, None, 3, 4]
    actions: list[Action] = [
        {"topic": "in0", "key": "k1", "value": value, "at": time, "headers": []}
        for time, value in enumerate(values)
    ]
    return Case(tuple(steps), tuple(actions))


def test_a_seed_always_gives_the_same_case() -> None:
    assert [random_case(seed) for seed in range(50)] == [random_case(seed) for seed in range(50)]


def test_a_case_survives_json() -> None:
    cases = [random_case(seed) for seed in range(50)]
    assert [Case.from_json(case.to_json()) for case in cases] == cases


def test_all_operators_are_drawn() -> None:
    drawn = set().union(*(random_case(seed).ops() for seed in SEEDS))
    operators = {name for name in vars(Building) if name in drawn}
    defined = {name for name in vars(Building) if not name.startswith("_")} - HELPERS
    assert operators == defined == drawn


def test_inputs_are_late_equal_empty_and_far_apart() -> None:
    cases = [random_case(seed) for seed in SEEDS]
    records = [[action for action in case.actions if "topic" in action] for case in cases]
    times = [[record["at"] for record in some] for some in records]
    pairs = [pair for some in times for pair in pairwise(some)]
    assert any(later < earlier for earlier, later in pairs)
    assert any(later == earlier for earlier, later in pairs)
    assert any(later - earlier > 1_000 for earlier, later in pairs)
    assert {0, 1_000_000} <= {some[0] for some in times if some}
    assert any(record["key"] is None for some in records for record in some)
    assert any(record["value"] is None for some in records for record in some)
    assert any("clock" in action for case in cases for action in case.actions)


def test_the_interpreter_counts() -> None:
    results = in_rows(counting())
    assert results.actions == [
        {"peek1": [["k1", 1]], "out5": [["k1", 1, 0, []]]},
        {"peek1": [["k1", 2]], "out5": [["k1", 2, 1, []]]},
        {"peek1": [["k1", None]]},
        {"peek1": [["k1", 3]], "out5": [["k1", 3, 3, []]]},
        {"peek1": [["k1", 4]], "out5": [["k1", 4, 4, []]]},
    ]
    assert results.stores == {"s3": [["k1", 4, 4]]}


@pytest.mark.parametrize("seed", range(8))
def test_all_variants_agree_with_rows(seed: int) -> None:
    case = random_case(seed)
    assert [differs(case, variant, in_rows) for variant in VARIANTS] == [None] * len(VARIANTS)


def test_differences_are_found() -> None:
    one = in_rows(counting())
    for other, what in (
        (replace(one, refused="no"), "refused"),
        (replace(one, topology="other"), "topologies"),
        (replace(one, actions=[*one.actions[:-1], {}]), "out5 after action 4"),
        (replace(one, error="no"), "errors after"),
        (replace(one, stores={}), "store s3"),
    ):
        found = difference(one, other)
        assert found is not None
        assert found.startswith(what)
    assert difference(one, one) is None


def test_the_smallest_case_is_found() -> None:
    def is_wrong(case: Case) -> bool:
        results = in_rows(case)
        return any(row[1] == 2 for outputs in results.actions for row in outputs.get("out5", []))

    small = shrink(counting(), is_wrong)
    assert [step["op"] for step in small.steps] == [
        "stream",
        "group_by_key",
        "aggregation",
        "to_stream",
        "to",
    ]
    assert len(small.actions) == 2


def test_shrinking_ends() -> None:
    for seed in range(20):
        case = shrink(random_case(seed), lambda case: bool(case.steps))
        assert len(case.steps) <= 2
        assert case.actions == ()
        assert not any(smaller.steps for smaller in candidates(case))


def test_a_case_keeps_clear_of_what_differs_on_purpose() -> None:
    store = {"named": False, "cached": False, "retention": None, "versioned": None}
    windows = {"kind": "session", "size": 5, "grace": 0}
    assert agreed(counting(store=store, windows=windows)).step(3)["store"] == store
    cached = {**store, "cached": True}
    assert agreed(counting(store=cached, windows=windows)).step(3)["store"]["retention"] == 86_400_000
    assert is_fault("TopologyException: Processor g2-repartition-filter is already added.")
    assert not is_fault("TopologyException: Topic in0 has already been registered")


def test_records_stand_in_the_order_in_which_a_task_takes_them() -> None:
    times = [("in0", 5), ("in1", 3), ("in0", 2), ("in2", 9), ("in1", 5), ("in0", 7)]
    steps: list[Step] = [
        {"id": 0, "op": "stream", "of": [], "topic": "in0"},
        {"id": 1, "op": "stream", "of": [], "topic": "in1"},
        {"id": 2, "op": "global_table", "of": [], "topic": "in2"},
    ]
    actions: list[Action] = [{"topic": topic, "at": at} for topic, at in times]
    case = Case(tuple(steps), (*actions, {"clock": 5}, *actions[:2])).as_tasks_take_it()
    assert [(action["topic"], action["at"]) for action in case.actions if "topic" in action] == [
        *[("in2", 9), ("in1", 3), ("in0", 5), ("in0", 2), ("in1", 5), ("in0", 7)],
        *[("in1", 3), ("in0", 5)],
    ]


def test_a_case_is_described_line_by_line() -> None:
    lines = described(counting()).splitlines()
    assert lines[1] == '  0: stream {"topic": "in0", "types": ["string", "int64"]}'
    assert lines[-1] == '  pipe in0 "k1" 4 @4'
