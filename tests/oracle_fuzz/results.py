"""What a run shows, and where two runs differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

Row = list[Any]
Outputs = dict[str, list[Row]]
"""Key, value, timestamp and headers by topic; key and value by `peek`."""


@dataclass(frozen=True, slots=True)
class Results:
    """All that can be seen of a run."""

    refused: str | None = None
    """Why the topology was not accepted."""
    topology: str = ""
    actions: list[Outputs] = field(default_factory=list)
    """What came of each action."""
    error: str | None = None
    """What ended the run behind the last of `actions`."""
    stores: dict[str, list[Row]] = field(default_factory=dict)

    def in_one(self) -> Results:
        """The same as if all actions had been one: for runs that take many records at once."""
        together: Outputs = {}
        for outputs in self.actions:
            for topic, rows in outputs.items():
                together.setdefault(topic, []).extend(rows)
        return replace(self, actions=[together])


def difference(ours: Results, kafkas: Results) -> str | None:
    """Where the runs differ first, None if they do not."""
    return "\n".join(_differences(ours, kafkas)) or None


def _differences(ours: Results, kafkas: Results) -> Iterator[str]:
    if (ours.refused is None) != (kafkas.refused is None):
        yield from _sides("refused", ours.refused, kafkas.refused)
        return
    if ours.topology != kafkas.topology:
        yield from _sides("topologies", "\n" + ours.topology, "\n" + kafkas.topology)
        return
    for number, (one, other) in enumerate(zip(ours.actions, kafkas.actions, strict=False)):
        for topic in sorted(one.keys() | other.keys()):
            if one.get(topic, []) != other.get(topic, []):
                yield from _sides(
                    f"{topic} after action {number}", _lines(one.get(topic, [])), _lines(other.get(topic, []))
                )
        if one != other:
            return
    if (ours.error is None) != (kafkas.error is None) or len(ours.actions) != len(kafkas.actions):
        where = f"after {len(ours.actions)} and {len(kafkas.actions)} actions"
        yield from _sides(f"errors {where}", ours.error, kafkas.error)
        return
    for name in sorted(ours.stores.keys() | kafkas.stores.keys()):
        one_store, other_store = ours.stores.get(name), kafkas.stores.get(name)
        if one_store != other_store:
            yield from _sides(f"store {name}", _lines(one_store), _lines(other_store))


def _sides(what: str, ours: Any, kafkas: Any) -> Iterator[str]:
    yield f"{what} differ:"
    yield f"  ours:  {ours}"
    yield f"  Kafka: {kafkas}"


def _lines(rows: list[Row] | None) -> str:
    if rows is None:
        return "none"
    return "".join(f"\n    {json.dumps(row)}" for row in rows) or "nothing"
