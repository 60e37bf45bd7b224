"""What most cases are made of.

String keys with string values are "words", string keys with int64 values are "numbers". Processors are made
from functions of context and record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

from millstream import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    Record,
    Store,
    StreamsBuilder,
    serdes,
)
from millstream.serdes import Serde

K = TypeVar("K")
KIn = TypeVar("KIn")
VIn = TypeVar("VIn")
KOut = TypeVar("KOut")
VOut = TypeVar("VOut")


class WordSerdes(TypedDict):
    key: Serde[str]
    value: Serde[str]


class NumberSerdes(TypedDict):
    key: Serde[str]
    value: Serde[int]


WORDS: WordSerdes = {"key": serdes.string, "value": serdes.string}
NUMBERS: NumberSerdes = {"key": serdes.string, "value": serdes.int64}

NULL: Any = None
"""A null where the types promise a value."""


def words(b: StreamsBuilder, topic: str) -> KStream[str, str]:
    return b.stream(topic, **WORDS)


def numbers(b: StreamsBuilder, topic: str) -> KStream[str, int]:
    return b.stream(topic, **NUMBERS)


def word_table(b: StreamsBuilder, topic: str, store: str | None = None) -> KTable[str, str]:
    return b.table(topic, **WORDS, store=None if store is None else word_store(store))


def number_table(b: StreamsBuilder, topic: str, store: str | None = None) -> KTable[str, int]:
    return b.table(topic, **NUMBERS, store=None if store is None else number_store(store))


def word_store(name: str, *, caching: bool = True) -> Store:
    return Store(name, **WORDS, caching=caching)


def number_store(name: str, *, caching: bool = True, logging: bool = True) -> Store:
    return Store(name, **NUMBERS, caching=caching, logging=logging)


def text(value: object) -> str:
    """A value as Java concatenates it."""
    return "null" if value is None else str(value)


def each(
    body: Callable[[ProcessorContext[KOut, VOut], Record[KIn, VIn]], object],
) -> Callable[[], Processor[KIn, VIn, KOut, VOut]]:
    """A supplier of processors that do `body(context, record)`."""
    return starting(lambda context: None, body)


def starting(
    start: Callable[[ProcessorContext[KOut, VOut]], object],
    body: Callable[[ProcessorContext[KOut, VOut], Record[KIn, VIn]], object],
) -> Callable[[], Processor[KIn, VIn, KOut, VOut]]:
    """A supplier of processors that do `start(context)` when they are initialised."""

    class Each(Processor[KIn, VIn, KOut, VOut]):
        def init(self, context: ProcessorContext[KOut, VOut]) -> None:
            super().init(context)
            start(context)

        def process(self, record: Record[KIn, VIn]) -> None:
            body(self.context, record)

    return Each


def each_value(
    body: Callable[[FixedKeyProcessorContext[K, VOut], FixedKeyRecord[K, VIn]], object],
) -> Callable[[], FixedKeyProcessor[K, VIn, VOut]]:
    """The same for processors that keep the key."""

    class EachValue(FixedKeyProcessor[K, VIn, VOut]):
        def process(self, record: FixedKeyRecord[K, VIn]) -> None:
            body(self.context, record)

    return EachValue


@dataclass(frozen=True)
class Route:
    """A topic extractor with a name of its own, because the description of a topology spells it out."""

    name: str
    choice: Callable[[Any, Any, Any], str]

    def __call__(self, key: Any, value: Any, context: Any) -> str:
        return self.choice(key, value, context)

    def __str__(self) -> str:
        return self.name
