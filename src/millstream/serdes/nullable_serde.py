"""``None`` inside a value: one flag byte in front of another serde's bytes.

For parts of composite values. The value of a record or of a store is another matter: there ``None`` is a null
(a tombstone), which the engine keeps away from every serde, this one included.
"""

from __future__ import annotations

from typing import TypeVar

from millstream.serdes.api import BaseSerde, Serde, bind, of, require_bytes, serde_name

T = TypeVar("T")

_NULL = b"\x00"
_PRESENT = b"\x01"


class NullableSerde(BaseSerde[T | None]):
    """``00`` for ``None``, ``01`` and the inner serde's bytes for everything else."""

    def __init__(self, inner: Serde[T]) -> None:
        of(inner)
        self.inner = inner

    def serialize(self, value: T | None, /) -> bytes:
        """Return the flag and the inner bytes."""
        if value is None:
            return _NULL
        return _PRESENT + require_bytes(self.inner, self.inner.serialize(value))

    def deserialize(self, data: bytes, /) -> T | None:
        """Read the flag, then the inner bytes."""
        if data == _NULL:
            return None
        if data[:1] == _PRESENT:
            return self.inner.deserialize(data[1:])
        raise ValueError("expected a first byte 01, or the one byte 00 for None")

    def bind(self, name: str) -> NullableSerde[T]:
        return NullableSerde(bind(self.inner, name))

    def __repr__(self) -> str:
        return f"serdes.nullable({serde_name(self.inner)})"


def nullable(inner: Serde[T]) -> NullableSerde[T]:
    r"""Return a serde that takes ``None`` besides the inner serde's values.

    >>> from millstream import serdes
    >>> maybe = serdes.nullable(serdes.string)
    >>> maybe.serialize(None), maybe.serialize("")
    (b'\x00', b'\x01')
    >>> maybe.deserialize(b"\x01river")
    'river'
    """
    return NullableSerde(inner)
