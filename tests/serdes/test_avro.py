from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import serdes

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FIELDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": ("string", TEXT),
    "number": ("long", st.integers(-(2**63), 2**63 - 1)),
    "small": ("int", st.integers(-(2**31), 2**31 - 1)),
    "double": ("double", st.floats(allow_nan=False)),
    "flag": ("boolean", st.booleans()),
    "data": ("bytes", st.binary()),
    "maybe": (["null", "string"], st.none() | TEXT),
    "many": ({"type": "array", "items": "long"}, st.lists(st.integers(-5, 5))),
    "named": ({"type": "map", "values": "long"}, st.dictionaries(st.text("abc"), st.integers(-5, 5))),
    "kind": ({"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, st.sampled_from("AB")),
}
SCHEMA = {
    "type": "record",
    "name": "Everything",
    "fields": [{"name": name, "type": kind} for name, (kind, _) in FIELDS.items()],
}
VALUES = st.fixed_dictionaries({name: values for name, (_, values) in FIELDS.items()})
OLD = {"type": "record", "name": "Order", "fields": [{"name": "shop", "type": "string"}]}
NEW = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "shop", "type": "string"}, {"name": "amount", "type": "long", "default": 1}],
}


@pytest.mark.parametrize("schema_id", [None, 7])
@given(value=VALUES)
def test_what_is_written_is_read_again(schema_id: int | None, value: dict[str, Any]) -> None:
    serde = serdes.avro(SCHEMA, schema_id=schema_id)
    data = serde.serialize(value)
    assert serde.deserialize(data) == value
    mixed_up = dict(reversed(value.items())) | {"named": dict(reversed(value["named"].items()))}
    assert serde.serialize(mixed_up) == data


@given(data=st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    serde = serdes.avro(NEW)
    try:
        value = serde.deserialize(data)
    except Exception:  # noqa: BLE001 - an ordinary exception, whichever
        return
    assert serde.deserialize(serde.serialize(value)) == value


def test_a_schema_may_be_json_text() -> None:
    assert serdes.avro(json.dumps(NEW)).serialize({"shop": "a", "amount": 2}) == b"\x02a\x04"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"shop": "a"}, "amount"),
        ({"shop": "a", "amount": 1, "note": "x"}, "note"),
        ({"shop": 1, "amount": 1}, "Order.shop is <1> of type <class 'int'> expected string"),
        ({"shop": "a", "amount": True}, "Order.amount is <True>"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_when_it_is_written(value: Any, says: str) -> None:
    with pytest.raises(Exception, match=says):
        serdes.avro(NEW).serialize(value)


def test_bytes_behind_the_value_are_refused() -> None:
    with pytest.raises(ValueError) as raised:
        serdes.avro("long").deserialize(b"\x02\x02")
    assert str(raised.value) == "1 bytes follow the value"


def test_the_wire_format_carries_the_id_of_the_schema() -> None:
    assert serdes.avro("long", schema_id=258).serialize(1) == b"\x00\x00\x00\x01\x02\x02"


def test_values_of_an_older_schema_are_read_into_the_new_one() -> None:
    old, new = serdes.avro(OLD, schema_id=6), serdes.avro(NEW, schema_id=7, older={6: OLD})
    assert new.deserialize(old.serialize({"shop": "a"})) == {"shop": "a", "amount": 1}
    with pytest.raises(ValueError) as raised:
        old.deserialize(new.serialize({"shop": "a", "amount": 2}))
    assert str(raised.value) == "written with the schema 7, but known are 6; give it with older={7: ...}"


def test_bytes_without_the_wire_format_are_refused() -> None:
    for data in (b"", b"\x00\x00", b"\x01\x00\x00\x00\x07\x02"):
        with pytest.raises(ValueError) as raised:
            serdes.avro("long", schema_id=7).deserialize(data)
        assert str(raised.value) == "expected a zero byte and the four bytes of a schema id in front"


def test_not_a_number_is_a_double() -> None:
    serde = serdes.avro("double")
    assert math.isnan(serde.deserialize(serde.serialize(math.nan)))


def test_a_serde_travels_and_names_its_schema() -> None:
    serde = copy.copy(
        serdes.avro(NEW, schema_id=7, older={6: OLD})
    )  # by __reduce__, as on its way to a worker
    assert serde.deserialize(b"\x00\x00\x00\x00\x06\x02a") == {"shop": "a", "amount": 1}
    assert repr(serde) == "serdes.avro(Order)"
    assert repr(serdes.avro(["null", "long"])) == "serdes.avro(a union)"
    assert repr(serdes.avro("long")) == "serdes.avro(long)"
