"""Whether the state of one program fits another: the plan in the manifest against the plan to run.

State is found by its store's name, in the sub-topology of a number. So stateless operators and stores may
be added, but a store may not vanish, become another kind, follow another topic, or move to another
sub-topology: its tasks, its keys and its offsets would not be what they were. Nor may its keys or values get
a serde that takes their bytes for something else, nor may its windows become others
(:mod:`millstream.commit.type_changes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.commit.manifest import Manifest
from millstream.commit.type_changes import incompatible_types, other_windows, store_changes
from millstream.errors import MillstreamError
from millstream.topology.plan import Plan
from millstream.topology.stored_types import KeyValueTypes, StoredTypes


class PlanChangedError(MillstreamError):
    """The program was changed in a way that the committed state does not fit."""


def check_plan(application_id: str, plan: Plan, types: StoredTypes, head: Manifest | None) -> None:
    """Refuse a program that can't go on where the head has ended."""
    if head is None:
        return
    changes = [] if head.fingerprint == plan.fingerprint else incompatible_changes(head.plan, plan.summary)
    if changes:
        raise PlanChangedError(
            f"Application {application_id!r} has state that does not fit this program. "
            f"Since epoch {head.epoch} these have changed:\n"
            + "".join(f"  {change}\n" for change in changes)
            + "Nothing was touched. Likely cause: operators were removed or put in front of unnamed "
            "ones, whose numbered names have shifted, or build(optimization=...) was changed. Remedy: "
            "give stores the names they had (store=...), run the program as it was, or start this one "
            "under another app_id."
        )
    changes = incompatible_types(head, types)
    if changes:
        raise PlanChangedError(_types_changed(application_id, head, changes))
    _check_windows(application_id, head, types)


def check_store(application_id: str, store: str, types: KeyValueTypes, head: Manifest) -> None:
    """Refuse to read a store by serdes that it was not written with, or by other windows."""
    changes = store_changes(head, store, types)
    if changes:
        raise PlanChangedError(_types_changed(application_id, head, changes))
    _check_windows(application_id, head, StoredTypes({store: types}))


def _check_windows(application_id: str, head: Manifest, types: StoredTypes) -> None:
    changes = other_windows(head, types)
    if changes:
        raise PlanChangedError(
            f"Application {application_id!r} has state of other windows than this program has. "
            f"Since epoch {head.epoch} these have changed:\n"
            + "".join(f"  {change}\n" for change in changes)
            + "Nothing was touched: rows of the old windows would be taken for rows of the new ones, and "
            "windows that are open now would never be complete. Likely cause: other windows, or another "
            "grace of windows that are emitted on close or suppressed until then, for a store of the same "
            "name. Remedy: go back to the old windows; or leave the old store in the program and give the "
            "new one another name (store=...); or reset the application: start it under another app_id, "
            "without state."
        )


def _types_changed(application_id: str, head: Manifest, changes: list[str]) -> str:
    return (
        f"Application {application_id!r} has state that was written with other serdes than this program has. "
        f"Since epoch {head.epoch} these have changed:\n"
        + "".join(f"  {change}\n" for change in changes)
        + "Nothing was touched: the bytes carry no type, and would be read as something that nobody wrote. "
        "Likely cause: another serde (key=, value=), schema or aggregation for a store of the same name. "
        "Remedy: go back to the old serde; or leave the old store in the program and give the new one "
        "another name (store=...); or reset the application: start it under another app_id, without state."
    )


def incompatible_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What makes committed state unusable, a line each; nothing if the new program may go on.

    >>> def plan(**stores):
    ...     rows = [{"name": name, "kind": "key-value", "logging": True} for name in stores.get("names", ())]
    ...     return {"subtopologies": [{"number": 0, "nodes": [], "stores": rows}], "repartition_topics": {}}
    >>> incompatible_changes(plan(names=["counts"]), plan(names=["counts", "sums"]))
    []
    >>> incompatible_changes(plan(names=["counts"]), plan(names=["sums"]))
    ["store 'counts' of sub-topology 0 is gone (new: 'sums')"]
    """
    old, new = _stores(before), _stores(after)
    changes = []
    for name, (number, kind, log) in sorted(old.items()):
        if name not in new:
            fresh = ", ".join(repr(other) for other in sorted(new.keys() - old.keys()))
            hint = f" (new: {fresh})" if fresh else ""
            changes.append(f"store {name!r} of sub-topology {number} is gone{hint}")
            continue
        now_number, now_kind, now_log = new[name]
        if now_number != number:
            changes.append(f"store {name!r} was in sub-topology {number} and is in {now_number} now")
        if now_kind != kind:
            changes.append(f"store {name!r} was a {kind} store and is a {now_kind} store now")
        if now_log != log:
            changes.append(f"store {name!r} had {log} and has {now_log} now")
    return changes + _copies(old, after) + _sources(before, after) + _repartitions(before, after)


def _copies(old: Mapping[str, object], after: Mapping[str, Any]) -> list[str]:
    """Copies of stores in later steps (see `topology.steps`) would lack what was written before them."""
    return [
        f"store {original!r} is looked up behind a repartition now, by a copy that would lack its rows"
        for sub in after["subtopologies"]
        for store in sub["stores"]
        if (original := store.get("copy_of")) in old and store["name"] not in old
    ]


def _stores(plan: Mapping[str, Any]) -> dict[str, tuple[int, str, str]]:
    return {
        store["name"]: (sub["number"], store["kind"], _log(store))
        for sub in plan["subtopologies"]
        for store in sub["stores"]
    }


def _sources(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Tasks remember times. Without a store to know them by, they are known by what they read."""
    new = {sub["number"]: _topics(sub) for sub in after["subtopologies"]}
    return [
        f"sub-topology {sub['number']} read {_names(topics)} and reads {_names(now)} now"
        for sub in before["subtopologies"]
        if not sub["stores"] and (topics := _topics(sub)) and (now := new.get(sub["number"]))
        if not topics & now
    ]


def _topics(sub: Mapping[str, Any]) -> set[str]:
    return {topic for node in sub["nodes"] if node["kind"] == "SourceNode" for topic in node["topics"]}


def _names(topics: set[str]) -> str:
    return ", ".join(sorted(topics))


def _repartitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """An explicit number of partitions decides where keys are."""
    new = after["repartition_topics"]
    return [
        f"repartition {topic!r} had {count or 'as many partitions as its input'} and has {new[topic]} now"
        for topic, count in sorted(before["repartition_topics"].items())
        if new.get(topic) and new[topic] != count
    ]


def _log(store: Mapping[str, Any]) -> str:
    if store.get("source_topic") is not None:
        return f"its source topic {store['source_topic']!r} for a changelog"
    return "a changelog" if store["logging"] else "no changelog"
