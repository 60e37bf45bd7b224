"""Which join a method of `KStream` means: that depends on what the stream is joined with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from millstream.dsl.joins import JoinKind, StreamJoined, join_streams
from millstream.dsl.ktable import GlobalKTable, KTable
from millstream.dsl.table_joins import TableJoined, join_stream_with_global, join_stream_with_table
from millstream.errors import TopologyError
from millstream.windows import JoinWindows

if TYPE_CHECKING:
    from millstream.dsl.kstream import KStream

__all__ = ["join_stream"]

_OF_TABLES: Final = frozenset({"with_key", "key", "value", "name", "grace"})
_OF_GLOBAL_TABLES: Final = frozenset({"with_key", "name", "key_of"})


def join_stream(
    stream: KStream[Any, Any],
    other: Any,
    joiner: Any,
    windows: JoinWindows | None,
    kind: JoinKind,
    given: Mapping[str, Any],
) -> KStream[Any, Any]:
    """Join a stream with a table, a global table or another stream; `given` is what else the user said."""
    if kind.right and isinstance(other, KTable | GlobalKTable):
        raise _no_outer_join(other)
    if isinstance(other, KTable):
        said = _checked(kind, "a table", given, _OF_TABLES, windows)
        return join_stream_with_table(stream, other, joiner, kind, TableJoined(**said))
    if isinstance(other, GlobalKTable):
        said = _checked(kind, "a global table", given, _OF_GLOBAL_TABLES, windows)
        key_of = said.pop("key_of", None)
        return join_stream_with_global(stream, other, joiner, key_of, kind, TableJoined(**said))
    if not isinstance(other, type(stream)):
        others = "a stream" if kind.right else "a stream, a table or a global table"
        raise TopologyError(f"{kind.method}() with {other!r}. Remedy: join a stream with {others}")
    names = frozenset(one.name for one in fields(StreamJoined))
    said = _checked(kind, "a stream", given, names, None)
    return join_streams(stream, other, joiner, windows, kind, StreamJoined(**said))  # type: ignore[arg-type]


def _no_outer_join(table: KTable[Any, Any] | GlobalKTable[Any, Any]) -> TopologyError:
    remedy = "left_join() for all records of the stream, with their row or None"
    if isinstance(table, KTable):
        remedy += "; stream.to_table().outer_join(table, ...) for a table that follows both"
    return TopologyError(
        f"outer_join() of a stream with {table!r}: only records of a stream cause results, so that there is "
        f"no outer join with a table, nor has Kafka Streams one. Remedy: {remedy}"
    )


def _checked(
    kind: JoinKind, other: str, given: Mapping[str, Any], known: frozenset[str], windows: object
) -> dict[str, Any]:
    """What the user said, if it has a meaning here."""
    unknown = sorted(given.keys() - known) + (["windows"] if windows is not None else [])
    if unknown:
        raise TopologyError(
            f"{kind.method}() with {other} has no use for {unknown[0]}=. Remedy: leave it out; it takes "
            f"{', '.join(f'{name}=' for name in sorted(known))}"
        )
    return dict(given)
