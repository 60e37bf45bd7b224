"""How a table is looked up: in its store, or by computing it anew from the stores of the tables behind it.

A view says which stores that takes, and makes the `TableReader` of one task. A reader is asked for the rows
of a batch at once, reads the stores in bulk, and answers with a function from a row's number to the cell that
the table has for it *as of that row*: what came before it in the task's order is seen, and nothing that came
behind it. The function may run code of the user's, and raise what that raises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from millstream.errors import SerdeError
from millstream.processors.api import ValueTransformerWithKey
from millstream.processors.batch import OrderKey
from millstream.processors.columns.column import Column
from millstream.processors.joins.lookup_in_columns import values_in_columns
from millstream.processors.operator import OperatorContext
from millstream.processors.operator_times import UNKNOWN_TIME
from millstream.processors.table_values import Transforming
from millstream.processors.version_history import VersionHistory
from millstream.serdes import ColumnError, Serde, serde_failure, serialize_column
from millstream.state.stores.cell_store import Cell, CellStore
from millstream.state.stores.encoded_buffer import EncodedBuffer
from millstream.state.stores.store import StateStore
from millstream.state.stores.versioned import VersionedKeyValueStore

__all__ = [
    "ComputedView",
    "JoinedView",
    "Lookup",
    "PairJoiner",
    "StoreView",
    "TableReader",
    "TableView",
    "TransformedView",
]

Lookup: TypeAlias = Callable[[int], Cell]
"""From the number of a row to what the table has for it."""
Compute: TypeAlias = Callable[[Any, Any], Any]


class TableReader(ABC):
    """A table, to be looked up by one operator of one task."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """The table will not be looked up again."""

    def values(
        self,
        keys: Sequence[Any],
        orders: Sequence[OrderKey] | None,
        times: Sequence[int] | None = None,
        *,
        shared: bool = False,
    ) -> Sequence[Any] | None:
        """The values alone of what `lookup` finds, of all rows at once; None if it must be done one by one.

        `shared`: rows may be given the same object, because nobody changes it.
        """
        del keys, orders, times, shared
        return None

    def column(self, keys: Column, orders: Sequence[OrderKey] | None) -> Column | None:
        """The values of what `lookup` finds, as a column in Arrow; None if that can't be done."""
        del keys, orders
        return None

    @abstractmethod
    def lookup(
        self,
        keys: Sequence[Any],
        orders: Sequence[OrderKey] | None,
        times: Sequence[int] | None = None,
    ) -> Lookup:
        """What the table has for these keys, as of these places in the order.

        With `times`, as it was at these times: a table without versions is always as it is. A key of None has
        nothing.
        """


class TableView(ABC):
    """How a table is looked up."""

    @property
    @abstractmethod
    def stores(self) -> tuple[str, ...]:
        """The stores that it is looked up in."""

    @property
    def shared_stores(self) -> tuple[str, ...]:
        """Other stores, which are read as they are: who looks it up takes turns with those who write them."""
        return ()

    @property
    def written_stores(self) -> tuple[str, ...]:
        """Those of the shared stores that looking it up may write to: code of the user's does as it likes."""
        return ()

    @property
    def sees_context(self) -> bool:
        """Whether looking it up runs code of the user's that can see offsets and stream time."""
        return False

    @abstractmethod
    def as_sent(self) -> TableView:
        """The same, but tables with a cache as they were sent last: what they hold back is not seen yet.

        Who is told of every update, and sees no others, never keeps a row that came and went unsent.
        """

    @abstractmethod
    def open(self, context: OperatorContext) -> TableReader:
        """The table as an operator sees it."""


@dataclass(frozen=True, slots=True)
class StoreView(TableView):
    """A table that has a store."""

    store: str
    caching: bool = False
    """Its updates are held back until the epoch ends."""
    is_as_sent: bool = False

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    def as_sent(self) -> TableView:
        return replace(self, is_as_sent=True)

    def open(self, context: OperatorContext) -> TableReader:
        return _StoreReader(self.store, context, committed=self.caching and self.is_as_sent)


@dataclass(frozen=True, slots=True)
class _DerivedView(TableView):
    """A table without a store that is found by way of another one."""

    parent: TableView

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores

    @property
    def shared_stores(self) -> tuple[str, ...]:
        return self.parent.shared_stores

    @property
    def written_stores(self) -> tuple[str, ...]:
        return self.parent.written_stores

    @property
    def sees_context(self) -> bool:
        return self.parent.sees_context

    def as_sent(self) -> TableView:
        return replace(self, parent=self.parent.as_sent())


@dataclass(frozen=True, slots=True)
class ComputedView(_DerivedView):
    """A table without a store that is computed row by row from another one: `filter`, `map_values`."""

    compute: Compute

    def open(self, context: OperatorContext) -> TableReader:
        return _ComputedReader(self.parent.open(context), self.compute)


@dataclass(frozen=True, slots=True)
class TransformedView(_DerivedView):
    """A table without a store that a transformer of the user's own computes from another one."""

    supplier: Callable[[], ValueTransformerWithKey[Any, Any, Any]]
    own_stores: tuple[str, ...]

    @property
    def shared_stores(self) -> tuple[str, ...]:
        return (*self.own_stores, *self.parent.shared_stores)

    @property
    def written_stores(self) -> tuple[str, ...]:
        return (*self.own_stores, *self.parent.written_stores)

    @property
    def sees_context(self) -> bool:
        return True

    def open(self, context: OperatorContext) -> TableReader:
        transforming = Transforming(self.supplier)
        transforming.open(context)
        return _TransformedReader(self.parent.open(context), transforming)


@dataclass(frozen=True, slots=True)
class SuppressedView(_DerivedView):
    """A table behind `suppress`: what waits in the buffer is still what was sent of it last."""

    buffer: str

    @property
    def shared_stores(self) -> tuple[str, ...]:
        return (self.buffer, *self.parent.shared_stores)

    def open(self, context: OperatorContext) -> TableReader:
        return _SuppressedReader(self.parent.open(context), context.store(self.buffer))


@dataclass(frozen=True, slots=True)
class PairJoiner:
    """What the rows of two tables make: a joiner, and which of the two may be missing."""

    joiner: Callable[..., Any]
    with_key: bool
    left_alone: bool
    """The left one without a right one is wanted, too."""
    right_alone: bool

    def __call__(self, key: Any, left: Any, right: Any) -> Any:
        """The joined value; None if there is none."""
        if (left is None and not (self.right_alone and right is not None)) or (
            right is None and not (self.left_alone and left is not None)
        ):
            return None
        return self.joiner(key, left, right) if self.with_key else self.joiner(left, right)


@dataclass(frozen=True, slots=True)
class JoinedView(TableView):
    """A join of two tables that has no store."""

    left: TableView
    right: TableView
    join: PairJoiner

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.left.stores, *self.right.stores)))

    @property
    def shared_stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.left.shared_stores, *self.right.shared_stores)))

    @property
    def written_stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.left.written_stores, *self.right.written_stores)))

    @property
    def sees_context(self) -> bool:
        return self.left.sees_context or self.right.sees_context

    def as_sent(self) -> TableView:
        return replace(self, left=self.left.as_sent(), right=self.right.as_sent())

    def open(self, context: OperatorContext) -> TableReader:
        return _JoinedReader(self.left.open(context), self.right.open(context), self.join)


class _StoreReader(TableReader):
    def __init__(self, name: str, context: OperatorContext, *, committed: bool) -> None:
        self._store: CellStore[Any] = context.store(name)
        self._history = context.table_history(name)
        # A copy of an earlier step's store has what was sent in this epoch already.
        self._committed = committed and self._store.name == name

    def lookup(
        self,
        keys: Sequence[Any],
        orders: Sequence[OrderKey] | None,
        times: Sequence[int] | None = None,
    ) -> Lookup:
        data, failures = _encoded_keys(self._store, self._store.cell_key_serde, keys)
        cells, thawed = self._cells(data, orders, times), self._store.thawed

        def cell(row: int) -> Cell:
            if row in failures:
                raise failures[row]
            found = cells[row]
            return None if found is None else (thawed(found[0]), found[1])

        return cell

    def values(
        self,
        keys: Sequence[Any],
        orders: Sequence[OrderKey] | None,
        times: Sequence[int] | None = None,
        *,
        shared: bool = False,
    ) -> Sequence[Any] | None:
        if times is None and self._store.exact_types:
            column = self.column(Column.of(keys).packed(), orders)
            if column is not None:
                return column.rows()
        data, failures = _encoded_keys(self._store, self._store.cell_key_serde, keys)
        if failures:
            return None
        cells, thawed = self._cells(data, orders, times), self._store.thawed
        if self._store.exact_types:
            return [None if cell is None else cell[0] for cell in cells]
        if not shared:
            return [None if cell is None else thawed(cell[0]) for cell in cells]
        known = {id(cell): None if cell is None else thawed(cell[0]) for cell in cells}
        return [known[id(cell)] for cell in cells]

    def column(self, keys: Column, orders: Sequence[OrderKey] | None) -> Column | None:
        if self._committed:
            return None
        return values_in_columns(self._store, self._history, keys, orders)

    def _cells(
        self,
        keys: Sequence[bytes | None],
        orders: Sequence[OrderKey] | None,
        times: Sequence[int] | None,
    ) -> list[Cell]:
        if times is not None and isinstance(self._store, VersionedKeyValueStore):
            versions = VersionHistory() if self._history is None else self._history.versions
            return versions.as_of(self._store, keys, orders, times)
        if self._committed:
            before = self._store.load_committed_frozen({key for key in keys if key is not None})
            return [None if key is None else before[key] for key in keys]
        if self._history is not None:
            return self._history.as_of(self._store, keys, orders)
        found = self._store.load_frozen({key for key in keys if key is not None})
        return [None if key is None else found[key] for key in keys]


class _ComputedReader(TableReader):
    def __init__(self, parent: TableReader, compute: Compute) -> None:
        self._parent = parent
        self._compute = compute

    def lookup(
        self,
        keys: Sequence[Any],
        orders: Sequence[OrderKey] | None,
        times: Sequence[int] | None = None,
    ) -> Lookup:
        of_parent, compute = self._parent.lookup(keys, orders, times), self._compute

        def cell(row: int) -> Cell:
            found = of_parent(row)
            if found is None:
                return None
            value = compute(keys[row], found[0])
            return None if value is None else (value, found[1])

        return cell

    def close(self) -> None:
        self._parent.close()


class _TransformedReader(TableReader):
    def __init__(self, parent: TableReader, transforming: Transforming) -> None:
        self._parent = parent
        self._transforming = transforming

    def lookup(
        self,
        keys: Sequence[Any],
        orders: Sequence[OrderKey] | None,
        times: Sequence[int] | None = None,
    ) -> Lookup:
        """See `TableReader.lookup`. A transformer is also asked about rows that are not there."""
        of_parent = self._parent.lookup(keys, orders, times)

        def cell(row: int) -> Cell:
            if keys[row] is None:
                return None
            found = of_parent(row)
            value = self._transforming(keys[row], None if found is None else found[0])
            return None if value is None else (value, UNKNOWN_TIME if found is None else found[1])

        return cell

    def close(self) -> None:
        self._transforming.close()
        self._parent.close()


class _SuppressedReader(TableReader):
    def __init__(self, parent: TableReader, buffer: EncodedBuffer[Any]) -> None:
        self._parent = parent
        self._buffer = buffer

    def lookup(
        self,
        keys: Sequence[Any],
        orders: Sequence[OrderKey] | None,
        times: Sequence[int] | None = None,
    ) -> Lookup:
        of_parent = self._parent.lookup(keys, orders, times)
        data, failures = _encoded_keys(self._buffer, self._buffer.key_serde, keys)
        waiting = self._buffer.load({key for key in data if key is not None})
        decode = self._buffer.value_serde.deserialize

        def cell(row: int) -> Cell:
            if row in failures:
                raise failures[row]
            key = data[row]
            found = None if key is None else waiting.get(key)
            if found is None:
                return of_parent(row)
            return None if found.old_value is None else (decode(found.old_value), UNKNOWN_TIME)

        return cell

    def close(self) -> None:
        self._parent.close()


class _JoinedReader(TableReader):
    def __init__(self, left: TableReader, right: TableReader, join: PairJoiner) -> None:
        self._left = left
        self._right = right
        self._join = join

    def lookup(
        self,
        keys: Sequence[Any],
        orders: Sequence[OrderKey] | None,
        times: Sequence[int] | None = None,
    ) -> Lookup:
        """See `TableReader.lookup`. A join of tables has no versions, whatever these have."""
        del times
        of_left, of_right = self._left.lookup(keys, orders), self._right.lookup(keys, orders)
        join = self._join

        def cell(row: int) -> Cell:
            left, right = of_left(row), of_right(row)
            if left is None or right is None:
                known = right if left is None else left
                if known is None:
                    return None
                value = join(keys[row], left and left[0], right and right[0])
                return None if value is None else (value, known[1])
            value = join(keys[row], left[0], right[0])
            return None if value is None else (value, max(left[1], right[1]))

        return cell

    def close(self) -> None:
        self._left.close()
        self._right.close()


def _encoded_keys(
    store: StateStore[Any], serde: Serde[Any], keys: Sequence[Any]
) -> tuple[Sequence[bytes | None], dict[int, SerdeError]]:
    """Keys as a store has them, and what is wrong with those that can't be."""
    try:
        return serialize_column(serde, keys), {}
    except ColumnError:
        pass  # go through them one by one: there may be several
    encoded: list[bytes | None] = []
    failures: dict[int, SerdeError] = {}
    for row, key in enumerate(keys):
        try:
            encoded.append(None if key is None else serde.serialize(key))
        except Exception as cause:  # noqa: BLE001 - a serde of the user's own may raise anything
            encoded.append(None)
            failures[row] = serde_failure(cause, serde=serde, value=key, part="key", store=store.name)
    return encoded, failures
