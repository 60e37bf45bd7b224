"""Table operators that compute each new value from one input value: filter, map_values, transform_values.

Each comes in two forms. Without a store the old value, where somebody wants it, is computed by applying
the function to the parent's old value; with one it is read from the store. None is a deleted row: it is
not shown to predicates and mappers, but it is to transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from millstream.processors.api import ValueTransformerWithKey
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.operator import Operator, OperatorContext, collect, rest
from millstream.processors.table import TableOperator, olds_of

T = TypeVar("T")

Compute = Callable[[Any, Any], Any]
"""From key and value (or None) to the new value (or None)."""


class KeepIf:
    """`filter`: the value itself, or None where the predicate does not hold."""

    def __init__(self, predicate: Callable[[Any, Any], Any]) -> None:
        self.predicate = predicate

    def __call__(self, key: Any, value: Any) -> Any:
        """The new value."""
        return value if value is not None and self.predicate(key, value) else None


class KeepIfNot:
    """`filter_not`: the value itself, or None where the predicate holds."""

    def __init__(self, predicate: Callable[[Any, Any], Any]) -> None:
        self.predicate = predicate

    def __call__(self, key: Any, value: Any) -> Any:
        """The new value."""
        return value if value is not None and not self.predicate(key, value) else None


class MapIfPresent:
    """`map_values`: the mapper's answer, or None for None."""

    def __init__(self, mapper: Callable[[Any], Any]) -> None:
        self.mapper = mapper

    def __call__(self, key: Any, value: Any) -> Any:
        """The new value."""
        return None if value is None else self.mapper(value)


class MapWithKeyIfPresent:
    """`map_values_with_key`: the mapper's answer, or None for None."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self.mapper = mapper

    def __call__(self, key: Any, value: Any) -> Any:
        """The new value."""
        return None if value is None else self.mapper(key, value)


class TableValues(Operator):
    """A table computed row by row from another one, without a store.

    `skip_if_both_null` is the filter's rule: where old values are known, a row that was not there and
    still is not there is not worth a tombstone.
    """

    def __init__(self, compute: Compute, *, send_old: bool, skip_if_both_null: bool) -> None:
        self.compute = compute
        self.send_old = send_old
        self.skip_if_both_null = skip_if_both_null and send_old

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        if not self.send_old:
            news, batch = collect(self.context, batch, lambda start: self.results(batch, start))
            return batch.with_values(news)
        pairs, batch = collect(self.context, batch, lambda start: self.results_with_old(batch, start))
        values, olds = Column([new for new, _ in pairs]), Column([old for _, old in pairs])
        changed = replace(batch, values=values, olds=olds)
        if not self.skip_if_both_null:
            return changed
        return changed.take([row for row, pair in enumerate(pairs) if pair != (None, None)])

    def results(self, batch: Batch, start: int) -> Iterator[Any]:
        """New values from row `start` on."""
        return map(self.compute, rest(batch.keys, start), rest(batch.values, start))

    def results_with_old(self, batch: Batch, start: int) -> Iterator[tuple[Any, Any]]:
        """New and old values from row `start` on."""
        olds = rest(olds_of(batch), start)
        return map(self._compute_both, rest(batch.keys, start), rest(batch.values, start), olds)

    def _compute_both(self, key: Any, new: Any, old: Any) -> tuple[Any, Any]:
        return self.compute(key, new), self.compute(key, old)


class StoredTableValues(TableOperator):
    """A table computed row by row from another one, kept in a store of its own."""

    def __init__(
        self, store: str, compute: Compute, *, caching: bool, send_old: bool, skip_if_both_null: bool
    ) -> None:
        super().__init__(store, caching=caching, send_old=send_old)
        self.compute = compute
        self.skip_if_both_null = skip_if_both_null and send_old

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        news, batch = collect(self.context, batch, lambda start: self.results(batch, start))
        return self.put(batch.with_values(news), skip_if_both_null=self.skip_if_both_null)

    def results(self, batch: Batch, start: int) -> Iterator[Any]:
        """New values from row `start` on."""
        return map(self.compute, rest(batch.keys, start), rest(batch.values, start))


class Transforming:
    """A transformer of the user's own, which may ask its context about the record at work."""

    def __init__(self, supplier: Callable[[], ValueTransformerWithKey[Any, Any, Any]]) -> None:
        self.transformer = supplier()

    def open(self, context: OperatorContext) -> None:
        """Show the transformer its context, which can't forward."""
        self.user = context.transformer_context()
        self.transformer.init(self.user)

    def __call__(self, key: Any, value: Any) -> Any:
        """The new value."""
        return self.transformer.transform(key, value)

    def at_each_row(self, batch: Batch, start: int, results: Iterator[T]) -> Iterator[T]:
        """The results, each computed while the context stands at its row."""
        for row in range(start, len(batch)):
            self.user.begin_row(batch, row)
            try:
                yield next(results)
            finally:
                self.user.end_row()

    def close(self) -> None:
        """The transformer will not be called again."""
        self.transformer.close()


class TableTransformValues(TableValues):
    """`transform_values` without a store: new and old value both pass through the transformer."""

    def __init__(
        self, supplier: Callable[[], ValueTransformerWithKey[Any, Any, Any]], *, send_old: bool
    ) -> None:
        self.transforming = Transforming(supplier)
        super().__init__(self.transforming, send_old=send_old, skip_if_both_null=False)

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self.transforming.open(context)

    def results(self, batch: Batch, start: int) -> Iterator[Any]:
        """See `TableValues.results`."""
        return self.transforming.at_each_row(batch, start, super().results(batch, start))

    def results_with_old(self, batch: Batch, start: int) -> Iterator[tuple[Any, Any]]:
        """See `TableValues.results_with_old`."""
        return self.transforming.at_each_row(batch, start, super().results_with_old(batch, start))

    def close(self) -> None:
        """See `Operator.close`."""
        self.transforming.close()


class StoredTableTransformValues(StoredTableValues):
    """`transform_values` with a store for its result."""

    def __init__(
        self,
        store: str,
        supplier: Callable[[], ValueTransformerWithKey[Any, Any, Any]],
        *,
        caching: bool,
        send_old: bool,
    ) -> None:
        self.transforming = Transforming(supplier)
        super().__init__(
            store, self.transforming, caching=caching, send_old=send_old, skip_if_both_null=False
        )

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self.transforming.open(context)

    def results(self, batch: Batch, start: int) -> Iterator[Any]:
        """See `StoredTableValues.results`."""
        return self.transforming.at_each_row(batch, start, super().results(batch, start))

    def close(self) -> None:
        """See `Operator.close`."""
        self.transforming.close()


class TableToStream(Operator):
    """A table's updates as a stream: new values only."""

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        return (
            batch if batch.olds is None and batch.latest is None else replace(batch, olds=None, latest=None)
        )
