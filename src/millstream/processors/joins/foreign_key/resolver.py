"""The last step of a foreign-key join, at the left table again: answers become results.

An answer says by a hash which left value it was asked for. It counts only if the left row still has that
value: else another answer is on its way, or was here, and this one is stale. So of the answers of an epoch,
in whatever order they come from the tasks of the right table, only those to the left row as it is make
results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.processors.batch import Batch
from millstream.processors.joins.foreign_key.messages import hash_of, split_answer
from millstream.processors.joins.foreign_key.serdes import ForeignKeySerdes
from millstream.processors.joins.table_view import TableView
from millstream.processors.operator import Operator, OperatorContext, each_row
from millstream.serdes import deserialize_column

__all__ = ["AnswerResolver"]


class AnswerResolver(Operator):
    """From answers to the rows of the joined table."""

    def __init__(
        self,
        left: TableView,
        joiner: Callable[..., Any],
        serdes: ForeignKeySerdes,
        *,
        with_key: bool,
        left_join: bool,
    ) -> None:
        self.left = left
        self.joiner = joiner
        self.serdes = serdes
        self.with_key = with_key
        self.left_join = left_join

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self._left = self.left.open(context)
        self._primary = self.serdes.primary_key(context)
        self._value = self.serdes.left_value(context)
        self._right = self.serdes.right_value(context)

    def close(self) -> None:
        """See `Operator.close`."""
        self._left.close()

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        batch = batch.in_rows()
        keys = deserialize_column(self._primary, batch.keys.rows())
        answers = batch.values.rows()
        lefts = self._left.lookup(keys, batch.order)
        rows: list[int] = []
        results: list[Any] = []
        stale = 0

        def resolve(row: int) -> None:
            nonlocal stale
            value_hash, right = split_answer(answers[row])
            found = lefts(row)
            left = None if found is None else found[0]
            if value_hash != hash_of(None if left is None else self._value.serialize(left)):
                stale += 1
                return
            results.append(self._joined(keys[row], left, right))
            rows.append(row)

        each_row(self.context, batch, resolve)
        if stale:
            self.context.dropped(stale)
        out = batch.take(rows)
        return out.with_columns([keys[row] for row in rows], results)

    def _joined(self, key: Any, left: Any, data: bytes | None) -> Any:
        if left is None or (data is None and not self.left_join):
            return None
        right = None if data is None else self._right.deserialize(data)
        return self.joiner(key, left, right) if self.with_key else self.joiner(left, right)
