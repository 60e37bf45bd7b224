"""A queue of what is due when: `java.util.PriorityQueue`, move for move.

Kafka Streams keeps punctuators in one, ordered by time alone. So which of two that are due at the same time
comes first is decided by the moves of that very heap, and users see it. Python's `heapq` moves differently.

The heap is a plain list, parents before children: kept and taken up again, it goes on as if nothing was.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

__all__ = ["heapify", "offer", "poll"]


class Due(Protocol):
    """Something with a time."""

    due: int


D = TypeVar("D", bound=Due)


def offer(heap: list[D], item: D) -> None:
    """Add an item: it rises above parents that are due later, and not above equals."""
    place = len(heap)
    heap.append(item)
    while place > 0:
        parent = (place - 1) // 2
        if item.due >= heap[parent].due:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


def poll(heap: list[D]) -> D:
    """Take the first item out; the last one fills its place."""
    last = heap.pop()
    if not heap:
        return last
    first = heap[0]
    _sift_down(heap, 0, last)
    return first


def heapify(heap: list[D]) -> None:
    """Put items in any order right; a heap stays as it is."""
    for place in reversed(range(len(heap) // 2)):
        _sift_down(heap, place, heap[place])


def _sift_down(heap: list[D], place: int, item: D) -> None:
    """Put an item where it belongs at or below a place; of two equal children the left one rises."""
    while (child := 2 * place + 1) < len(heap):
        right = child + 1
        if right < len(heap) and heap[child].due > heap[right].due:
            child = right
        if item.due <= heap[child].due:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = item
