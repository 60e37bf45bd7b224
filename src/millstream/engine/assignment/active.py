"""Who runs each task.

1. A task stays where it is as long as its slot lives.
2. One that lost its slot goes to a copy that is caught up, if only because it was a standby. Else to a copy
   that is on its way, or to whoever has most of its state; else to the least loaded.
3. Tasks of each level are evened out over instances by their slots, because a level runs all its tasks at
   once. A task moves to an instance that is caught up; for another one that gets a warm-up first.
4. Instances that have far more state than others swap a large task for a small one.
5. Within an instance tasks of a level are evened out over its slots: they share its state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from millstream.engine.assignment.draft import Draft, Inputs, quotas
from millstream.engine.assignment.model import Replica, TaskToPlace

__all__ = ["place_actives"]

_WORTH_MOVING: Final = 64 << 20
"""Bytes. Smaller differences come and go, and tasks should stay."""
_HEAVY: Final = 1.3
"""An instance with so many times its share of state gives some away."""


def place_actives(draft: Draft) -> None:
    """Give every task a slot, and warm-ups to where some of them should go."""
    inputs = draft.inputs
    lost: list[TaskToPlace] = []
    for task in inputs.tasks:  # 1.
        placed = inputs.placed_before(task)
        if placed is not None and inputs.lives(placed.active):
            draft.put(task, placed.active)
        else:
            lost.append(task)
    _place_lost(draft, lost)  # 2.
    is_after_loss = any(inputs.placed_before(task) is not None for task in lost)
    only = {task.task_id for task in lost} if is_after_loss else None
    pending = False
    for may_begin in (False, True):  # what is on its way comes first: warm-ups are few
        for level in {task.level: None for task in inputs.tasks}:
            pending |= _even_out_instances(draft, level, may_begin=may_begin, only=only)  # 3.
    if not pending and only is None:
        _even_out_sizes(draft)  # 4.
    _even_out_slots(draft)  # 5.


def _place_lost(draft: Draft, lost: Iterable[TaskToPlace]) -> None:
    inputs, least = draft.inputs, _LeastLoaded(draft)
    per_level = Counter(task.level for task in inputs.tasks)
    whole = sum(inputs.open_weights.values())
    for task in sorted(lost, key=lambda task: -task.size):
        held = inputs.held(task)
        warm = {name: lag for name, lag in held.items() if lag <= inputs.rules.acceptable_lag}
        chosen: str | None = None
        why = "the least loaded"
        if warm:
            chosen = min(
                warm,
                key=lambda name: (
                    draft.load_of(task.level, name) * whole
                    >= per_level[task.level] * inputs.open_weights[name],
                    warm[name],
                    not inputs.had_copy(task, name),
                    draft.load_of(task.level, name) / inputs.open_weights[name],
                    name,
                ),
            )
            why = f"its copy is there, {warm[chosen]} records behind"
        elif held:
            best = min(held, key=lambda name: (held[name], not inputs.had_copy(task, name), name))
            has_most = 2 * held[best] <= task.records
            if has_most or (inputs.had_copy(task, best) and held[best] < task.records):
                chosen = best
                what = "most of its state" if has_most else "its copy"
                why = f"{what} is there, {held[best]} of {task.records} records are missing"
        if chosen is not None:
            draft.put_on(task, chosen, why)
        else:
            place = inputs.slots[least.slot(task.level, inputs.avoided.get(task.task_id))]
            draft.put(task, Replica(place.slot, place.instance, place.host, why))


class _LeastLoaded:
    """Finds the least loaded slot. Loads only grow while it is used."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._heaps: dict[int, list[tuple[tuple[float, ...], int]]] = {}
        self._open = [
            place.slot for name in draft.inputs.open_weights for place in draft.inputs.by_instance[name]
        ]

    def slot(self, level: int, avoided: str | None) -> int:
        """The slot for a task of a level; on another instance than that one, if there is one."""
        if avoided is not None:
            slots = self._draft.inputs.slots
            elsewhere = [slot for slot in self._open if slots[slot].instance != avoided]
            if elsewhere:
                return min(elsewhere, key=lambda slot: self._key(level, slot))
        heap = self._heaps.get(level)
        if heap is None:
            heap = self._heaps[level] = [(self._key(level, slot), slot) for slot in self._open]
            heapify(heap)
        while True:
            key, slot = heappop(heap)
            now = self._key(level, slot)
            heappush(heap, (now, slot))
            if now == key:
                return slot

    def _key(self, level: int, slot: int) -> tuple[float, ...]:
        draft = self._draft
        name = draft.inputs.slots[slot].instance
        weight = len(draft.inputs.by_instance[name])
        return (
            draft.load(level, slot),
            draft.load_of(level, name) / weight,
            draft.total[slot],
            draft.size[name] / weight,
            slot,
        )


def _even_out_instances(draft: Draft, level: int, *, may_begin: bool, only: set[str] | None) -> bool:
    """Move tasks of a level, or let them be followed where they should go; whether any still should.

    `may_begin`: not only where somebody is caught up or follows already. `only`: no other tasks.
    """
    inputs = draft.inputs
    names = [*inputs.by_instance]
    now = {name: draft.load_of(level, name) for name in names}
    on_their_way = _on_their_way(draft, level)
    for source, target in on_their_way.values():
        now[source] -= 1
        now[target] += 1
    wanted = quotas(sum(now.values()), inputs.open_weights, now)
    surplus = {name: now[name] - wanted.get(name, 0) for name in names if now[name] > wanted.get(name, 0)}
    if not surplus:
        return bool(on_their_way)
    candidates = [
        (task, name)
        for name in surplus
        for place in inputs.by_instance[name]
        for task in draft.on_slot.get((level, place.slot), {}).values()
        if task.task_id not in on_their_way and (only is None or task.task_id in only)
    ]
    for target in [name for name in wanted if now[name] < wanted[name]]:
        for task, source in sorted(candidates, key=_by_readiness(inputs, target)):
            if now[target] >= wanted[target]:
                break
            if not surplus.get(source) or task.task_id in on_their_way:
                continue
            if not _moved(draft, task, target, may_begin=may_begin):
                continue
            on_their_way[task.task_id] = (source, target)
            surplus[source] -= 1
            now[target] += 1
    return True


def _on_their_way(draft: Draft, level: int) -> dict[str, tuple[str, str]]:
    return {
        task_id: (draft.active[task_id].instance, there.instance)
        for task_id, found in draft.warmups.items()
        for there in found
        if task_id in draft.on_slot.get((level, draft.active[task_id].slot), ())
    }


def _by_readiness(
    inputs: Inputs, target: str
) -> Callable[[tuple[TaskToPlace, str]], tuple[bool, bool, int, str]]:
    def key(candidate: tuple[TaskToPlace, str]) -> tuple[bool, bool, int, str]:
        task, _ = candidate
        lag = inputs.lag(task, target)
        return lag > inputs.rules.acceptable_lag, not inputs.had_copy(task, target), lag, task.task_id

    return key


def _moved(draft: Draft, task: TaskToPlace, target: str, *, may_begin: bool) -> bool:
    """Move a task to an instance that is ready; let any other one get ready."""
    inputs = draft.inputs
    if inputs.is_ready(task, target):
        draft.put_on(task, target, f"balance; {inputs.lag(task, target)} records were missing there")
        return True
    if _is_standby(inputs, task, target):
        return True  # it follows, and is waited for
    if may_begin or inputs.had_copy(task, target):
        return draft.warm_up(task, target, "runs the task when it has caught up: balance")
    return False


def _is_standby(inputs: Inputs, task: TaskToPlace, instance: str) -> bool:
    placed = inputs.placed_before(task)
    return placed is not None and any(one.instance == instance for one in placed.standbys)


def _even_out_sizes(draft: Draft) -> None:
    """One swap at a time: a large task of the fullest instance for a small one of the emptiest."""
    inputs = draft.inputs
    weights = inputs.open_weights
    names = [*weights]
    whole = sum(draft.size[name] for name in names)
    if len(names) <= 1 or not whole:
        return
    mean = whole / sum(weights.values())

    def per_slot(name: str) -> float:
        return draft.size[name] / weights[name]

    full = max(names, key=lambda name: (per_slot(name), name))
    empty = min(names, key=lambda name: (per_slot(name), name))
    if per_slot(full) <= _HEAVY * mean:
        return
    gap = draft.size[full] - draft.size[empty]
    if gap < _WORTH_MOVING:
        return
    best = min(
        (
            (not (inputs.had_copy(large, empty) and inputs.had_copy(small, full)), abs(gap - 2 * less), at)
            for at, (large, small) in enumerate(_pairs(draft, full, empty))
            if (less := large.size - small.size) * 10 >= mean and 2 * less <= 1.5 * gap
        ),
        default=None,
    )
    if best is None:
        return
    large, small = next(pair for at, pair in enumerate(_pairs(draft, full, empty)) if at == best[2])
    moves = ((large, empty), (small, full))
    if all(inputs.is_ready(task, target) for task, target in moves):
        for task, target in moves:
            draft.put_on(task, target, "balance of the sizes of state")
        return
    missing = [
        (task, target)
        for task, target in moves
        if not _is_standby(inputs, task, target)
        and (not inputs.is_ready(task, target) or inputs.had_copy(task, target))
    ]
    if draft.warmups_left >= len(missing):
        for task, target in missing:
            draft.warm_up(task, target, "runs the task when it has caught up: balance of the sizes of state")


def _pairs(draft: Draft, full: str, empty: str) -> Iterator[tuple[TaskToPlace, TaskToPlace]]:
    levels = sorted({level for level, _ in draft.on_slot})
    for level in levels:
        small = sorted(_on(draft, level, empty), key=lambda task: (task.size, task.task_id))[:3]
        for large in sorted(_on(draft, level, full), key=lambda task: (-task.size, task.task_id))[:20]:
            for other in small:
                yield large, other


def _on(draft: Draft, level: int, instance: str) -> Iterator[TaskToPlace]:
    for place in draft.inputs.by_instance[instance]:
        yield from draft.on_slot.get((level, place.slot), {}).values()


def _even_out_slots(draft: Draft) -> None:
    for places in draft.inputs.by_instance.values():
        if len(places) <= 1:
            continue
        for level in {level for level, _ in draft.on_slot}:
            while True:
                by_load = sorted(places, key=lambda one: (draft.load(level, one.slot), draft.total[one.slot]))
                least, most = by_load[0], by_load[-1]
                if draft.load(level, most.slot) - draft.load(level, least.slot) <= 1:
                    break
                task = next(reversed(draft.on_slot[level, most.slot].values()))
                draft.put(task, Replica(least.slot, least.instance, least.host, _why_here(draft, task)))


def _why_here(draft: Draft, task: TaskToPlace) -> str:
    """Why a task gets another slot of its instance: for one that comes from elsewhere, why it comes."""
    before, now = draft.inputs.placed_before(task), draft.active[task.task_id]
    stays = before is not None and before.active.instance == now.instance
    return "balance of the slots of one instance" if stays else now.why
