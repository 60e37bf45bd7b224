"""Who keeps copies of a task's state.

Copies stay where they are, if their instance lives and is not on the host of the task. What is missing goes
where state of the task is already, to where the tags differ, and to the instances with the fewest copies. A
copy moves, for balance or for the tags, when its new place has caught up; until then the old one stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from millstream.engine.assignment.draft import Draft, quotas
from millstream.engine.assignment.model import Replica, TaskToPlace

__all__ = ["place_standbys"]


def place_standbys(draft: Draft) -> None:
    """Give every task with state its standbys."""
    if not draft.inputs.rules.standbys:
        return
    placing = _Placing(draft)
    for task in draft.inputs.tasks:
        if task.has_state:
            placing.keep(task)
    placing.heap_loads()
    for task in draft.inputs.tasks:
        if task.has_state:
            placing.fill(task)
    for may_begin in (False, True):
        placing.even_out(may_begin=may_begin)
        if draft.inputs.rules.spread_over:
            placing.spread(may_begin=may_begin)


class _Placing:
    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._inputs = draft.inputs
        self._weights = draft.inputs.open_weights
        self._count: Counter[str] = Counter()
        self._size: Counter[str] = Counter()
        self._heap: list[tuple[tuple[float, float], str]] = []

    def heap_loads(self) -> None:
        """Call when all that stays is counted: from here on loads only grow."""
        self._heap = [(self._load(name), name) for name in self._weights]
        heapify(self._heap)

    def keep(self, task: TaskToPlace) -> None:
        """Copies that may stay."""
        placed = self._inputs.placed_before(task)
        kept = [] if placed is None else [one for one in placed.copies() if self._may_stay(task, one)]
        # A warm-up that has caught up is as good as a standby, and one that has not is none.
        standbys = set() if placed is None else {one.instance for one in placed.standbys}
        kept = [one for one in kept if one.instance in standbys or self._inputs.is_ready(task, one.instance)]
        kept.sort(
            key=lambda one: (not self._inputs.is_ready(task, one.instance), one.instance not in standbys)
        )
        for one in kept[: self._inputs.rules.standbys]:
            self._add(task, one)

    def fill(self, task: TaskToPlace) -> None:
        """Copies that are missing."""
        chosen = self._draft.standbys.setdefault(task.task_id, [])
        while len(chosen) < self._inputs.rules.standbys:
            name = self._ready_place(task, chosen)
            why = "its state is there" if name is not None else "the fewest copies are there"
            name = name or self._any_place(task, chosen)
            if name is None:
                return
            self._add(task, self._draft.copy_on(task, name, why), is_counted=True)

    def _ready_place(self, task: TaskToPlace, chosen: Sequence[Replica]) -> str | None:
        """An instance that has the state of a task, unless tags are better elsewhere."""
        ready = [
            name
            for name, lag in self._inputs.held(task).items()
            if lag <= self._inputs.rules.acceptable_lag and self._is_allowed(task, name)
        ]
        best = min(ready, key=lambda name: self._key(task, name, chosen), default=None)
        if best is None or not self._inputs.rules.spread_over:
            return best
        other = self._any_place(task, chosen)
        is_worse = other is not None and self._conflicts(task, other, chosen) < self._conflicts(
            task, best, chosen
        )
        return None if is_worse else best

    def _any_place(self, task: TaskToPlace, chosen: Sequence[Replica]) -> str | None:
        """The instance with the fewest copies; where tags count, of those in which they differ most."""
        if self._inputs.rules.spread_over or chosen:
            names = [name for name in self._weights if self._is_allowed(task, name)]
            return min(names, key=lambda name: self._key(task, name, chosen), default=None)
        skipped: list[tuple[tuple[float, float], str]] = []
        found: str | None = None
        while self._heap and found is None:
            key, name = heappop(self._heap)
            now = self._load(name)
            if now != key:
                heappush(self._heap, (now, name))
                continue
            skipped.append((key, name))
            found = name if self._is_allowed(task, name) else None
        for entry in skipped:
            heappush(self._heap, entry)
        return found

    def _key(self, task: TaskToPlace, name: str, chosen: Sequence[Replica]) -> tuple[int, float, float, str]:
        return (self._conflicts(task, name, chosen), *self._load(name), name)

    def _load(self, name: str) -> tuple[float, float]:
        weight = self._weights[name]
        return self._count[name] / weight, self._size[name] / weight

    def even_out(self, *, may_begin: bool) -> None:
        """Move copies from instances with many to instances with few."""
        wanted = quotas(sum(self._count.values()), self._weights, self._count)
        surplus = {
            name: self._count[name] - wanted[name] for name in wanted if self._count[name] > wanted[name]
        }
        needy = [name for name in wanted if self._count[name] < wanted[name]]
        if not surplus or not needy:
            return
        candidates = [
            (task, one)
            for task in self._inputs.tasks
            for one in self._draft.standbys.get(task.task_id, ())
            if one.instance in surplus
        ]
        for target in needy:
            candidates.sort(key=lambda pair: self._readiness(pair[0], target))
            missing = wanted[target] - self._count[target]
            for task, one in candidates:
                if not missing:
                    break
                if surplus.get(one.instance, 0) > 0 and self._replaced(
                    task, one, target, "balance of copies", may_begin=may_begin
                ):
                    surplus[one.instance] -= 1
                    missing -= 1

    def spread(self, *, may_begin: bool) -> None:
        """Move copies that share tags with others of their task to where they would not."""
        for task in self._inputs.tasks:
            for one in [*self._draft.standbys.get(task.task_id, ())]:
                others = [other for other in self._draft.standbys[task.task_id] if other is not one]
                worst = self._conflicts(task, one.instance, others)
                better = [
                    name
                    for name in (self._weights if worst else ())
                    if self._is_allowed(task, name) and self._conflicts(task, name, others) < worst
                ]
                if better:
                    target = min(
                        better,
                        key=lambda name: (
                            self._conflicts(task, name, others),
                            *self._readiness(task, name)[:2],
                            self._count[name] / self._weights[name],
                            name,
                        ),
                    )
                    self._replaced(task, one, target, "other tags than its task", may_begin=may_begin)

    def _replaced(self, task: TaskToPlace, one: Replica, target: str, why: str, *, may_begin: bool) -> bool:
        """Put a copy elsewhere, or let it get ready there; False if that is not possible."""
        chosen = self._draft.standbys[task.task_id]
        others = [other for other in chosen if other is not one]
        if one not in chosen or not self._is_allowed(task, target):
            return False
        if self._conflicts(task, target, others) > self._conflicts(task, one.instance, others):
            return False
        if self._inputs.is_ready(task, target):
            chosen.remove(one)
            self._draft.copies[one.slot] -= 1
            self._count[one.instance] -= 1
            self._size[one.instance] -= task.size
            self._add(task, self._draft.copy_on(task, target, why), is_counted=True)
            return True
        if may_begin or self._inputs.had_copy(task, target):
            return self._draft.warm_up(task, target, f"becomes a standby when it has caught up: {why}")
        return False

    def _readiness(self, task: TaskToPlace, target: str) -> tuple[bool, bool, int, str]:
        lag = self._inputs.lag(task, target)
        is_far = lag > self._inputs.rules.acceptable_lag
        return is_far, not self._inputs.had_copy(task, target), lag, task.task_id

    def _may_stay(self, task: TaskToPlace, one: Replica) -> bool:
        return (
            self._inputs.lives(one) and one.instance in self._weights and self._is_allowed(task, one.instance)
        )

    def _is_allowed(self, task: TaskToPlace, instance: str) -> bool:
        """Not on the host of the task, and no task twice on one instance."""
        draft = self._draft
        if self._inputs.host(instance) == draft.active[task.task_id].host:
            return False
        taken = (*draft.standbys.get(task.task_id, ()), *draft.warmups.get(task.task_id, ()))
        return all(one.instance != instance for one in taken)

    def _conflicts(self, task: TaskToPlace, instance: str, others: Sequence[Replica]) -> int:
        """In how many tags an instance is where the task, or another copy, is; the host counts, too."""
        inputs = self._inputs
        here = inputs.by_instance[instance][0]
        taken = [inputs.slots[one.slot] for one in (self._draft.active[task.task_id], *others)]
        return sum(
            here.tags.get(tag) is not None and here.tags.get(tag) == one.tags.get(tag)
            for tag in inputs.rules.spread_over
            for one in taken
        ) + sum(here.host == one.host for one in taken)

    def _add(self, task: TaskToPlace, one: Replica, *, is_counted: bool = False) -> None:
        self._draft.standbys.setdefault(task.task_id, []).append(one)
        self._count[one.instance] += 1
        self._size[one.instance] += task.size
        if not is_counted:
            self._draft.copies[one.slot] += 1
