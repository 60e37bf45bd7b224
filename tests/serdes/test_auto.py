from __future__ import annotations

import math
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import serdes
from millstream.errors import DeserializationError, MixedTypesError, SerdeError
from millstream.serdes import AutoSerde, ColumnError, Serde, deserialize_column, find_auto, serialize_column

INT64 = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.lists(JSON, max_size=3) | st.dictionaries(st.text(), JSON, max_size=3)
COLUMNS = st.one_of(
    *(
        st.lists(st.none() | kind, max_size=5)
        for kind in (
            st.text(),
            INT64,
            st.floats(allow_nan=False),
            st.booleans(),
            st.binary(),
            st.uuids(),
            DOCUMENTS,
        )
    )
)


@given(COLUMNS)
def test_a_column_of_one_type_round_trips(values: list[Any]) -> None:
    serde = serdes.auto.bind("counts")
    returned = deserialize_column(serde, serialize_column(serde, values))
    assert returned == values
    assert [type(value) for value in returned] == [type(value) for value in values]


@given(COLUMNS)
def test_one_by_one_gives_the_same_bytes_as_a_column(values: list[Any]) -> None:
    one, many = serdes.auto.bind("one"), serdes.auto.bind("many")
    expected = [None if value is None else one.serialize(value) for value in values]
    assert serialize_column(many, values) == expected
    assert many.inferred_type == one.inferred_type


@pytest.mark.parametrize(
    ("value", "learned", "explicit"),
    [
        ("a", "str", serdes.string),
        (7, "int", serdes.int64),
        (7.5, "float", serdes.double),
        (True, "bool", serdes.boolean),
        (b"a", "bytes", serdes.bytes),
        (UUID(int=7), "uuid", serdes.uuid),
        ({"b": 1, "a": [None, 2.5]}, "json", serdes.json),
        ([1, "a"], "json", serdes.json),
    ],
)
def test_the_first_value_decides_the_type(value: Any, learned: str, explicit: Serde[Any]) -> None:
    serde = serdes.auto.bind("topic")
    assert serde.serialize(value) == explicit.serialize(value)
    assert serde.inferred_type == learned


def test_dicts_and_lists_are_both_json() -> None:
    serde = serdes.auto.bind("topic")
    assert [serde.serialize({}), serde.serialize([])] == [b"{}", b"[]"]


def test_a_second_type_is_an_error_that_names_both_and_the_remedy() -> None:
    serde = serdes.auto.bind("word-counts")
    serde.serialize("river")
    with pytest.raises(MixedTypesError) as caught:
        serde.serialize(7)
    assert str(caught.value) == (
        "serdes.auto learned str for 'word-counts' and now got int (7). "
        "Likely cause: the program writes values of several types there. "
        "Remedy: convert them to one type, or give 'word-counts' an explicit serde, for example "
        "serdes.string or serdes.json."
    )


@pytest.mark.parametrize(
    ("first", "second", "suggestion"),
    [
        (1, 1.5, "serdes.double."),
        (1.5, 1, "serdes.double."),
        (1, True, "serdes.int64 or serdes.json."),
        (True, 1, "serdes.boolean or serdes.json."),
        ({}, "a", "serdes.json."),
    ],
)
def test_a_bool_is_not_an_int_and_an_int_is_not_a_float(first: Any, second: Any, suggestion: str) -> None:
    serde = serdes.auto.bind("topic")
    serde.serialize(first)
    with pytest.raises(MixedTypesError, match=f"for example {suggestion}$"):
        serde.serialize(second)
    assert serde.serialize(first)  # and goes on


def test_a_mixed_column_blames_the_first_value_of_the_second_type() -> None:
    serde = serdes.auto.bind("topic")
    with pytest.raises(ColumnError) as caught:
        serialize_column(serde, [None, "a", "b", 7, "c"])
    assert caught.value.index == 3
    assert isinstance(caught.value.cause, MixedTypesError)
    assert serde.inferred_type == "str"


def test_an_int_beyond_64_bits_is_refused_and_teaches_nothing() -> None:
    serde = serdes.auto.bind("topic")
    with pytest.raises(ValueError, match="9223372036854775808 does not fit into 64 bits"):
        serde.serialize(2**63)
    assert serde.inferred_type is None
    assert serde.serialize("a") == b"a"


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


@pytest.mark.parametrize("value", [(1, 2), {1, 2}, Colour.RED, Size.BIG, object(), bytearray(b"a")])
def test_other_types_and_subclasses_are_refused(value: Any) -> None:
    message = (
        "serdes.auto takes str, int, float, bool, bytes, uuid.UUID, dict and list, and no subclasses of "
        f"them, but got {type(value).__name__}; give 'topic' an explicit serde"
    )
    with pytest.raises(TypeError) as caught:
        serdes.auto.bind("topic").serialize(value)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "value", [{"a": (1, 2)}, {"a": math.nan}, {"a": UUID(int=1)}, {"a": b"bytes"}, [math.inf]]
)
def test_json_that_would_not_come_back_equal_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="the value would not come back equal from JSON"):
        serdes.auto.bind("topic").serialize(value)


def test_keys_of_a_dict_must_be_text() -> None:
    with pytest.raises(TypeError, match="str keys"):
        serdes.auto.bind("topic").serialize({1: 2})


@pytest.mark.parametrize("value", [10**5000, "x" * 10_000], ids=["int", "str"])
def test_the_message_stays_short_whatever_the_value(value: Any) -> None:
    serde = serdes.auto.bind("topic")
    serde.inferred_type = "bool"
    with pytest.raises(MixedTypesError) as caught:
        serde.serialize(value)
    assert len(str(caught.value)) < 400


def test_what_was_learned_can_be_set_from_outside() -> None:
    serde = serdes.auto.bind("topic")
    serde.inferred_type = "int"
    assert serde.deserialize(bytes(7) + b"\7") == 7
    with pytest.raises(MixedTypesError):
        serde.serialize("a")


def test_an_unknown_learned_type_is_refused() -> None:
    with pytest.raises(SerdeError, match="cannot go on with the type 'decimal': it knows str, int, float"):
        serdes.auto.bind("topic").inferred_type = "decimal"


def test_reading_before_anything_is_learned_says_so() -> None:
    with pytest.raises(DeserializationError) as caught:
        serdes.auto.bind("topic").deserialize(b"a")
    assert str(caught.value) == (
        "serdes.auto for 'topic' has learned no type yet, so it cannot read. "
        "Likely cause: the bytes were written by another program. Remedy: give 'topic' an explicit serde."
    )
    assert serdes.auto.bind("topic").deserialize_many([None, None]) == [None, None]


def test_each_name_learns_for_itself() -> None:
    left, right = serdes.auto.bind("left"), serdes.auto.bind("right")
    assert [left.serialize("a"), right.serialize(1)] == [b"a", bytes(7) + b"\1"]


@pytest.mark.parametrize("use", [lambda: serdes.auto.serialize("a"), lambda: serdes.auto.deserialize(b"a")])
def test_the_marker_itself_cannot_be_used(use: Any) -> None:
    with pytest.raises(
        SerdeError, match=r"Remedy: call serdes\.auto\.bind\('name of the topic or store'\) first"
    ):
        use()


def test_the_learning_serde_is_found_inside_wrappers() -> None:
    bound = serdes.bind(serdes.session_windowed(serdes.nullable(serdes.auto)), "counts")
    found = find_auto(bound)
    assert isinstance(found, AutoSerde)
    assert found.bound_to == "counts"
    assert find_auto(serdes.nullable(serdes.string)) is None
