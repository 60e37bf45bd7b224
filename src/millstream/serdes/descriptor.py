"""What a serde is, in a form that can be kept: which bytes it writes, as far as that can be told.

A store's bytes carry no type. So what wrote them is kept beside them, and a program that would read them with
something else is refused instead of reading nonsense. Two serdes of equal descriptors write equal bytes.

Ours are known by their public names, wherever their classes are. A serde of the user's own is known by its
class and by a `version`, if it has one (1 if not): what its methods do is not known. A class may move to
another module only if it states its version, for two modules may well have a class of one name; the module
that was started is called ``__main__``, so that name says nothing.

``serdes.auto`` has no bytes of its own. Its descriptor says just that, and stands for the serde of the type
that was inferred, which is kept already: so a program may replace it by that serde. Before it has
inferred anything it has not written anything either, and whatever comes next will do. The other way
round it will not: of what an explicit serde wrote, nothing was inferred, and the first value to come
could be of any type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from millstream.serdes.api import BaseSerde
from millstream.serdes.auto_serde import INFERRED_SERDES, Auto, AutoSerde
from millstream.serdes.avro_serde import AvroSerde
from millstream.serdes.avro_shape import avro_incompatibility, avro_shape
from millstream.serdes.json_serde import JsonSerde, TypedJsonSerde
from millstream.serdes.json_shape import json_incompatibility, json_shape
from millstream.serdes.mean_serde import MeanSerde
from millstream.serdes.nullable_serde import NullableSerde
from millstream.serdes.primitives import PRIMITIVES
from millstream.serdes.protobuf_serde import ProtobufSerde
from millstream.serdes.protobuf_shape import protobuf_incompatibility, protobuf_shape
from millstream.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

_AUTO: Final = "serdes.auto"
_FIRST_VERSION: Final = "1"
_STARTED: Final = "__main__"


class SerdeDescriptor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A serde as a manifest keeps it. Fields may be added: what has its default is not written."""

    name: str
    module: str = ""
    """Of a serde of the user's own."""
    version: str = ""
    """Of a serde of the user's own that states one."""
    schema: str = ""
    """What the bytes are made of, if a schema decides that."""
    inner: SerdeDescriptor | None = None

    def __str__(self) -> str:
        if self.name == _AUTO:
            return "serdes.auto, which has inferred no type there"
        version = f" (version {self.version})" if self.version else ""
        inner = f"({self.inner})" if self.inner is not None else ""
        return f"{self.module}{'.' * bool(self.module)}{self.name}{version}{inner}"


def describe(serde: Any) -> SerdeDescriptor:
    """Describe a serde; None is `serdes.auto`.

    >>> from millstream import serdes
    >>> print(describe(serdes.nullable(serdes.int64)))
    serdes.nullable(serdes.int64)
    >>> class Celsius:
    ...     version = 2
    >>> describe(Celsius()).name, describe(Celsius()).version
    ('Celsius', '2')
    """
    if serde is None:
        return SerdeDescriptor(_AUTO)
    make = _OURS.get(type(serde))
    if make is not None:
        return make(serde)
    version = getattr(serde, "version", "")
    return SerdeDescriptor(
        type(serde).__qualname__,
        module=type(serde).__module__,
        version=str(version) if isinstance(version, int | str) else "",
    )


def with_inferred(descriptor: SerdeDescriptor, inferred_type: str | None) -> SerdeDescriptor:
    """The descriptor with the serde that was inferred in the place of `serdes.auto`.

    >>> print(with_inferred(describe(None), "int"))
    serdes.int64
    """
    if descriptor.name == _AUTO and inferred_type is not None:
        serde = INFERRED_SERDES.get(inferred_type)
        return descriptor if serde is None else SerdeDescriptor(serde.name)
    if descriptor.inner is not None:
        return msgspec.structs.replace(descriptor, inner=with_inferred(descriptor.inner, inferred_type))
    return descriptor


def incompatibility(old: SerdeDescriptor, new: SerdeDescriptor, *, same_bytes: bool) -> str | None:
    """Why what the old serde wrote can't be taken over by the new one; None if it can.

    Values have to be readable. Keys must have the same bytes (`same_bytes`), or nobody would find them.

    >>> from millstream import serdes
    >>> incompatibility(describe(serdes.int64), describe(serdes.string), same_bytes=False)
    'were of serdes.int64 and are of serdes.string now'
    """
    if old == new or old.name == _AUTO:
        return None
    if not _is_same_class(old, new):
        return f"were of {old} and are of {new} now"
    if old.inner is not None and new.inner is not None:
        found = incompatibility(old.inner, new.inner, same_bytes=same_bytes)
        if found is not None:
            return f"were of {old} and are of {new} now" if old.inner.name != new.inner.name else found
    if old.schema == new.schema:
        return None
    compare = _SCHEMAS.get(old.name)
    if compare is None:
        return f"of {old} had {old.schema} and have {new.schema} now"
    why = compare(old.schema, new.schema)
    if same_bytes:
        why = why or compare(new.schema, old.schema) or "they differ"
        return f"of {new} would get other bytes by their new schema, and not be found: {why}"
    return None if why is None else f"of {new} can't be taken over with their new schema: {why}"


def _is_same_class(old: SerdeDescriptor, new: SerdeDescriptor) -> bool:
    if old.name != new.name or (old.version or _FIRST_VERSION) != (new.version or _FIRST_VERSION):
        return False
    if not old.module or not new.module:
        return old.module == new.module
    return old.module == new.module or bool(new.version) or _STARTED in {old.module, new.module}


def _by_name(serde: BaseSerde[Any]) -> SerdeDescriptor:
    return SerdeDescriptor(serde.name)


_SCHEMAS: Final[dict[str, Callable[[str, str], str | None]]] = {
    "serdes.json": json_incompatibility,
    "serdes.avro": avro_incompatibility,
    "serdes.protobuf": protobuf_incompatibility,
}
_OURS: Final[dict[type, Callable[[Any], SerdeDescriptor]]] = {
    **dict.fromkeys((*PRIMITIVES, MeanSerde, JsonSerde, Auto), _by_name),
    AutoSerde: lambda serde: with_inferred(SerdeDescriptor(_AUTO), serde.inferred_type),
    TypedJsonSerde: lambda serde: SerdeDescriptor("serdes.json", schema=json_shape(serde.schema)),
    AvroSerde: lambda serde: SerdeDescriptor("serdes.avro", schema=avro_shape(serde)),
    ProtobufSerde: lambda serde: SerdeDescriptor("serdes.protobuf", schema=protobuf_shape(serde)),
    NullableSerde: lambda serde: SerdeDescriptor("serdes.nullable", inner=describe(serde.inner)),
    SessionWindowedSerde: lambda serde: SerdeDescriptor(
        "serdes.session_windowed", inner=describe(serde.inner)
    ),
    TimeWindowedSerde: lambda serde: SerdeDescriptor(
        "serdes.time_windowed", schema=f"windows of {serde.window_size_ms} ms", inner=describe(serde.inner)
    ),
}
"""By exact type: a subclass may do anything."""
