"""Avro: values by a schema that the user gives, in Avro's binary encoding. Needs the extra ``avro``.

Without ``schema_id`` a topic holds bare values, so reader and writer must know the same schema. With it the
bytes are Confluent's wire format: each value says by which schema it was written, and is read into ours by
Avro's rules of evolution.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from millstream.serdes.api import BaseSerde
from millstream.serdes.confluent_wire import framed, unframed

Schema = str | Mapping[str, Any] | Sequence[Any]
"""A schema as JSON text, as the objects that such text stands for, or the name of a simple type."""


class AvroSerde(BaseSerde[Any]):
    """Avro of one schema; made by ``serdes.avro(schema)``.

    >>> from millstream import serdes
    >>> serdes.avro("long").schema
    'long'
    """

    def __init__(self, schema: Schema, schema_id: int | None, older: Mapping[int, Schema]) -> None:
        self.schema = schema
        self.schema_id = schema_id
        self.older = dict(older)
        self.parsed = _parsed(schema)
        self.writers = {number: _parsed(one) for number, one in self.older.items()}
        if schema_id is not None:
            self.writers[schema_id] = self.parsed
        self._has_maps = '"map"' in json.dumps(self.parsed)
        self.name = f"serdes.avro({_title(self.parsed)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.schema, self.schema_id, self.older)

    def serialize(self, value: Any, /) -> bytes:
        """Check and encode the value."""
        from fastavro import schemaless_writer  # noqa: PLC0415 - an extra
        from fastavro.validation import validate  # noqa: PLC0415 - an extra

        validate(value, self.parsed, strict=True)
        file = BytesIO()
        # The entries of a map have no order of their own: the same map must give the same bytes.
        schemaless_writer(file, self.parsed, _sorted(value) if self._has_maps else value, strict=True)
        data = file.getvalue()
        return data if self.schema_id is None else framed(self.schema_id, data)

    def deserialize(self, data: bytes, /) -> Any:
        """Decode the value, by the schema that it was written with."""
        from fastavro import schemaless_reader  # noqa: PLC0415 - an extra

        writer = self.parsed
        if self.schema_id is not None:
            number, data = unframed(data)
            writer = self._writer(number)
        file = BytesIO(data)
        value = schemaless_reader(file, writer, None if writer is self.parsed else self.parsed)
        if file.tell() != len(data):
            raise ValueError(f"{len(data) - file.tell()} bytes follow the value")
        return value

    def _writer(self, number: int) -> Any:
        if number not in self.writers:
            known = ", ".join(map(str, sorted(self.writers)))
            raise ValueError(
                f"written with the schema {number}, but known are {known}; "
                f"give it with older={{{number}: ...}}"
            )
        return self.writers[number]


def avro(
    schema: Schema, *, schema_id: int | None = None, older: Mapping[int, Schema] | None = None
) -> AvroSerde:
    r"""Return a serde for values of an Avro schema.

    ``schema_id`` writes and expects Confluent's wire format; ``older`` are the schemas of other ids that may
    be read.

    >>> from millstream import serdes
    >>> order = serdes.avro(
    ...     {
    ...         "type": "record",
    ...         "name": "Order",
    ...         "fields": [{"name": "shop", "type": "string"}, {"name": "amount", "type": "long"}],
    ...     }
    ... )
    >>> order.serialize({"shop": "north", "amount": 3})
    b'\nnorth\x06'
    >>> order.deserialize(order.serialize({"shop": "north", "amount": 3}))
    {'shop': 'north', 'amount': 3}
    """
    return AvroSerde(schema, schema_id, older or {})


def _parsed(schema: Schema) -> Any:
    try:
        from fastavro import parse_schema  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(
            "serdes.avro needs fastavro. Remedy: pip install 'millstream[avro]', also on Spark's workers"
        ) from error
    given: Any = schema
    if isinstance(schema, str) and schema.lstrip().startswith(("{", "[", '"')):
        given = json.loads(schema)
    return parse_schema(given)


def _title(parsed: Any) -> str:
    if isinstance(parsed, Mapping):
        return str(parsed.get("name") or parsed.get("type"))
    return parsed if isinstance(parsed, str) else "a union"


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return type(value)(map(_sorted, value))
    return value
