from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import serdes
from millstream.record import Window, Windowed
from millstream.serdes import ColumnError, Serde, deserialize_column, serialize_column

GOOD: list[tuple[Serde[Any], Any]] = [
    (serdes.bytes, b"a"),
    (serdes.string, "a"),
    (serdes.int16, 1),
    (serdes.int32, 1),
    (serdes.int64, 1),
    (serdes.float32, 1.5),
    (serdes.double, 1.5),
    (serdes.boolean, True),
    (serdes.uuid, UUID(int=1)),
    (serdes.json, {"a": 1}),
    (serdes.json({"a": int}), {"a": 1}),
    (serdes.nullable(serdes.string), "a"),
    (serdes.time_windowed(serdes.string, 10), Windowed("a", Window(0, 10))),
    (serdes.session_windowed(serdes.string), Windowed("a", Window(0, 5))),
]


@pytest.mark.parametrize(("serde", "value"), GOOD)
def test_a_column_is_the_same_as_one_by_one(serde: Serde[Any], value: Any) -> None:
    data = serde.serialize(value)
    assert serialize_column(serde, [value, None, value]) == [data, None, data]
    assert deserialize_column(serde, [data, None, data]) == [value, None, value]
    assert serialize_column(serde, []) == deserialize_column(serde, []) == []
    assert serialize_column(serde, (None,)) == deserialize_column(serde, (None,)) == [None]


@pytest.mark.parametrize(("serde", "value"), GOOD)
@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_bad_value_is_found_where_it_stands(serde: Serde[Any], value: Any, at: int) -> None:
    values = [value, None, value, value, value]
    values[at] = object()
    with pytest.raises(ColumnError) as caught:
        serialize_column(serde, values)
    assert caught.value.index == at
    assert caught.value.__cause__ is caught.value.cause


@pytest.mark.parametrize(("serde", "value"), [pair for pair in GOOD if pair[0] is not serdes.bytes])
@pytest.mark.parametrize("at", [0, 1, 4])
def test_bad_bytes_are_found_where_they_stand(serde: Serde[Any], value: Any, at: int) -> None:
    data = serde.serialize(value)
    column = [data, None, data, data, data]
    column[at] = b"\xff\xfe\xfd"
    with pytest.raises(ColumnError) as caught:
        deserialize_column(serde, column)
    assert caught.value.index == at


def test_a_bool_in_a_column_of_numbers_is_found() -> None:
    with pytest.raises(ColumnError, match="expected int, got bool"):
        serialize_column(serdes.int64, [1, True])
    with pytest.raises(ColumnError, match="expected float, got bool"):
        serialize_column(serdes.double, [1.5, True])


def test_whole_numbers_may_stand_in_a_column_of_doubles() -> None:
    assert serialize_column(serdes.double, [1, 1.0]) == [serdes.double.serialize(1.0)] * 2


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_columns_of_numbers_round_trip(values: list[int | None]) -> None:
    assert deserialize_column(serdes.int64, serialize_column(serdes.int64, values)) == values


@given(st.lists(st.none() | st.text()))
def test_columns_of_text_round_trip(values: list[str | None]) -> None:
    assert deserialize_column(serdes.string, serialize_column(serdes.string, values)) == values


class Moody:
    """Fails the second time it is asked, as a serde that asks a server may."""

    def __init__(self) -> None:
        self.asked = 0

    def serialize(self, value: str) -> bytes:
        self.asked += 1
        if self.asked == 2:
            raise ConnectionError(value)
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


def test_the_cause_belongs_to_the_entry_that_is_named() -> None:
    with pytest.raises(ColumnError) as caught:
        serialize_column(Moody(), ["a", None, "b", "c"])
    assert (caught.value.index, str(caught.value.cause)) == (2, "b")
