"""Operators that keep nothing: filter, map, flat_map and their kin on streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from itertools import chain, compress, repeat
from operator import itemgetter
from types import FunctionType
from typing import Any, Final

from millstream.processors.batch import Batch
from millstream.processors.columns.column import repeated_rows
from millstream.processors.operator import Emission, Operator, as_pair, collect, rest


class PassThrough(Operator):
    """Hands rows on. A merge is one: the interleaving of its parents has happened in front of it."""

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        return batch


class Filter(Operator):
    """Keeps the rows for which the predicate holds."""

    def __init__(self, predicate: Callable[[Any, Any], Any]) -> None:
        self.predicate = predicate

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        verdicts, batch = _over_keys_and_values(self, batch, self.predicate)
        return _keep(batch, verdicts)


class FilterNot(Operator):
    """Keeps the rows for which the predicate does not hold."""

    def __init__(self, predicate: Callable[[Any, Any], Any]) -> None:
        self.predicate = predicate

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        verdicts, batch = _over_keys_and_values(self, batch, self.predicate)
        return _keep(batch, [not verdict for verdict in verdicts])


class DropNullKeys(Operator):
    """In front of a repartition: a row without a key belongs to no partition.

    Many keys become a column here: they are about to be grouped and hashed as one.
    """

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        keys = batch.keys.packed()
        if keys is not batch.keys:
            # What is grouped by itself, as words are: one column for both.
            return replace(batch, keys=keys, values=keys if batch.values is batch.keys else batch.values)
        if None not in batch.keys:
            return batch
        return batch.take(batch.keys.present())


class Map(Operator):
    """A new key and value for each row."""

    def __init__(self, mapper: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self.mapper = mapper

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        pairs, batch = collect(
            self.context,
            batch,
            lambda start: map(as_pair, map(self.mapper, rest(batch.keys, start), rest(batch.values, start))),
        )
        return batch.with_columns(list(map(itemgetter(0), pairs)), list(map(itemgetter(1), pairs)))


class SelectKey(Operator):
    """A new key for each row."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self.mapper = mapper

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        if answers_the_value(self.mapper):
            return batch.with_columns(batch.values, batch.values)
        keys, batch = _over_keys_and_values(self, batch, self.mapper)
        return batch.with_columns(keys, batch.values)


class MapValues(Operator):
    """A new value for each row, from its value."""

    def __init__(self, mapper: Callable[[Any], Any]) -> None:
        self.mapper = mapper

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        values, batch = collect(
            self.context, batch, lambda start: map(self.mapper, rest(batch.values, start))
        )
        return batch.with_values(values)


class MapValuesWithKey(Operator):
    """A new value for each row, from its key and value."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self.mapper = mapper

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        values, batch = _over_keys_and_values(self, batch, self.mapper)
        return batch.with_values(values)


class FlatMap(Operator):
    """Any number of new rows for each."""

    def __init__(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]) -> None:
        self.mapper = mapper

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        lists, batch = collect(
            self.context,
            batch,
            lambda start: map(
                list_of_pairs, map(self.mapper, rest(batch.keys, start), rest(batch.values, start))
            ),
            explain_iterable,
        )
        return exploded_pairs(batch, lists)


class FlatMapValues(Operator):
    """Any number of new values for each row, from its value."""

    def __init__(self, mapper: Callable[[Any], Iterable[Any]]) -> None:
        self.mapper = mapper

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        lists, batch = collect(
            self.context,
            batch,
            lambda start: map(list, map(self.mapper, rest(batch.values, start))),
            explain_iterable,
        )
        return exploded(batch, lists)


class FlatMapValuesWithKey(Operator):
    """Any number of new values for each row, from its key and value."""

    def __init__(self, mapper: Callable[[Any, Any], Iterable[Any]]) -> None:
        self.mapper = mapper

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        lists, batch = collect(
            self.context,
            batch,
            lambda start: map(list, map(self.mapper, rest(batch.keys, start), rest(batch.values, start))),
            explain_iterable,
        )
        return exploded(batch, lists)


class Peek(Operator):
    """Shows each row to an action and hands it on."""

    def __init__(self, action: Callable[[Any, Any], Any]) -> None:
        self.action = action

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        return _over_keys_and_values(self, batch, self.action)[1]


class Foreach(Operator):
    """Shows each row to an action. Nothing goes on."""

    def __init__(self, action: Callable[[Any, Any], Any]) -> None:
        self.action = action

    def process(self, batch: Batch) -> Emission:
        """See `Operator.process`."""
        _over_keys_and_values(self, batch, self.action)
        return None


def answers_the_value(mapper: Callable[[Any, Any], Any]) -> bool:
    """Whether a function does nothing but answer its second argument: then nobody has to call it.

    >>> answers_the_value(lambda _, word: word), answers_the_value(lambda _, word: word.lower())
    (True, False)
    """
    if not isinstance(mapper, FunctionType):
        return False
    code, known = mapper.__code__, _SECOND.__code__
    takes_two = code.co_argcount == 2 and not code.co_kwonlyargcount and not code.co_flags & _ODD  # noqa: PLR2004
    return takes_two and code.co_code == known.co_code


_SECOND: Final[Any] = lambda _, value: value  # noqa: E731 - it is compared with what users write
_ODD: Final = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def _over_keys_and_values(
    operator: Operator, batch: Batch, function: Callable[[Any, Any], Any]
) -> tuple[list[Any], Batch]:
    return collect(
        operator.context,
        batch,
        lambda start: map(function, rest(batch.keys, start), rest(batch.values, start)),
    )


def _keep(batch: Batch, verdicts: Sequence[Any]) -> Batch:
    kept = list(compress(range(len(batch)), verdicts))
    return batch if len(kept) == len(batch) else batch.take(kept)


def _parents(batch: Batch, lists: Sequence[Sequence[Any]]) -> Sequence[int]:
    counts = list(map(len, lists))
    if batch.timestamps.in_arrow:
        return repeated_rows(counts)
    return list(chain.from_iterable(map(repeat, range(len(lists)), counts)))


def exploded(batch: Batch, lists: Sequence[Sequence[Any]]) -> Batch:
    """A row for each value of each list, in the place of the list's own row."""
    return batch.expand(_parents(batch, lists), None, list(chain.from_iterable(lists)))


def exploded_pairs(batch: Batch, lists: Sequence[Sequence[tuple[Any, Any]]]) -> Batch:
    """A row for each (key, value) of each list, in the place of the list's own row."""
    pairs = list(chain.from_iterable(lists))
    keys, values = list(map(itemgetter(0), pairs)), list(map(itemgetter(1), pairs))
    return batch.expand(_parents(batch, lists), keys, values)


def list_of_pairs(result: Iterable[Any]) -> list[tuple[Any, Any]]:
    """What a mapper answered, checked pair by pair."""
    return list(map(as_pair, result))


def explain_iterable(error: Exception) -> Exception:
    """Say what a mapper should have answered, if it answered something else."""
    if isinstance(error, TypeError) and "not iterable" in str(error):
        return TypeError(
            f"the mapper must return an iterable of results (an empty one for none): {error}"
        ).with_traceback(error.__traceback__)
    return error
