"""The stores of an application as its last manifest describes them: to read them without its program.

The manifest says what kind each store is, with which serdes it was written and, of windows, how long they
are. So tools can read committed state that no program is at hand for. A serde of the user's own can't be
made from its description: bytes are shown then.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from millstream import serdes
from millstream.commit.manifest import Manifest
from millstream.serdes import Serde
from millstream.serdes.descriptor import SerdeDescriptor, with_inferred
from millstream.serdes.mean_serde import MeanSerde
from millstream.state.specs import StoreBuilder, StoreKind
from millstream.topology.plan import Plan, SubTopology
from millstream.topology.stored_types import KeyValueTypes

_KINDS: Final = {kind.value: kind for kind in StoreKind}
_DUPLICATES: Final = " with duplicates"
_ORDERED: Final = " ordered by time"
_LONGEST_MS: Final = 1 << 60
"""The retention is not known: nothing of what is there is hidden."""
_BYTES: Final = SerdeDescriptor("serdes.bytes")


def plan_of(head: Manifest) -> Plan:
    """A plan that has the stores of an application, and nothing else."""
    subs = tuple(_subtopology(head, sub) for sub in head.plan["subtopologies"] if sub["stores"])
    return Plan(subs, (), {}, ())


def _subtopology(head: Manifest, sub: dict[str, Any]) -> SubTopology:
    stores = {store["name"]: _store(head, store) for store in sub["stores"]}
    return SubTopology(
        number=sub["number"],
        level=0,
        is_global=False,
        nodes={},
        children={},
        stores=stores,
        units=(),
        ordered=False,
        looked_up=frozenset(),
        copied={},
        copies={},
    )


def _store(head: Manifest, store: dict[str, Any]) -> StoreBuilder:
    name, layout = store["name"], store["kind"]
    types = _types(head, name)
    kind = _KINDS[layout.removesuffix(_ORDERED).removesuffix(_DUPLICATES)]
    inferred = {part: known for of, part, known in head.inferred_types if of == name}
    is_segmented = StoreBuilder(name, kind, retention_ms=0).is_segmented
    return StoreBuilder(
        name,
        kind,
        serde_of(with_inferred(types.key, inferred.get("key"))),
        serde_of(with_inferred(types.value, inferred.get("value"))),
        logging=store["logging"],
        retention_ms=_LONGEST_MS if is_segmented else None,
        segment_interval_ms=_LONGEST_MS if is_segmented else None,
        window_size_ms=types.window_size_ms,
        retain_duplicates=_DUPLICATES in layout,
        time_ordered=layout.endswith(_ORDERED),
        source_topic=store.get("source_topic"),
    )


def _types(head: Manifest, store: str) -> KeyValueTypes:
    if isinstance(head.types, msgspec.UnsetType):
        return KeyValueTypes(_BYTES, _BYTES)
    return head.types.stores.get(store, KeyValueTypes(_BYTES, _BYTES))


def serde_of(descriptor: SerdeDescriptor) -> Serde[Any]:
    """A serde that reads what the described one wrote; bytes, if that can't be told.

    >>> from millstream.serdes.descriptor import describe
    >>> serde_of(describe(serdes.int64)), serde_of(describe(serdes.nullable(serdes.string)))
    (serdes.int64, serdes.nullable(serdes.string))
    >>> serde_of(SerdeDescriptor("Celsius", module="sensors"))
    serdes.bytes
    """
    make = _MAKE.get(descriptor.name) if not descriptor.module else None
    if make is not None:
        return make(descriptor)
    name = descriptor.name.removeprefix("serdes.")
    found = getattr(serdes, name, None) if name in _PLAIN and not descriptor.module else None
    return serdes.bytes if found is None else found


def _inner(descriptor: SerdeDescriptor) -> Serde[Any]:
    return serdes.bytes if descriptor.inner is None else serde_of(descriptor.inner)


def _avro(descriptor: SerdeDescriptor) -> Serde[Any]:
    shape = json.loads(descriptor.schema)
    writes, schemas = shape["writes"], shape["schemas"]
    try:
        if not writes.isdigit():
            return serdes.avro(schemas[writes])
        older = {int(number): schema for number, schema in schemas.items() if number != writes}
        return serdes.avro(schemas[writes], schema_id=int(writes), older=older)
    except ImportError:  # the extra is not installed here
        return serdes.bytes


def _time_windowed(descriptor: SerdeDescriptor) -> Serde[Any]:
    size_ms = int("".join(filter(str.isdigit, descriptor.schema)) or 1)
    return serdes.time_windowed(_inner(descriptor), size_ms)


_PLAIN: Final = frozenset(
    {"bytes", "string", "int16", "int32", "int64", "float32", "double", "boolean", "uuid", "json"}
)
_MAKE: Final[dict[str, Callable[[SerdeDescriptor], Serde[Any]]]] = {
    MeanSerde.name: lambda _: MeanSerde(),
    "serdes.nullable": lambda found: serdes.nullable(_inner(found)),
    "serdes.session_windowed": lambda found: serdes.session_windowed(_inner(found)),
    "serdes.time_windowed": _time_windowed,
    "serdes.avro": _avro,
}
