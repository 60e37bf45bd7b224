"""What cases of joins are made of: words on the left, words on the right, and "left+right" as the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from tests.semantics.registry import case
from tests.semantics.shapes import WORDS, text

from millstream import KStream, KTable, Store, StreamsBuilder

INNER_AND_LEFT = ("join", "left_join")
KINDS = (*INNER_AND_LEFT, "outer_join")

Body: TypeAlias = Callable[[StreamsBuilder, str], object]


def plus(left: object, right: object) -> str:
    return f"{text(left)}+{text(right)}"


def keyed(key: object, left: object, right: object) -> str:
    return f"{text(key)}:{text(left)}+{text(right)}"


def for_each(family: str, methods: Iterable[str] = KINDS) -> Callable[[Body], Body]:
    """Register a topology for each kind of join: `body(builder, method)` under "family_method_body"."""

    def registered(body: Body) -> Body:
        for method in methods:
            case(f"{family}_{method}_{body.__name__}", partial(_built, body, method))
        return body

    return registered


def _built(body: Body, method: str, b: StreamsBuilder) -> None:
    body(b, method)


def by_value(stream: KStream[str, str]) -> KStream[Any, str]:
    """Keyed by the value without its first letter."""
    return stream.select_key(lambda k, v: text_after_first(v))


def text_after_first(value: str | None) -> Any:
    return None if value is None else value[1:]


def letter_of(value: str | None) -> Any:
    """One of three keys for values of the generator: "w5"."""
    return None if value is None else "abc"[ord(value[1]) % 3]


def word_versions(name: str, history: int) -> Store:
    return Store(name, **WORDS, versioned=history)


def to_out(table: KTable[Any, Any]) -> None:
    table.to_stream().to("out", **WORDS)
