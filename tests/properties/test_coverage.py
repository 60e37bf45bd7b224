"""Do the fixed seeds try everything? And do their topologies really process something?"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product

from tests.properties.conftest import FIRST_SEED, TOPOLOGIES
from tests.properties.coverage import OPERATORS, features_of, happenings
from tests.properties.generate import random_spec
from tests.properties.inputs import random_epochs

SEEDS = range(FIRST_SEED, FIRST_SEED + TOPOLOGIES)

YES_AND_NO = (True, False)
WITH_KEY = (
    *("MapValues", "FlatMapValues", "TableMapValues"),
    *("StreamJoin", "StreamTableJoin", "GlobalTableJoin", "TableJoin"),
)
JOINS = ("join", "left_join", "outer_join")
TABLES = (
    *("Aggregate", "Cogroup", "Table", "ToTable"),
    *("TableAggregate", "TableFilter", "TableMapValues", "TransformValues", "TableJoin"),
)
CUTS = ("time", "session", "sliding", "unlimited")
PUNCTUATORS = product(("stream", "wall"), ("tick", "dump", "count"))
WANTED = {
    *(f"{number} partitions" for number in (1, 2, 3)),
    *(f"{kind} serdes" for kind in ("explicit", "automatic")),
    *(f"on poison {verdict}" for verdict in ("skip", "dead letter")),
    *(f"Aggregate: how {how}" for how in ("count", "sum", "min", "max", "aggregate", "reduce")),
    "Aggregate: in place",
    *(f"WindowedAggregate: {kind} windows, caching {flag}" for kind, flag in product(CUTS, YES_AND_NO)),
    *(f"WindowedAggregate: {kind} windows on close" for kind in ("time", "sliding", "session")),
    *(f"WindowedAggregate: how {how}" for how in ("count", "sum", "min", "max", "aggregate", "reduce")),
    *(f"WindowedCogroup: {kind} windows, caching {flag}" for kind, flag in product(CUTS[:2], YES_AND_NO)),
    *(f"{op}: {kind}" for op, kind in product(("StreamJoin", "TableJoin"), JOINS)),
    *(f"{op}: {kind}" for op, kind in product(("StreamTableJoin", "GlobalTableJoin"), JOINS[:2])),
    *(f"StreamTableJoin: {kind} with grace" for kind in JOINS[:2]),
    "a join with itself",
    *(f"TableAggregate: how {how}" for how in ("count", "aggregate", "reduce")),
    *(f"Look: how {how}" for how in ("peek", "foreach", "print")),
    *(f"{op}: with_key {flag}" for op, flag in product(WITH_KEY, YES_AND_NO)),
    *(f"{op}: negated {flag}" for op, flag in product(("Filter", "TableFilter"), YES_AND_NO)),
    *(f"{op}: named {flag}" for op, flag in product(("Group", "TableGroup"), YES_AND_NO)),
    *(f"{op}: key {given}" for op, given in product(("Group", "ToStream"), ("given", "not given"))),
    *(
        f"{table}: store named {named}, caching {caching}"
        for table, named, caching in product(TABLES, YES_AND_NO, YES_AND_NO)
    ),
    *(f"GlobalTable: own_processor {flag}" for flag in YES_AND_NO),
    *(f"Split: default {flag}" for flag in YES_AND_NO),
    *(f"Process: fixed_key {flag}" for flag in YES_AND_NO),
    *(f"Repartition: {setting} given" for setting in ("partitions", "partitioner")),
    "Source: 2 topics",
    "Source: by_pattern True",
    "To: 3 topics",
    *(
        f"step {step}"
        for step in ("UseStore", "ReadTable", "ReadGlobal", "CancelPunctuator", "RequestCommit")
    ),
    *(f"step {how}" for how in ("count", "remember", "remove", "scan", "range", "if absent")),
    *(f"step Forward: show {show}" for show in ("value", "answer", "metadata", "stream time", "headers")),
    *(f"step Forward: {what}" for what in ("to one child", "to all", "new key", "later", "more headers")),
    *(f"TransformValues: show {show}" for show in ("answer", "metadata", "stream time", "headers")),
    *(f"punctuator: {clock} {action}" for clock, action in PUNCTUATORS),
    "punctuator: once True",
    "punctuator: to one child",
    "two sinks to one topic",
    "a diamond",
    "a store that is shared",
    "a topic read twice",
    "two aggregations of one named group",
    "aggregations of aggregations of aggregations",
}
NOT_A_NODE = {"Source", "Branch", "Repartition"}
HAPPENING = {
    *(f"{kind.__name__} got records" for kind in OPERATORS if kind.__name__ not in NOT_A_NODE),
    "some output",
    "flushed",
    "came and went",
    "poisoned",
    "stream punctuator",
    "wall punctuator",
    "late",
    "joined after waiting",
    "left without a partner",
    "too late to wait",
    "looked up",
    "found no row",
    "joined after its grace",
    "joined rows of tables",
    "found no row in the other table",
}


@cache
def happened() -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        spec = random_spec(seed)
        counts.update(happenings(spec, random_epochs(spec)))
    return counts


def test_every_operator_and_feature_is_tried() -> None:
    tried = set().union(*(features_of(random_spec(seed)) for seed in SEEDS))
    assert {kind.__name__ for kind in OPERATORS} - tried == set()
    assert WANTED - tried == set()


def test_every_kind_of_operator_gets_records_and_everything_happens() -> None:
    assert HAPPENING - set(happened()) == set()


def test_almost_every_topology_has_output() -> None:
    assert happened()["some output"] > 0.95 * TOPOLOGIES


def test_a_seed_always_means_the_same_topology_and_input() -> None:
    assert random_spec(7) == random_spec(7)
    assert random_epochs(random_spec(7)) == random_epochs(random_spec(7))
