from __future__ import annotations

import math
import struct
from typing import Any, assert_type
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import serdes
from millstream.serdes import Serde

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text()  # without surrogates, which UTF-8 cannot say


@given(st.binary())
def test_bytes_round_trip(value: bytes) -> None:
    assert serdes.bytes.deserialize(serdes.bytes.serialize(value)) == value


@given(TEXT)
def test_string_round_trips(value: str) -> None:
    assert serdes.string.deserialize(serdes.string.serialize(value)) == value


@given(INT16)
def test_int16_round_trips(value: int) -> None:
    assert serdes.int16.deserialize(serdes.int16.serialize(value)) == value


@given(INT32)
def test_int32_round_trips(value: int) -> None:
    assert serdes.int32.deserialize(serdes.int32.serialize(value)) == value


@given(INT64)
def test_int64_round_trips(value: int) -> None:
    assert serdes.int64.deserialize(serdes.int64.serialize(value)) == value


@given(st.floats(allow_nan=False))
def test_double_round_trips(value: float) -> None:
    returned = serdes.double.deserialize(serdes.double.serialize(value))
    assert (returned, math.copysign(1, returned)) == (value, math.copysign(1, value))


@given(st.floats(width=32, allow_nan=False))
def test_float32_round_trips(value: float) -> None:
    assert serdes.float32.deserialize(serdes.float32.serialize(value)) == value


@pytest.mark.parametrize("serde", [serdes.double, serdes.float32])
def test_nan_stays_nan(serde: Serde[float]) -> None:
    assert math.isnan(serde.deserialize(serde.serialize(math.nan)))


@given(st.booleans())
def test_boolean_round_trips(value: bool) -> None:
    assert serdes.boolean.deserialize(serdes.boolean.serialize(value)) is value


@given(st.uuids())
def test_uuid_round_trips(value: UUID) -> None:
    assert serdes.uuid.deserialize(serdes.uuid.serialize(value)) == value


@pytest.mark.parametrize(
    ("serde", "value", "golden"),
    [
        (serdes.int16, 258, "0102"),
        (serdes.int16, -2, "fffe"),
        (serdes.int32, 1, "00000001"),
        (serdes.int32, -1, "ffffffff"),
        (serdes.int32, -(2**31), "80000000"),
        (serdes.int64, 1, "0000000000000001"),
        (serdes.int64, -1, "ffffffffffffffff"),
        (serdes.int64, 2**63 - 1, "7fffffffffffffff"),
        (serdes.float32, 1.5, "3fc00000"),
        (serdes.double, 1.5, "3ff8000000000000"),
        (serdes.double, -0.0, "8000000000000000"),
        (serdes.boolean, True, "01"),
        (serdes.boolean, False, "00"),
        (serdes.string, "äß€😀", "c3a4c39fe282acf09f9880"),
        (serdes.string, "", ""),
        (
            serdes.uuid,
            UUID("0123ABCD-0123-4567-89ab-0123456789ab"),
            b"0123abcd-0123-4567-89ab-0123456789ab".hex(),
        ),
    ],
)
def test_bytes_are_those_of_kafka(serde: Serde[Any], value: Any, golden: str) -> None:
    assert serde.serialize(value).hex() == golden
    assert serde.deserialize(bytes.fromhex(golden)) == value


@given(TEXT, TEXT)
def test_strings_sort_as_their_bytes_do(left: str, right: str) -> None:
    assert (left < right) == (serdes.string.serialize(left) < serdes.string.serialize(right))


@given(INT64, INT64)
def test_numbers_of_one_sign_sort_as_their_bytes_do(left: int, right: int) -> None:
    in_bytes = serdes.int64.serialize(left) < serdes.int64.serialize(right)
    if (left < 0) == (right < 0):
        assert in_bytes == (left < right)
    else:
        assert in_bytes == (left >= 0)  # negative numbers come last, as in Kafka


@pytest.mark.parametrize(
    ("serde", "value", "message"),
    [
        (serdes.bytes, "text", "expected bytes, got str"),
        (serdes.bytes, bytearray(b"x"), "expected bytes, got bytearray"),
        (serdes.string, b"bytes", "expected str, got bytes"),
        (serdes.string, 7, "expected str, got int"),
        (serdes.int64, "7", "expected int, got str"),
        (serdes.int64, 7.0, "expected int, got float"),
        (serdes.int64, True, "expected int, got bool"),
        (serdes.double, "7", "expected float, got str"),
        (serdes.double, False, "expected float, got bool"),
        (serdes.boolean, 1, "expected bool, got int"),
        (serdes.uuid, str(UUID(int=1)), "expected uuid.UUID, got str"),
    ],
)
def test_a_value_of_another_type_is_refused(serde: Serde[Any], value: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        serde.serialize(value)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("serde", "value", "message"),
    [
        (serdes.int16, 2**15, "32768 does not fit into 16 bits"),
        (serdes.int32, 2**31, "2147483648 does not fit into 32 bits"),
        (serdes.int64, -(2**63) - 1, "-9223372036854775809 does not fit into 64 bits"),
        (serdes.double, 2**53 + 1, "9007199254740993 has no exact float"),
        (serdes.double, 10**400, "a number of 1329 bits has no exact float"),
        (serdes.int64, 2**300, "a number of 301 bits does not fit into 64 bits"),
        (serdes.float32, 2**24 + 1, "16777217 has no exact float"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(serde: Serde[Any], value: int, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        serde.serialize(value)
    assert str(caught.value) == message


@given(st.integers(-(2**53), 2**53))
def test_double_takes_a_whole_number_that_it_can_hold(value: int) -> None:
    assert serdes.double.serialize(value) == struct.pack(">d", value)


@pytest.mark.parametrize(
    ("serde", "data", "message"),
    [
        (serdes.int16, b"\0", "expected 2 bytes, got 1"),
        (serdes.int32, bytes(8), "expected 4 bytes, got 8"),
        (serdes.int64, b"", "expected 8 bytes, got 0"),
        (serdes.double, bytes(4), "expected 8 bytes, got 4"),
        (serdes.float32, bytes(8), "expected 4 bytes, got 8"),
        (serdes.boolean, b"\x02", "expected the one byte 00 or 01"),
        (serdes.boolean, b"", "expected the one byte 00 or 01"),
        (serdes.uuid, b"short", "expected the 36 characters of a UUID, got 5 bytes"),
        (serdes.uuid, b"-" * 4 + b"0" * 32, "expected a UUID written as 8-4-4-4-12 hex digits"),
        (serdes.uuid, b"{00000000-0000-0000-000000000000000}", "badly formed hexadecimal UUID string"),
        (serdes.string, b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (
            serdes.string,
            b"\xed\xa0\x80",
            "'utf-8' codec can't decode byte 0xed in position 0: invalid continuation byte",
        ),
    ],
)
def test_bytes_that_mean_nothing_are_refused(serde: Serde[Any], data: bytes, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        serde.deserialize(data)
    assert str(caught.value) == message


def test_half_a_character_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        serdes.string.serialize("\ud800")


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused_with_a_value_error(data: bytes) -> None:
    every: list[Serde[Any]] = [serdes.string, serdes.int16, serdes.int64, serdes.boolean, serdes.uuid]
    for serde in every:
        try:
            value = serde.deserialize(data)
        except ValueError:
            continue
        if serde is not serdes.uuid:  # capital letters are read, too
            assert serde.serialize(value) == data


def test_the_types_are_known_to_the_type_checker() -> None:
    assert_type(serdes.string.deserialize(b"a"), str)
    assert_type(serdes.int64.deserialize(bytes(8)), int)
    assert_type(serdes.double.deserialize(bytes(8)), float)
    assert_type(serdes.boolean.deserialize(b"\0"), bool)
    assert_type(serdes.uuid.deserialize(str(UUID(int=1)).encode()), UUID)
    with pytest.raises(TypeError):
        serdes.string.serialize(7)  # type: ignore[arg-type]
