"""A random case as data that JSON can carry: the steps of a topology, and what is done to it.

A step is a dict: `id` (a number), `op`, `of` (the ids of the steps in front of it) and the parameters of the
operator. `types` names the types of keys and values where a serde is needed. Names of stores, topics and
repartitions are made of the id, so a step that is left out changes no other.

`build.py` makes a Millstream topology of the steps, `Build.java` one of Kafka's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

Step = dict[str, Any]
Action = dict[str, Any]
"""A record for a topic (`topic`, `key`, `value`, `at`, `headers`), or `clock`: so many milliseconds pass."""

INNER_KEY = "string"
STORE_IS_OPTIONAL = {"table_filter", "table_map_values", "table_join"}
"""Tables that are computed from others: without a store, unless they are given one."""


@dataclass(frozen=True, slots=True)
class Case:
    """A topology and what is done to it."""

    steps: tuple[Step, ...]
    actions: tuple[Action, ...]
    optimization: str = "none"

    def to_json(self) -> str:
        """The case in one line."""
        made = {"steps": self.steps, "actions": self.actions, "optimization": self.optimization}
        return json.dumps(made)

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Read what `to_json` wrote."""
        found = json.loads(text)
        return cls(tuple(found["steps"]), tuple(found["actions"]), found["optimization"])

    def step(self, number: int) -> Step:
        """The step with an id."""
        return next(step for step in self.steps if step["id"] == number)

    def ops(self) -> set[str]:
        """The operators that the topology has."""
        return {step["op"] for step in self.steps}

    def uncached(self) -> Case:
        """The same without caches."""
        return replace(self, steps=tuple(_uncached(step) for step in self.steps))

    def has_caches(self) -> bool:
        """Whether a table may hold back updates."""
        stores = [step["store"] for step in self.steps if "store" in _with_a_store(step)]
        return any(store is None or store["cached"] for store in stores)

    def as_tasks_take_it(self) -> Case:
        """The same with the records between two ticks of the clock in the order in which a task has them.

        Global tables are first. Then always the topic whose next record is the oldest.
        """
        actions: list[Action] = []
        records: list[tuple[tuple[bool, int, str], Action]] = []
        latest: dict[str, int] = {}
        shared = {step["topic"] for step in self.steps if step["op"] == "global_table"}
        for action in (*self.actions, None):
            if action is not None and "topic" in action:
                topic = action["topic"]
                latest[topic] = max(latest.get(topic, 0), action["at"])
                records.append(((topic not in shared, latest[topic], topic), action))
                continue
            actions += [record for _, record in sorted(records, key=lambda each: each[0])]
            records, latest = [], {}
            if action is not None:
                actions.append(action)
        return replace(self, actions=tuple(actions))

    def without(self, number: int) -> Case:
        """The same without a step and all that is behind it; records that nobody reads any more are gone."""
        gone = {number}
        kept = []
        for step in self.steps:
            if step["id"] in gone or gone.intersection(step["of"]):
                gone.add(step["id"])
            else:
                kept.append(step)
        return replace(self, steps=tuple(kept)).tidied()

    def tidied(self) -> Case:
        """The same without sources that lead nowhere and records that nobody reads."""
        read = {parent for step in self.steps for parent in step["of"]}
        steps = tuple(step for step in self.steps if step["id"] in read or step["op"] != "stream")
        topics = {step["topic"] for step in steps if "topic" in step}
        actions = tuple(action for action in self.actions if action.get("topic", None) in {None, *topics})
        return replace(self, steps=steps, actions=actions)


def _with_a_store(step: Step) -> Step:
    """The step if it may have a store, else nothing: what is computed from a table has one if asked for."""
    return {} if step["op"] in STORE_IS_OPTIONAL and step["store"] is None else step


def _uncached(step: Step) -> Step:
    if "store" not in _with_a_store(step):
        return step
    store = step["store"] or {"named": False, "retention": None, "versioned": None}
    return {**step, "store": {**store, "cached": False}}


def stores_of(step: Step) -> str | None:
    """The name of a step's store, if the program gave it one."""
    if step["op"] == "global_table":
        return f"s{step['id']}" if step["named"] else None
    store = step.get("store")
    named = store is not None and (store["named"] or store["versioned"] is not None)
    return f"s{step['id']}" if named or step["op"] == "process" else None


def described(case: Case) -> str:
    """The case for people, a line for each step and action."""
    lines = [f"  optimization: {case.optimization}", *_described_steps(case.steps)]
    for action in case.actions:
        if "clock" in action:
            lines.append(f"  clock +{action['clock']}")
        else:
            headers = f" {action['headers']}" if action["headers"] else ""
            pair = f"{json.dumps(action['key'])} {json.dumps(action['value'])}"
            lines.append(f"  pipe {action['topic']} {pair} @{action['at']}{headers}")
    return "\n".join(lines)


def _described_steps(steps: tuple[Step, ...]) -> Iterator[str]:
    for step in steps:
        parents = ", ".join(map(str, step["of"]))
        others = {name: what for name, what in step.items() if name not in {"id", "op", "of"}}
        behind = f" of {parents}" if parents else ""
        yield f"  {step['id']}: {step['op']}{behind} {json.dumps(others)}"
