from __future__ import annotations

from typing import assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import serdes


@given(st.none() | st.text())
def test_none_and_values_round_trip(value: str | None) -> None:
    serde = serdes.nullable(serdes.string)
    assert serde.deserialize(serde.serialize(value)) == value


@given(st.none() | st.none() | st.integers(-(2**63), 2**63 - 1))
def test_wrappers_may_be_nested(value: int | None) -> None:
    serde = serdes.nullable(serdes.nullable(serdes.int64))
    assert serde.deserialize(serde.serialize(value)) == value


def test_the_flag_is_one_byte() -> None:
    serde = serdes.nullable(serdes.string)
    assert [serde.serialize(None), serde.serialize(""), serde.serialize("a")] == [b"\0", b"\1", b"\1a"]


@pytest.mark.parametrize("data", [b"", b"\2", b"\0a", b"a"])
def test_other_flags_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected a first byte 01, or the one byte 00 for None"):
        serdes.nullable(serdes.string).deserialize(data)


def test_the_null_of_a_column_stays_a_null() -> None:
    assert serdes.nullable(serdes.string).serialize_many(["a", None]) == [b"\1a", None]


def test_its_name_contains_the_inner_name() -> None:
    assert repr(serdes.nullable(serdes.int64)) == "serdes.nullable(serdes.int64)"


def test_the_types_are_known_to_the_type_checker() -> None:
    assert_type(serdes.nullable(serdes.string).deserialize(b"\0"), str | None)
