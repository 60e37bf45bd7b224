"""Descriptors: stable, without addresses, and equal if the bytes are."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from millstream import serdes
from millstream.serdes.descriptor import SerdeDescriptor, describe, incompatibility, with_inferred
from millstream.serdes.mean_serde import MeanSerde
from millstream.serdes.protobuf_shape import protobuf_incompatibility


class Plain:
    def serialize(self, value: str) -> bytes:
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


class Color(enum.Enum):
    RED = "red"


class MoreColors(enum.Enum):
    BLUE = "blue"
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: int


class Swapped(NamedTuple):
    right: int
    left: int


class Triple(NamedTuple):
    left: int
    right: int
    middle: int = 0


@dataclass
class Tree:
    """Has others inside."""

    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Bush:
    children: list[Bush] = field(default_factory=list)
    name: str = ""
    height: int | None = None


@dataclass
class Odd:
    name: str
    children: list[Odd | None] = field(default_factory=list)
    parent: Odd = None  # type: ignore[assignment]


class Named(msgspec.Struct, tag="named"):
    name: str


class Renamed(msgspec.Struct, tag="renamed"):
    name: str


ALL: list[Any] = [
    serdes.bytes,
    serdes.string,
    serdes.int16,
    serdes.int32,
    serdes.int64,
    serdes.float32,
    serdes.double,
    serdes.boolean,
    serdes.uuid,
    serdes.json,
    serdes.json({"a": int}),
    serdes.json(Tree),
    serdes.avro("long"),
    serdes.avro("long", schema_id=7),
    serdes.protobuf(Duration),
    serdes.protobuf(Struct),
    serdes.nullable(serdes.string),
    serdes.nullable(serdes.int64),
    serdes.time_windowed(serdes.string, 10),
    serdes.time_windowed(serdes.string, 20),
    serdes.session_windowed(serdes.string),
    MeanSerde(),
    Plain(),
]


def readable(old: Any, new: Any) -> bool:
    return incompatibility(describe(old), describe(new), same_bytes=False) is None


@pytest.mark.parametrize("one", range(len(ALL)))
def test_a_serde_takes_over_from_itself_and_from_no_other(one: int) -> None:
    taken = [number for number, other in enumerate(ALL) if readable(ALL[one], other)]
    assert taken == [one]


@pytest.mark.parametrize("serde", ALL)
def test_a_descriptor_comes_back_from_json_and_has_no_address(serde: Any) -> None:
    data = msgspec.json.encode(describe(serde))
    assert msgspec.json.decode(data, type=SerdeDescriptor) == describe(serde)
    assert b" at 0x" not in data


def test_two_instances_of_a_class_have_one_descriptor() -> None:
    assert describe(Plain()) == describe(Plain()) == SerdeDescriptor("Plain", module=__name__)


def test_a_class_that_moved_has_to_state_its_version() -> None:
    here, there = SerdeDescriptor("Plain", module="here"), SerdeDescriptor("Plain", module="there")
    assert incompatibility(here, there, same_bytes=False) == "were of here.Plain and are of there.Plain now"
    stated = msgspec.structs.replace(there, version="1")
    assert incompatibility(here, stated, same_bytes=False) is None
    assert incompatibility(here, SerdeDescriptor("Plain", module="__main__"), same_bytes=False) is None
    assert incompatibility(SerdeDescriptor("Plain"), stated, same_bytes=False) is not None


def test_a_subclass_of_ours_is_the_users_own() -> None:
    class Mine(serdes.TypedJsonSerde[Any]):
        pass

    assert describe(Mine({"a": int})).module == __name__


def test_an_automatic_serde_stands_for_what_it_has_learned() -> None:
    inside = describe(serdes.nullable(serdes.auto))
    assert with_inferred(inside, "str") == describe(serdes.nullable(serdes.string))
    assert with_inferred(inside, "of a later release") == inside
    assert incompatibility(describe(serdes.auto), describe(serdes.string), same_bytes=True) is None
    assert incompatibility(inside, describe(serdes.string), same_bytes=True) is not None
    bound = serdes.auto.bind("counts")
    bound.serialize(7)
    assert describe(bound) == describe(serdes.int64)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ({"a": int}, {"a": int | None}, None),
        ({"a": int | None}, {"a": None | int}, None),
        ({"a": int | None}, {"a": int}, "field 'a' was int | none and is int now"),
        ({"a": int}, {"a": float}, "field 'a' was int and is float now"),
        ({"a": list[int]}, {"a": list[str]}, "field 'a[]' was int and is str now"),
        ({"a": dict[str, int]}, {"a": dict[int, int]}, "field 'a[]' was str and is int now"),
        ({"a": tuple[int, int]}, {"a": tuple[int]}, "field 'a' was tuple[int, int] and is tuple[int] now"),
        ({"a": int}, {}, "field 'a' is gone"),
        (list[int], int, "the value was list[int] and is int now"),
        (Color, MoreColors, None),
        (MoreColors, Color, "the value may no longer be 'blue'"),
        (Literal["a"], Literal["b", "a"], None),
        (Pair, Triple, None),
        (Pair, Swapped, "the value is written by position, and its fields have moved"),
        (Tree, Tree, None),
        (Tree, Bush, None),
        (Bush, Tree, "field 'height' is gone"),
        (Tree, Odd, None),
        (Named, Renamed, "the value has another tag"),
    ],
)
def test_schemas_of_json_may_grow(old: Any, new: Any, why: str | None) -> None:
    found = incompatibility(describe(serdes.json(old)), describe(serdes.json(new)), same_bytes=False)
    expected = why and f"of serdes.json can't be taken over with their new schema: {why}"
    assert found == expected


def test_the_order_of_fields_and_the_name_of_a_class_are_of_no_account() -> None:
    @dataclass
    class One:
        a: int
        b: str

    @dataclass
    class Other:
        """Says the same."""

        b: str
        a: int

    assert describe(serdes.json(One)) == describe(serdes.json(Other))


ORDER = {"type": "record", "name": "Order", "fields": [{"name": "shop", "type": "string"}]}
DOCUMENTED = {**ORDER, "doc": "An order.", "fields": [{"name": "shop", "type": "string", "default": ""}]}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}


def test_an_avro_schema_without_an_id_may_not_change() -> None:
    assert readable(serdes.avro(ORDER), serdes.avro(DOCUMENTED))
    assert not readable(serdes.avro(ORDER), serdes.avro(WIDER))
    assert not readable(serdes.avro(ORDER), serdes.avro(ORDER, schema_id=1))


def test_an_avro_schema_with_an_id_has_to_be_known_still() -> None:
    old = serdes.avro(ORDER, schema_id=1)
    assert not readable(old, serdes.avro(WIDER, schema_id=1))
    assert not readable(old, serdes.avro(WIDER, schema_id=2))
    following = serdes.avro(WIDER, schema_id=2, older={1: ORDER})
    assert readable(old, following)
    assert incompatibility(describe(old), describe(following), same_bytes=True) is not None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ([{"1": "type 3"}], [{"1": "type 3", "2": "repeated type 5"}], None),
        ([{"1": "type 3"}], [{"1": "type 5"}], "field 1 has another type"),
        ([{"1": "type 3"}], [{"1": "repeated type 3"}], "field 1 has another type"),
        ([{"1": "type 3"}], [{}], "field 1 is gone"),
        ([{}], [{"1": "required type 3"}], "field 1 is new and required"),
        ([{"1": "type 11 of 1"}, {"1": "type 3"}], [{"1": "type 11 of 1"}, {}], "field 1: field 1 is gone"),
        ([{"1": "type 11 of 0"}], [{"1": "type 11 of 0"}], None),
    ],
)
def test_protobuf_messages_may_gain_fields(old: Any, new: Any, why: str | None) -> None:
    def shape(messages: Any) -> str:
        return msgspec.json.encode({"id": "none", "indexes": [0], "messages": messages, "name": "M"}).decode()

    assert protobuf_incompatibility(shape(old), shape(new)) == why


def test_protobuf_messages_are_known_by_their_names_and_fields() -> None:
    assert not readable(serdes.protobuf(Duration), serdes.protobuf(Timestamp))  # both: seconds and nanos
    assert not readable(serdes.protobuf(Duration), serdes.protobuf(Duration, schema_id=1))
    assert readable(serdes.protobuf(Duration, schema_id=1), serdes.protobuf(Duration, schema_id=2))
    framed = serdes.protobuf(Duration, schema_id=1)
    assert not readable(framed, serdes.protobuf(Duration, schema_id=1, indexes=(1,)))
