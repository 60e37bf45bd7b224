from __future__ import annotations

import copy
import pickle
from typing import Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import serdes
from millstream.errors import (
    DeserializationError,
    MillstreamError,
    MixedTypesError,
    SerdeError,
    SerializationError,
)
from millstream.serdes import Serde, describe_bytes, serde_failure


def cause_of(serde: Serde[Any], data: bytes) -> Exception:
    with pytest.raises(ValueError) as caught:
        serde.deserialize(data)
    return caught.value


def test_bad_bytes_name_topic_partition_offset_serde_and_first_bytes() -> None:
    data = b"\x89PNG and more of the picture"
    error = serde_failure(
        cause_of(serdes.string, data),
        serde=serdes.string,
        data=data,
        part="key",
        topic="orders",
        partition=3,
        offset=41,
    )
    assert_type(error, DeserializationError)
    assert str(error) == (
        "Cannot deserialize the key of topic 'orders', partition 3, offset 41 with serdes.string: 'utf-8' "
        "codec can't decode byte 0x89 in position 0: invalid start byte (28 bytes, first 16: "
        "89 50 4e 47 20 61 6e 64 20 6d 6f 72 65 20 6f 66 '.PNG and more of'). "
        "Likely cause: another serde wrote these bytes. "
        "Remedy: read with the serde that wrote them (key= or value=), or choose a deserialization handler "
        "that skips or dead-letters bad records."
    )
    assert (error.topic, error.partition, error.offset, error.store) == ("orders", 3, 41, None)


def test_a_wrong_type_names_topic_serde_and_value() -> None:
    error = serde_failure(TypeError("expected str, got int"), serde=serdes.string, value=7, topic="orders")
    assert_type(error, SerializationError)
    assert str(error) == (
        "Cannot serialize the value of topic 'orders' with serdes.string: expected str, got int (it is 7). "
        "Likely cause: the value is not what this serde takes. "
        "Remedy: give the serde of its type (key= or value= of the operator that writes here), or convert "
        "the value before."
    )


def test_a_store_is_named_and_has_its_own_remedy() -> None:
    error = serde_failure(ValueError("bad"), serde=serdes.int64, data=b"a", store="counts", partition=2)
    assert str(error) == (
        "Cannot deserialize the value of store 'counts', partition 2 with serdes.int64: bad "
        "(1 byte: 61 'a'). "
        "Likely cause: an earlier version of the program wrote the store with another serde, or the store is "
        "damaged. "
        "Remedy: give the store the serde it was written with, or rebuild it from its changelog."
    )


def test_without_a_place_it_still_reads_well() -> None:
    error = serde_failure(KeyError("x"), serde=serdes.int64, value=None)
    assert str(error).startswith("Cannot serialize a value with serdes.int64: KeyError: 'x' (it is None).")


def test_mixed_types_stay_mixed_types() -> None:
    cause = MixedTypesError("serdes.auto learned str for 'orders' and now got int (7). Remedy: choose.")
    error = serde_failure(cause, serde=serdes.auto.bind("orders"), value=7, topic="orders")
    assert isinstance(error, MixedTypesError)
    assert str(error).endswith(f": {cause}")
    assert str(error).count("Remedy") == 1


def test_a_huge_value_is_shortened() -> None:
    error = serde_failure(TypeError("no"), serde=serdes.int64, value="x" * 10_000)
    assert len(str(error)) < 500


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no picture of me")


def test_a_value_that_cannot_be_shown_does_not_hide_the_error() -> None:
    error = serde_failure(TypeError("expected int, got Hostile"), serde=serdes.int64, value=Hostile())
    assert "expected int, got Hostile (it is <Hostile instance at" in str(error)


@given(st.binary())
def test_any_bytes_can_be_described_in_one_printable_line(data: bytes) -> None:
    text = describe_bytes(data)
    assert text.isprintable()
    assert len(text) < 110


@pytest.mark.parametrize("cls", [SerdeError, SerializationError, DeserializationError, MixedTypesError])
def test_errors_survive_a_trip_between_processes(cls: type[SerdeError]) -> None:
    error = cls("bad", topic="orders", partition=3, offset=41)
    for returned in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert isinstance(returned, cls)
        assert (str(returned), vars(returned)) == (str(error), vars(error))
    assert isinstance(error, MillstreamError)
