"""Counters of a task: records in, out and dropped per node. Counted per batch, never per record."""

from __future__ import annotations


class Metrics:
    """Named counters by task and node.

    >>> metrics = Metrics()
    >>> metrics.add("0_0", "KSTREAM-FILTER-0000000001", "records-in", 3)
    >>> metrics.as_dict()
    {'0_0': {'KSTREAM-FILTER-0000000001': {'records-in': 3}}}
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], int] = {}

    def add(self, task_id: str, node: str, name: str, count: int) -> None:
        """Count some more.

        >>> metrics = Metrics()
        >>> metrics.add("0_0", "node", "records-in", 2)
        >>> metrics.add("0_0", "node", "records-in", 3)
        >>> metrics.get("node", "records-in")
        5
        """
        if count:
            key = (task_id, node, name)
            self._counts[key] = self._counts.get(key, 0) + count

    def get(self, node: str, name: str) -> int:
        """The counter of a node, over all tasks.

        >>> Metrics().get("node", "records-dropped")
        0
        """
        return sum(count for (_, at, what), count in self._counts.items() if (at, what) == (node, name))

    def merge(self, other: Metrics) -> None:
        """Count what another has counted.

        >>> metrics, other = Metrics(), Metrics()
        >>> other.add("0_0", "node", "records-in", 2)
        >>> metrics.merge(other)
        >>> metrics.get("node", "records-in")
        2
        """
        for key, count in other._counts.items():
            self._counts[key] = self._counts.get(key, 0) + count

    def copy(self) -> Metrics:
        """The counters as they are now.

        >>> Metrics().copy().as_dict()
        {}
        """
        copied = Metrics()
        copied._counts = self._counts.copy()
        return copied

    def reset_to(self, other: Metrics) -> None:
        """Forget what was counted since `other` was copied from this.

        >>> metrics = Metrics()
        >>> before = metrics.copy()
        >>> metrics.add("0_0", "node", "records-in", 2)
        >>> metrics.reset_to(before)
        >>> metrics.as_dict()
        {}
        """
        self._counts = other._counts.copy()

    def of_task(self, task_id: str) -> dict[tuple[str, str], int]:
        """The counters of one task, by node and name.

        >>> metrics = Metrics()
        >>> metrics.add("0_1", "node", "records-dropped", 1)
        >>> metrics.of_task("0_1")
        {('node', 'records-dropped'): 1}
        """
        return {(node, name): count for (at, node, name), count in self._counts.items() if at == task_id}

    def as_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        """All counters, by task, node and name.

        >>> metrics = Metrics()
        >>> metrics.add("0_1", "node", "records-dropped", 1)
        >>> metrics.as_dict()
        {'0_1': {'node': {'records-dropped': 1}}}
        """
        result: dict[str, dict[str, dict[str, int]]] = {}
        for (task_id, node, name), count in sorted(self._counts.items()):
            result.setdefault(task_id, {}).setdefault(node, {})[name] = count
        return result
