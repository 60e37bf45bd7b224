"""The assignment as one pure function: from tasks, live slots and what was before, to what is now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from millstream.engine.assignment.active import place_actives
from millstream.engine.assignment.draft import Draft, Inputs
from millstream.engine.assignment.model import (
    NO_ASSIGNMENT,
    Assignment,
    AssignmentRules,
    Change,
    Lags,
    Replica,
    Role,
    SlotPlace,
    TaskPlacement,
    TaskToPlace,
)
from millstream.engine.assignment.standbys import place_standbys

__all__ = ["assign"]


def assign(
    tasks: Sequence[TaskToPlace],
    slots: Iterable[SlotPlace],
    lags: Lags | None = None,
    before: Assignment = NO_ASSIGNMENT,
    rules: AssignmentRules | None = None,
    avoided: Mapping[str, str] | None = None,
) -> Assignment:
    r"""Where each task runs, and who keeps copies of its state. There must be a slot.

    `avoided` names for some tasks an instance where they can't run now: only if there is no other.

    >>> tasks = [TaskToPlace(f"0_{number}", records=10) for number in range(2)]
    >>> here, there = SlotPlace(0, "a", "one"), SlotPlace(1, "b", "two")
    >>> first = assign(tasks, [here, there], rules=(rules := AssignmentRules(standbys=1)))
    >>> [(task, one.active.host, one.standbys[0].host) for task, one in first.tasks.items()]
    [('0_0', 'one', 'two'), ('0_1', 'two', 'one')]
    >>> lags = {"0_0": {"a": 0, "b": 0}, "0_1": {"a": 3, "b": 0}}
    >>> second = assign(tasks, [here], lags, first, rules)
    >>> print(*second.changes, sep="\n")
    0_0 standby: two -> -
    0_1 active: two -> one (its copy is there, 3 records behind)
    0_1 standby: one -> -
    """
    rules = rules if rules is not None else AssignmentRules()
    inputs = Inputs.of(tasks, slots, lags or {}, before, rules, avoided or {})
    draft = Draft(inputs, warmups_left=rules.max_warmups)
    place_actives(draft)
    place_standbys(draft)
    placed = {
        task.task_id: TaskPlacement(
            draft.active[task.task_id],
            tuple(sorted(draft.standbys.get(task.task_id, ()), key=_slot)),
            tuple(sorted(draft.warmups.get(task.task_id, ()), key=_slot)),
        )
        for task in tasks
    }
    return Assignment(placed, tuple(_changes(before, placed)))


def _slot(replica: Replica) -> int:
    return replica.slot


def _changes(before: Assignment, after: dict[str, TaskPlacement]) -> Iterator[Change]:
    for task_id, now in after.items():
        old = before.tasks.get(task_id)
        if old is None:
            yield from (Change(task_id, role, None, one) for role, one in now.replicas())
            continue
        if old == now:
            continue
        if old.active != now.active:
            yield Change(task_id, Role.ACTIVE, old.active, now.active)
        for role, was, are in (
            (Role.STANDBY, old.standbys, now.standbys),
            (Role.WARM_UP, old.warmups, now.warmups),
        ):
            gone = [one for one in was if one not in are]
            new = [one for one in are if one not in was]
            for at in range(max(len(gone), len(new))):
                yield Change(task_id, role, _at(gone, at), _at(new, at))


def _at(replicas: Sequence[Replica], index: int) -> Replica | None:
    return replicas[index] if index < len(replicas) else None
