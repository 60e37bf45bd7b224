"""How the joins of `KStream` are called, for checkers of types: it depends on what is joined."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

from millstream.serdes import Serde
from millstream.windows import JoinWindows

if TYPE_CHECKING:
    import polars as pl

    from millstream.dsl.kstream import KStream
    from millstream.dsl.ktable import GlobalKTable, KTable

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VO = TypeVar("VO")


class _Join(Protocol[K, V]):
    """With a stream, with a table, with a global table; with tables also by an expression."""

    @overload
    def __call__(
        self,
        other: KStream[K, VO],
        joiner: Callable[..., V2],
        windows: JoinWindows,
        *,
        with_key: bool = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        name: str | None = None,
        store: str | None = None,
        logging: bool = True,
    ) -> KStream[K, V2]: ...
    @overload
    def __call__(
        self,
        other: KTable[K, VO],
        joiner: Callable[..., V2],
        *,
        with_key: bool = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
        grace: int | timedelta | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def __call__(
        self,
        other: KTable[K, VO],
        joiner: pl.Expr,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
        grace: int | timedelta | None = None,
    ) -> KStream[K, Any]: ...
    @overload
    def __call__(
        self,
        other: GlobalKTable[K2, VO],
        joiner: Callable[..., V2],
        *,
        key_of: Callable[[K, V], K2 | None],
        with_key: bool = False,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def __call__(
        self,
        other: GlobalKTable[K2, VO],
        joiner: pl.Expr,
        *,
        key_of: Callable[[K, V], K2 | None],
        name: str | None = None,
    ) -> KStream[K, Any]: ...


class _OuterJoin(Protocol[K, V]):
    """With a stream alone."""

    def __call__(
        self,
        other: KStream[K, VO],
        joiner: Callable[..., V2],
        windows: JoinWindows,
        *,
        with_key: bool = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        name: str | None = None,
        store: str | None = None,
        logging: bool = True,
    ) -> KStream[K, V2]: ...


class _JoinOf(Protocol):
    def __get__(self, stream: KStream[K, V], owner: object = None, /) -> _Join[K, V]: ...


class _OuterJoinOf(Protocol):
    def __get__(self, stream: KStream[K, V], owner: object = None, /) -> _OuterJoin[K, V]: ...


def typed_join(method: Callable[..., KStream[Any, Any]]) -> _JoinOf:
    """The method as it is: only checkers of types see more of it."""
    return cast("_JoinOf", method)


def typed_outer_join(method: Callable[..., KStream[Any, Any]]) -> _OuterJoinOf:
    """The method as it is: only checkers of types see more of it."""
    return cast("_OuterJoinOf", method)
