"""Where Millstream differs from Kafka on purpose, and how a case keeps clear of it.

`docs/kafka_streams_map.md` explains each of them to users. A case goes through `agreed` before it is played,
on both sides, so a difference that is found is never one of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from tests.oracle_fuzz.build import build
from tests.oracle_fuzz.spec import Case, Step

from millstream.errors import MillstreamError
from millstream.state.stores.versioned import VersionedKeyValueStore
from millstream.topology.plan import Plan

_FIRST_HAS_NO_OLD_VALUE = {"aggregation", "cogroup"}
_FAULTS = (
    "Found a null keyChangingChild node",  # two repartitions behind the same operator, with optimisation
    "Processor .*-repartition-filter is already added",  # one named group in a cogroup and in something else
    "KTable source state store must implement either",  # a windowed cogroup in a join
    "only supported for non-versioned KTables",  # a windowed cogroup is taken for versioned like its source
)
_DAY_MS = 86_400_000
_TABLE_OPERATORS = {"table_filter", "table_map_values", "suppress"}
_MAKES_VALUES = {"table_map_values", "table_join", "foreign_key_join"}
_NEED_SERDES = {"suppress", "foreign_key_join"}
_KEEPS_SERDES = {"table_filter", "suppress"}
_OUTER = {"left_join", "outer_join"}
_NEED_OLD_VALUES = {"table_group_by", "table_filter", "table_join", "foreign_key_join"}


def agreed(case: Case) -> Case:
    """The same case without what Kafka and Millstream see differently."""
    # Kafka 4.1.0 forgets that a processor changes values: it puts a repartition in front (KAFKA-19668).
    optimization = "none" if "process" in case.ops() else case.optimization
    steps = _with_caches_in_front_of_groups(case.steps)
    steps = _without_serdes_behind_versions(_with_serdes_where_kafka_needs_them(steps))
    return replace(
        case,
        steps=tuple(_with_retention_behind_a_cache(step) for step in steps),
        optimization=optimization,
    )


def _with_serdes_where_kafka_needs_them(steps: list[Step]) -> list[Step]:
    """What has no serde goes through `serdes.auto`. Kafka would ask for a default serde."""
    wanted: set[int] = set()
    for step in reversed(steps):
        is_wanted = step["id"] in wanted
        if step["op"] in _NEED_SERDES or (is_wanted and step["op"] in _KEEPS_SERDES):
            wanted.update(step["of"])
        elif step["op"] != "to_stream":  # who looks a join up, or asks for old values, makes it have a store
            wanted.update(parent for parent in step["of"] if _is_foreign_key_join(steps, parent))
    given = {"named": True, "cached": True, "retention": None, "versioned": None}
    return [
        {**step, "store": given}
        if step["id"] in wanted and step["op"] in _MAKES_VALUES and step["store"] is None
        else step
        for step in steps
    ]


def _is_foreign_key_join(steps: list[Step], number: int) -> bool:
    return any(step["id"] == number and step["op"] == "foreign_key_join" for step in steps)


def _without_serdes_behind_versions(steps: list[Step]) -> list[Step]:
    """What is computed from a versioned table and has no store is versioned, too.

    In Kafka not if it was given serdes: a filter of it then says nothing of rows that were not there.
    """
    versioned: set[int] = set()
    made = []
    for step in steps:
        store = step.get("store")
        if store is not None and store["versioned"] is not None:
            versioned.add(step["id"])
        elif step["op"] in _TABLE_OPERATORS and versioned.intersection(step["of"]):
            if store is not None and not store["named"]:
                step = {**step, "store": None}  # noqa: PLW2901 - the step as it is played
            if step["store"] is None:
                versioned.add(step["id"])
        made.append(step)
    return made


def _with_retention_behind_a_cache(step: Step) -> Step:
    """Windows past their retention are gone, with a cache or without.

    Kafka shows and merges them for as long as they happen to be in its cache.
    """
    if step.get("windows") is None or step["windows"]["kind"] == "unlimited" or not step["store"]["cached"]:
        return step
    return {**step, "store": {**step["store"], "retention": _DAY_MS}}


def _with_caches_in_front_of_groups(steps: tuple[Step, ...]) -> list[Step]:
    """The first update of an uncached aggregation has no old value.

    In Kafka it has the initializer's value, which nobody ever got: a `group_by` of the table subtracts it, a
    `filter` or a join deletes it. And a session of one time that is updated has the old value that was sent:
    in Kafka none. With a cache both agree.

    The old value of a join with a store is what the store had. In Kafka it is what the joiner makes of the
    old value and the other table as it is now: if one record changes both, that was never sent.
    """
    cached: set[int] = set()
    wanted: set[int] = set()
    origins = _origins_of(steps)
    for step in reversed(steps):
        is_wanted = step["id"] in wanted
        if step["op"] in _NEED_OLD_VALUES or (is_wanted and step["op"] in _TABLE_OPERATORS):
            wanted.update(step["of"])
        if is_wanted and step["op"] in _FIRST_HAS_NO_OLD_VALUE:
            cached.add(step["id"])
        if is_wanted and step["op"] == "table_join" and step["store"] is not None:
            left, right = (origins[side] for side in step["of"])
            if left & right:
                cached.add(step["id"])
    return [_cached(step) if step["id"] in cached else step for step in steps]


def _origins_of(steps: tuple[Step, ...]) -> dict[int, frozenset[int]]:
    """For each step the sources that its records may come from."""
    found: dict[int, frozenset[int]] = {}
    for step in steps:
        found[step["id"]] = frozenset([step["id"]]).union(*(found[parent] for parent in step["of"]))
        if step["of"]:
            found[step["id"]] -= {step["id"]}
    return found


def _cached(step: Step) -> Step:
    return {**step, "store": {**step["store"], "cached": True, "versioned": None}}


def is_fault(refusal: str | None) -> bool:
    """Whether Kafka 4.1.0 refuses a topology by a fault of its own."""
    return refusal is not None and any(re.search(fault, refusal) for fault in _FAULTS)


def is_fault_of_grace(case: Case, error: str | None) -> bool:
    """Whether Kafka 4.1.0 fails because a left join that lets records wait gets one without a key."""
    waits = any(
        step["op"] == "stream_table_join" and step["kind"] == "left_join" and step["grace"] is not None
        for step in case.steps
    )
    return waits and error is not None and "NullPointerException" in error


def is_open(case: Case) -> bool:
    """Whether there is nothing that both have to agree on: such a case is not played."""
    return _filters_what_was_suppressed(case) or _has_ties_or_cycles(case.to_json())


def _filters_what_was_suppressed(case: Case) -> bool:
    """The old value of what leaves `suppress` is what left before.

    In Kafka it is one that may never have left: a `group_by` subtracts it, a `filter` or an outer join of
    tables deletes it, a foreign-key join takes it for the row whose subscription ends.
    """
    suppressed: set[int] = set()
    for step in case.steps:
        if step["op"] == "suppress":
            suppressed.add(step["id"])
        elif suppressed.intersection(step["of"]):
            if step["op"] in {"table_filter", "table_group_by"} or step.get("kind") in _OUTER:
                return True
            if step["op"] == "foreign_key_join" and step["of"][0] in suppressed:
                return True
            if step["op"] in _MAKES_VALUES:
                suppressed.add(step["id"])
    return False


@contextmanager
def deletions_at_the_latest_time() -> Iterator[list[str]]:
    """Notes the versioned stores in which a key is deleted at the very time of its latest version.

    Such a deletion is remembered. Kafka forgets it: an older value that comes late becomes the latest one.
    """
    noted: list[str] = []
    latest: dict[tuple[str, bytes], int] = {}
    write = VersionedKeyValueStore.put_versions

    def noting(
        store: Any, rows: Sequence[bytes], data: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> list[int]:
        for row, value, timestamp in zip(rows, data, timestamps, strict=True):
            before = latest.get((store.name, row), -1)
            if value is None and timestamp == before:
                noted.append(store.name)
            latest[store.name, row] = max(before, timestamp)
        return write(store, rows, data, timestamps)

    with patch.object(VersionedKeyValueStore, "put_versions", noting):
        yield noted


@lru_cache(maxsize=8)
def _has_ties_or_cycles(text: str) -> bool:
    """Whether one record can lead to records in two repartitions that one task reads.

    They have the same timestamp, so nothing says which is first. Kafka's driver begins with the one that was
    written first; here a task always begins with the same one.

    Or whether operators in front of a repartition and behind it need the same store: Kafka's task goes back
    and forth between them, an epoch goes through its levels once, so it is refused.
    """
    try:
        plan = build(Case.from_json(text), lambda *_: None).undivided_plan()
    except MillstreamError as error:
        return "has a cycle through the repartition" in str(error)  # other checks tell of the rest
    for sub in plan.subtopologies:
        origins = [
            _origins(plan, topic, frozenset())
            for source in sub.sources
            for topic in source.topics
            if topic in plan.repartition_topics
        ]
        if any(one & other for place, one in enumerate(origins) for other in origins[:place]):
            return True
    return False


def _origins(plan: Plan, topic: str, behind: frozenset[str]) -> frozenset[str]:
    """The topics of the log that records of a topic come from."""
    if topic not in plan.repartition_topics:
        return frozenset([topic])
    if topic in behind:
        return frozenset()
    fronts = {
        front
        for sub in plan.subtopologies
        if any(sink.topic == topic for sink in sub.sinks)
        for source in sub.sources
        for front in source.topics
    }
    return frozenset().union(*(_origins(plan, front, behind | {topic}) for front in fronts))
