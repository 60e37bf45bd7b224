"""``serdes.auto``: choose the serde by the Python type of the values.

``serdes.auto`` itself is a marker that says "not decided". The engine binds it to each topic and store,
and what it gets, an ``AutoSerde``, takes its type from the first value written there and keeps it. A
second type is an error: bytes carry no type, so a mixture could not be read back. What was learned can
be read and set (``inferred_type``), so that it outlives the process.

Values must be of exactly the types listed, since a subclass would come back as its base class.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any, NoReturn
from uuid import UUID

from millstream.errors import DeserializationError, MixedTypesError, SerdeError
from millstream.serdes.api import BaseSerde, Serde, short_repr
from millstream.serdes.json_serde import VerifiedJson, decode_json
from millstream.serdes.nullable_serde import NullableSerde
from millstream.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    FloatSerde,
    IntSerde,
    StringSerde,
    UuidSerde,
)
from millstream.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde


class _InferredJson(VerifiedJson[Any]):
    """Plain JSON, which must not show: the user did not choose it."""

    name = "serdes.json"


INFERRED_SERDES: dict[str, BaseSerde[Any]] = {
    "str": StringSerde(),
    "int": IntSerde("serdes.int64", ">q"),
    "float": FloatSerde("serdes.double", ">d"),
    "bool": BooleanSerde(),
    "bytes": BytesSerde(),
    "uuid": UuidSerde(),
    "json": _InferredJson(decode_json),
}
"""By the name of the type that was inferred. A later version may have inferred others."""
_LEARNED: dict[type, str] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    bytes: "bytes",
    UUID: "uuid",
    dict: "json",
    list: "json",
}
_EXACT: frozenset[type] = frozenset().union(*(serde.exact_types for serde in INFERRED_SERDES.values()))
_TAKES = "str, int, float, bool, bytes, uuid.UUID, dict and list"


class Auto(BaseSerde[Any]):
    """The marker ``serdes.auto``: the serde is chosen by the type of the values, per topic and store.

    >>> from millstream import serdes
    >>> serdes.auto
    serdes.auto
    >>> counts = serdes.auto.bind("counts")
    >>> counts.deserialize(counts.serialize(7))
    7
    """

    name = "serdes.auto"

    def bind(self, name: str) -> AutoSerde:
        """Return a serde that learns its type for one topic or store."""
        return AutoSerde(name)

    def serialize(self, value: Any, /) -> NoReturn:
        """Refuse: only a bound serde may learn."""
        del value
        raise _unbound()

    def deserialize(self, data: bytes, /) -> NoReturn:
        """Refuse: only a bound serde may learn."""
        del data
        raise _unbound()


class AutoSerde(BaseSerde[Any]):
    """``serdes.auto`` for one topic or store: its type is that of the first value.

    >>> from millstream import serdes
    >>> words = serdes.auto.bind("words")
    >>> words.serialize("river")
    b'river'
    >>> words.inferred_type
    'str'
    >>> words.serialize(7)
    Traceback (most recent call last):
    millstream.errors.MixedTypesError: serdes.auto learned str for 'words' and now got int (7). Likely cause:
    the program writes values of several types there. Remedy: convert them to one type, or give 'words' an
    explicit serde, for example serdes.string or serdes.json.
    """

    def __init__(self, bound_to: str) -> None:
        self.bound_to = bound_to
        self._inferred_type: str | None = None
        self._inner: BaseSerde[Any] | None = None

    @property
    def exact_types(self) -> frozenset[type]:  # type: ignore[override]
        """Those of the serde that was learned; before that, all that may be."""
        return _EXACT if self._inner is None else self._inner.exact_types

    @property
    def inferred_type(self) -> str | None:
        """The type in use (``str int float bool bytes uuid json``), or ``None`` before the first value.

        Set it to go on with what an earlier process learned.

        >>> counts = AutoSerde("counts")
        >>> counts.inferred_type = "int"
        >>> counts
        serdes.auto for 'counts' (int)
        """
        return self._inferred_type

    @inferred_type.setter
    def inferred_type(self, inferred_type: str | None) -> None:
        if inferred_type is not None and inferred_type not in INFERRED_SERDES:
            raise SerdeError(
                f"serdes.auto for {self.bound_to!r} cannot go on with the type {inferred_type!r}: it knows "
                f"{', '.join(INFERRED_SERDES)}. Likely cause: a later version of Millstream wrote it. "
                "Remedy: run that version."
            )
        self._inferred_type = inferred_type
        self._inner = None if inferred_type is None else INFERRED_SERDES[inferred_type]

    def serialize(self, value: Any, /) -> bytes:
        """Serialize the value; the first one decides the type."""
        kind = _LEARNED.get(type(value))
        if self._inner is not None and kind == self._inferred_type:
            return self._inner.serialize(value)
        kind = self._require_kind(value, kind)
        data = INFERRED_SERDES[kind].serialize(value)
        self.inferred_type = kind  # only now: a value that could not be written decides nothing
        return data

    def deserialize(self, data: bytes, /) -> Any:
        """Deserialize with the type that was learned."""
        return self._require_inner().deserialize(data)

    def serialize_many(self, values: Sequence[Any]) -> list[bytes | None]:
        kinds = {_LEARNED.get(kind) for kind in set(map(type, values)) if kind is not NoneType}
        if not kinds:
            return [None] * len(values)
        kind = kinds.pop()
        if kinds or kind is None or self._inferred_type not in {None, kind}:
            return super().serialize_many(values)  # raises at the right value
        column = INFERRED_SERDES[kind].serialize_many(values)
        self.inferred_type = kind
        return column

    def deserialize_many(self, column: Sequence[bytes | None]) -> list[Any]:
        if all(data is None for data in column):
            return [None] * len(column)
        return self._require_inner().deserialize_many(column)

    def _require_kind(self, value: object, kind: str | None) -> str:
        if kind is None:
            raise TypeError(
                f"serdes.auto takes {_TAKES}, and no subclasses of them, but got {type(value).__name__}; "
                f"give {self.bound_to!r} an explicit serde"
            )
        if self._inferred_type not in {None, kind}:
            raise MixedTypesError(
                f"serdes.auto learned {self._inferred_type} for {self.bound_to!r} and now got "
                f"{type(value).__name__} ({short_repr(value)}). Likely cause: the program writes values "
                f"of several types there. Remedy: convert them to one type, or give {self.bound_to!r} an "
                f"explicit serde, for example {_suggestion(self._inferred_type, kind)}."
            )
        return kind

    def _require_inner(self) -> BaseSerde[Any]:
        if self._inner is None:
            raise DeserializationError(
                f"serdes.auto for {self.bound_to!r} has learned no type yet, so it cannot read. Likely "
                f"cause: the bytes were written by another program. Remedy: give {self.bound_to!r} an "
                "explicit serde."
            )
        return self._inner

    def __repr__(self) -> str:
        return f"serdes.auto for {self.bound_to!r} ({self._inferred_type or 'nothing learned yet'})"


def find_auto(serde: Serde[Any]) -> AutoSerde | None:
    """Return the ``AutoSerde`` in a bound serde (itself, or inside a wrapper), if there is one.

    >>> from millstream import serdes
    >>> find_auto(serdes.nullable(serdes.auto).bind("counts"))
    serdes.auto for 'counts' (nothing learned yet)
    >>> find_auto(serdes.string) is None
    True
    """
    if isinstance(serde, AutoSerde):
        return serde
    if isinstance(serde, NullableSerde | TimeWindowedSerde | SessionWindowedSerde):
        return find_auto(serde.inner)
    return None


def _suggestion(inferred_type: str | None, kind: str) -> str:
    if {inferred_type, kind} == {"int", "float"}:
        return "serdes.double"
    known = INFERRED_SERDES[inferred_type].name if inferred_type else "serdes.json"
    return known if known == "serdes.json" else f"{known} or serdes.json"


def _unbound() -> SerdeError:
    return SerdeError(
        "serdes.auto chooses a serde per topic and store, so it cannot be used on its own. "
        "Remedy: call serdes.auto.bind('name of the topic or store') first, or use an explicit serde."
    )
