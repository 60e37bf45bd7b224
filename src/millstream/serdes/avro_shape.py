"""The schemas of an Avro serde as text, and whether another one reads what it wrote.

Bare values do not say by which schema they were written: any other schema would take them for something else.
In Confluent's wire format they do, so all schemas that were known have to be known still, by the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from millstream.serdes.avro_serde import AvroSerde

_BARE: Final = "none"
_OF_NO_BYTES: Final = frozenset({"doc", "aliases", "default", "order"})
"""What a schema may say that changes no byte of a value."""


def avro_shape(serde: AvroSerde) -> str:
    """Describe the schemas that a serde writes and reads.

    >>> from millstream import serdes
    >>> avro_shape(serdes.avro("long"))
    '{"schemas":{"none":"long"},"writes":"none"}'
    """
    writes = _BARE if serde.schema_id is None else str(serde.schema_id)
    schemas = {str(number): _plain(schema) for number, schema in serde.writers.items()} or {
        _BARE: _plain(serde.parsed)
    }
    return json.dumps({"schemas": schemas, "writes": writes}, sort_keys=True, separators=(",", ":"))


def avro_incompatibility(old: str, new: str) -> str | None:
    """Why what one serde wrote can't be read by another; None if it can.

    >>> from millstream import serdes
    >>> old, new = serdes.avro("int", schema_id=1), serdes.avro("long", schema_id=2)
    >>> avro_incompatibility(avro_shape(old), avro_shape(new))
    'the schema of id 1 is not known any more (older={1: ...})'
    >>> avro_incompatibility(avro_shape(old), avro_shape(serdes.avro("long", schema_id=2, older={1: "int"})))
    """
    before, after = json.loads(old), json.loads(new)
    if (before["writes"] == _BARE) != (after["writes"] == _BARE):
        return "values had a schema id in front or not, and it is the other way round now"
    for number, schema in before["schemas"].items():
        if number not in after["schemas"]:
            return f"the schema of id {number} is not known any more (older={{{number}: ...}})"
        if after["schemas"][number] != schema:
            return "the schema is another" if number == _BARE else f"the schema of id {number} is another"
    return None


def _plain(schema: Any) -> Any:
    """A parsed schema without what is only for readers, and what fastavro has noted in it."""
    if isinstance(schema, Mapping):
        kept = {
            name: part
            for name, part in schema.items()
            if name not in _OF_NO_BYTES and not name.startswith("__")
        }
        return {name: part if name == "symbols" else _plain(part) for name, part in kept.items()}
    return [_plain(part) for part in schema] if isinstance(schema, list | tuple) else schema
