from __future__ import annotations

import copy
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from millstream import serdes

SECONDS = st.integers(-(2**63), 2**63 - 1)
NANOS = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize("schema_id", [None, 7])
@given(seconds=SECONDS, nanos=NANOS)
def test_what_is_written_is_read_again(schema_id: int | None, seconds: int, nanos: int) -> None:
    serde = serdes.protobuf(Duration, schema_id=schema_id)
    message = Duration(seconds=seconds, nanos=nanos)
    assert serde.deserialize(serde.serialize(message)) == message


@given(pairs=st.dictionaries(st.text("abcdef", max_size=3), st.integers(-9, 9)))
def test_equal_messages_give_equal_bytes(pairs: dict[str, int]) -> None:
    serde = serdes.protobuf(Struct)
    one, other = Struct(), Struct()
    one.update(pairs)
    other.update(dict(reversed(pairs.items())))
    assert serde.serialize(one) == serde.serialize(other)


def test_another_message_is_refused() -> None:
    with pytest.raises(TypeError) as raised:
        serdes.protobuf(Duration).serialize(Struct())
    assert str(raised.value) == "expected Duration, got Struct"


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(Exception, match="parsing message"):
        serdes.protobuf(Duration).deserialize(b"\x08")


@pytest.mark.parametrize(
    ("indexes", "written"), [((0,), "00"), ((1,), "0202"), ((2, 0), "040400"), ((100,), "02c801")]
)
def test_the_wire_format_carries_the_schema_and_the_place_of_the_message(
    indexes: tuple[int, ...], written: str
) -> None:
    serde = serdes.protobuf(Duration, schema_id=258, indexes=indexes)
    data = serde.serialize(Duration(seconds=1))
    assert data.hex() == f"0000000102{written}0801"
    assert serde.deserialize(data) == Duration(seconds=1)


def test_another_message_of_the_same_schema_is_refused() -> None:
    first, second = (serdes.protobuf(Duration, schema_id=7, indexes=(place,)) for place in (0, 1))
    with pytest.raises(ValueError) as raised:
        second.deserialize(first.serialize(Duration()))
    assert str(raised.value) == "another message of the schema than [1]"


@pytest.mark.parametrize("wrong", [Duration(), dict, "Duration"])
def test_only_a_class_of_messages_will_do(wrong: Any) -> None:
    with pytest.raises(TypeError, match="is no class of Protobuf messages"):
        serdes.protobuf(wrong)


def test_a_serde_travels_and_names_its_class() -> None:
    serde = copy.copy(serdes.protobuf(FileDescriptorProto, schema_id=7))  # by __reduce__, as to a worker
    message = FileDescriptorProto(name="a.proto")
    assert serde.deserialize(serde.serialize(message)) == message
    assert repr(serde) == "serdes.protobuf(FileDescriptorProto)"
