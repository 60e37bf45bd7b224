"""`KTable.join`, `left_join`, `outer_join`: two tables by their keys, as one table.

The operator has two ports: the left table's updates come by the first, the right one's by the second. Each is
joined with what the other table has for its key as of that update. The rules are Kafka's:

=========  ====================================  ======================================
join       an update of the left table           an update of the right table
=========  ====================================  ======================================
inner      nothing, if there is no right row     nothing, if there is no left row
left       nothing, if there is no right row,    nothing, if there is no left row; a
           and there was no left one either      deleted right row gives join(left, None)
outer      nothing, if none is there or was      the same
=========  ====================================  ======================================

Else an update goes on, a deleted row as None, even if the row was not there before, or is what it was. Its
time is the later one of both rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.processors.batch import Batch
from millstream.processors.joins.table_view import Lookup, PairJoiner, TableView
from millstream.processors.operator import Operator, OperatorContext, each_row
from millstream.processors.table import TableOperator, drop_null_keys, latest_only, olds_of, value_of

__all__ = ["StoredTableTableJoin", "TableTableJoin"]

_LEFT = 0


class TableTableJoin(Operator):
    """A join of two tables whose result is kept nowhere."""

    def __init__(self, left: TableView, right: TableView, join: PairJoiner, *, send_old: bool) -> None:
        self.views = (left, right)
        self.join = join
        self.send_old = send_old

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self._left, self._right = (view.open(context) for view in self.views)

    def close(self) -> None:
        """See `Operator.close`."""
        self._left.close()
        self._right.close()

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = latest_only(self.context, drop_null_keys(self.context, batch)).in_rows()
        if not len(batch):
            return None
        rows = _Joining(self.join, batch, self._others(batch), send_old=self.send_old)
        each_row(self.context, batch, rows.join_row)
        out = batch.take(rows.rows)
        return Batch(
            keys=out.keys,
            values=rows.news,
            timestamps=rows.timestamps,
            headers=out.headers,
            origins=out.origins,
            olds=rows.olds if self.send_old else None,
            order=out.order,
        )

    def _others(self, batch: Batch) -> Lookup:
        """What the other table has for the key of each row."""
        assert batch.ports is not None  # both sides are told apart
        rows_of: tuple[list[int], list[int]] = ([], [])
        places = []
        for row, port in enumerate(batch.ports):
            places.append(len(rows_of[port]))
            rows_of[port].append(row)
        ports = batch.ports
        lookups = [
            reader.lookup([batch.keys[row] for row in rows], _orders(batch, rows))
            for reader, rows in zip((self._right, self._left), rows_of, strict=True)
        ]
        return lambda row: lookups[ports[row]](places[row])


class _Joining:
    """The rows of a batch on their way through a join of tables."""

    def __init__(self, join: PairJoiner, batch: Batch, others: Lookup, *, send_old: bool) -> None:
        self.rows: list[int] = []
        self.news: list[Any] = []
        self.olds: list[Any] = []
        self.timestamps: list[int] = []
        self._join = join
        self._others = others
        self._send_old = send_old
        self._ports = batch.ports or ()
        self._columns = (batch.keys, batch.values.rows(), olds_of(batch), batch.timestamps.rows())

    def join_row(self, row: int) -> None:
        """Join one row; may raise what the joiner raises, or what computes the other table."""
        key, new, old, timestamp = (column[row] for column in self._columns)
        other = self._others(row)
        of_left = self._ports[row] == _LEFT
        if other is None and not self._is_worth_telling(new, old, of_left=of_left):
            return
        value = value_of(other)
        joined_new = self._joined(key, new, value, of_left=of_left)
        joined_old = self._joined(key, old, value, of_left=of_left) if self._send_old else None
        self.rows.append(row)
        self.news.append(joined_new)
        self.olds.append(joined_old)
        self.timestamps.append(timestamp if other is None else max(timestamp, other[1]))

    def _is_worth_telling(self, new: Any, old: Any, *, of_left: bool) -> bool:
        """Whether a row that has none in the other table may go on."""
        alone = self._join.left_alone if of_left else self._join.right_alone
        return alone and not (new is None and old is None)

    def _joined(self, key: Any, own: Any, other: Any, *, of_left: bool) -> Any:
        return self._join(key, own, other) if of_left else self._join(key, other, own)


class StoredTableTableJoin(TableOperator):
    """A join of two tables whose result has a store."""

    def __init__(
        self,
        store: str,
        left: TableView,
        right: TableView,
        join: PairJoiner,
        *,
        caching: bool,
        send_old: bool,
    ) -> None:
        super().__init__(store, caching=caching, send_old=send_old)
        self._joining = TableTableJoin(left, right, join, send_old=False)

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self._joining.open(context)

    def close(self) -> None:
        """See `Operator.close`."""
        self._joining.close()

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        joined = self._joining.process(batch)
        return None if joined is None else self.put(joined)


def _orders(batch: Batch, rows: Sequence[int]) -> list[Any] | None:
    return None if batch.order is None else [batch.order[row] for row in rows]
