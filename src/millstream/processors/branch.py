"""`split()`: each row goes to the first branch whose predicate holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.processors.batch import Batch
from millstream.processors.operator import Operator, collect, rest


class Branch(Operator):
    """Sends each row to one child, or to none.

    `children` has one name more than there are predicates if there is a default branch.
    """

    def __init__(self, predicates: Sequence[Callable[[Any, Any], Any]], children: Sequence[str]) -> None:
        self.predicates = tuple(predicates)
        self.children = tuple(children)

    def process(self, batch: Batch) -> dict[str, Batch]:
        """See `Operator.process`."""
        choices, batch = collect(
            self.context,
            batch,
            lambda start: map(self._choose, rest(batch.keys, start), rest(batch.values, start)),
        )
        rows: dict[int, list[int]] = {}
        for row, choice in enumerate(choices):
            rows.setdefault(choice, []).append(row)
        self.context.dropped(len(rows.pop(len(self.children), ())))
        return {self.children[choice]: batch.take(taken) for choice, taken in sorted(rows.items())}

    def _choose(self, key: Any, value: Any) -> int:
        for position, predicate in enumerate(self.predicates):
            if predicate(key, value):
                return position
        return len(self.predicates)
