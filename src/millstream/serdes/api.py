"""What a serde is: a way to turn values into bytes and back.

Any object with ``serialize`` and ``deserialize`` is a serde; subclassing is not needed. ``BaseSerde`` adds a
readable name for messages and bulk methods, which the engine uses when a serde has them.

What a serde may assume: ``None`` never reaches it. A null key or value is the caller's business (a null
value is a tombstone), so a column's ``None`` stays ``None``. Only ``serdes.nullable`` takes ``None``
itself. What it owes: ``deserialize(serialize(value))`` equals the value, the same value always gives the
same bytes, and any bytes may arrive, so ``deserialize`` raises an ordinary exception for those it does
not understand.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar, cast

T = TypeVar("T")

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60


class Serde(Protocol[T]):
    """Turns values of one type into bytes and back.

    >>> class Celsius:
    ...     def serialize(self, value: float) -> bytes:
    ...         return f"{value:.1f}".encode()
    ...
    ...     def deserialize(self, data: bytes) -> float:
    ...         return float(data)
    >>> serde: Serde[float] = Celsius()
    >>> serde.deserialize(serde.serialize(21.5))
    21.5
    """

    def serialize(self, value: T, /) -> bytes:
        """Return the value's bytes. The same value must always give the same bytes: they may be a key."""
        ...

    def deserialize(self, data: bytes, /) -> T:
        """Return the value that the bytes stand for, or raise. The bytes may be anything at all."""
        ...


class BaseSerde(Generic[T]):
    r"""A serde with a name and with bulk methods. Override ``serialize`` and ``deserialize``.

    >>> class Hex(BaseSerde[str]):
    ...     name = "hex"
    ...
    ...     def serialize(self, value: str) -> bytes:
    ...         return bytes.fromhex(value)
    ...
    ...     def deserialize(self, data: bytes) -> str:
    ...         return data.hex()
    >>> Hex()
    hex
    >>> Hex().serialize_many(["ff", None])
    [b'\xff', None]
    """

    name: str = ""
    version: int | str = ""
    """Change it when the bytes change: a store that another version wrote is refused. None given means 1."""
    exact_types: frozenset[type] = frozenset()
    """Immutable types whose values come back from their bytes as they were: a copy by bytes is no copy.

    Values of other types are put through their bytes wherever one record at a time would do so.
    """

    def serialize(self, value: T, /) -> bytes:
        """Return the value's bytes."""
        raise NotImplementedError(f"{type(self).__name__} does not define serialize()")

    def deserialize(self, data: bytes, /) -> T:
        """Return the value that the bytes stand for, or raise."""
        raise NotImplementedError(f"{type(self).__name__} does not define deserialize()")

    def serialize_many(self, values: Sequence[T | None]) -> list[bytes | None]:
        """Serialize a column; ``None`` stays ``None``. May raise anything at the first value that fails."""
        serialize = self.serialize
        return [None if value is None else require_bytes(self, serialize(value)) for value in values]

    def deserialize_many(self, column: Sequence[bytes | None]) -> list[T | None]:
        """Deserialize a column; ``None`` stays ``None``. May raise anything at the first entry that fails."""
        deserialize = self.deserialize
        return [None if data is None else deserialize(data) for data in column]

    def bind(self, name: str) -> BaseSerde[T]:
        """Return the serde to use for the topic or store called ``name``: itself, unless it learns by use."""
        del name
        return self

    def __repr__(self) -> str:
        return self.name or type(self).__name__


def of(candidate: object) -> Serde[object]:
    """Return the object if it is a serde, else raise TypeError.

    >>> from millstream import serdes
    >>> serdes.of(serdes.string)
    serdes.string
    >>> serdes.of(str)
    Traceback (most recent call last):
    TypeError: str is not a serde: it has no serialize() and no deserialize(). Likely cause: a type was
    given where a serde is expected. Remedy: give one of millstream.serdes (for str: serdes.string) or your
    own object with both methods.
    """
    missing = [name for name in ("serialize", "deserialize") if not callable(getattr(candidate, name, None))]
    if not missing and not isinstance(candidate, type):
        return cast("Serde[object]", candidate)
    raise TypeError(_not_a_serde(candidate, missing))


_FOR_TYPE = {
    "str": "serdes.string",
    "int": "serdes.int64",
    "float": "serdes.double",
    "bool": "serdes.boolean",
    "bytes": "serdes.bytes",
    "UUID": "serdes.uuid",
    "dict": "serdes.json",
    "list": "serdes.json",
}

_NAMES = frozenset(
    ["string", "bytes", "int16", "int32", "int64", "float32", "double", "boolean", "uuid", "json", "auto"]
)


def _not_a_serde(candidate: object, missing: list[str]) -> str:
    lacks = " and ".join(f"no {name}()" for name in missing)
    if isinstance(candidate, str) and candidate in _NAMES:
        return f"{candidate!r} is not a serde, but the name of one. Remedy: give serdes.{candidate} itself."
    if not isinstance(candidate, type):
        return (
            f"{candidate!r} is not a serde: it has {lacks}. Remedy: give one of millstream.serdes, or "
            "your own object with serialize(value) -> bytes and deserialize(bytes) -> value."
        )
    name = candidate.__name__
    if not missing:
        return f"{name} is a serde class, but an instance is needed. Remedy: give {name}() instead of {name}."
    return (
        f"{name} is not a serde: it has {lacks}. Likely cause: a type was given where a serde is expected. "
        f"Remedy: give one of millstream.serdes (for {name}: {_FOR_TYPE.get(name, f'serdes.json({name})')}) "
        "or your own object with both methods."
    )


def bind(serde: Serde[T], name: str) -> Serde[T]:
    """Return the serde to use for one topic or store.

    ``serdes.auto`` (also inside a windowed or nullable serde) becomes an ``AutoSerde`` that learns for
    this name only; every other serde is returned as it is.

    >>> from millstream import serdes
    >>> bind(serdes.string, "orders")
    serdes.string
    >>> bind(serdes.auto, "orders")
    serdes.auto for 'orders' (nothing learned yet)
    """
    return serde.bind(name) if isinstance(serde, BaseSerde) else serde


def serde_name(serde: object) -> str:
    """Return how a serde is called in messages.

    >>> from millstream import serdes
    >>> serde_name(serdes.int64)
    'serdes.int64'
    >>> class Mine: ...
    >>> serde_name(Mine())
    'Mine'
    """
    if isinstance(serde, BaseSerde):
        return repr(serde)
    name = getattr(serde, "name", None)
    return name if isinstance(name, str) and name else type(serde).__name__


def require_bytes(serde: object, data: object) -> bytes:
    """Return ``data`` if it is bytes; a user's own serde may have returned something else."""
    if isinstance(data, bytes):
        return data
    raise TypeError(
        f"serialize() of {serde_name(serde)} returned {type(data).__name__}, but bytes are needed"
    )


def short_repr(value: object) -> str:
    """Return a value's repr for a message, shortened; a value that cannot be shown never hides an error.

    >>> short_repr(list(range(100)))
    '[0, 1, 2, 3, 4, 5, ...]'
    >>> short_repr(10**5000)
    '<int that cannot be shown>'
    """
    try:
        return _short.repr(value)
    except Exception:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"<{type(value).__name__} that cannot be shown>"


def wrong_type(expected: str, value: object) -> TypeError:
    """Return the error of a built-in serde that was given a value of another type."""
    return TypeError(f"expected {expected}, got {type(value).__name__}")
