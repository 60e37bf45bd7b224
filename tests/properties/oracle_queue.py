"""The naive oracle's queue of punctuators: Kafka's heap by time, which decides between equals."""

from __future__ import annotations

from typing import Any


class Heap:
    """Items with a `due`. The list is the tree, row by row: children of n are 2n + 1 and 2n + 2."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def add(self, item: Any) -> None:
        self.items.append(item)
        at = len(self.items) - 1
        while at > 0 and self.items[at].due < self.items[(at - 1) // 2].due:
            self._swap(at, (at - 1) // 2)
            at = (at - 1) // 2

    def take(self) -> Any:
        self._swap(0, -1)
        first = self.items.pop()
        at = 0
        while True:
            children = [child for child in (2 * at + 1, 2 * at + 2) if child < len(self.items)]
            smaller = min(children, key=lambda child: self.items[child].due, default=None)
            if smaller is None or self.items[at].due <= self.items[smaller].due:
                return first
            self._swap(at, smaller)
            at = smaller

    def is_due(self, now: int) -> bool:
        return bool(self.items) and self.items[0].due <= now

    def _swap(self, one: int, other: int) -> None:
        self.items[one], self.items[other] = self.items[other], self.items[one]
