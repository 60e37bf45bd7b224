"""A codec gives exactly the values and bytes of its serde, or gives up."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import Window, Windowed, serdes
from millstream.processors.columns.column import Column
from millstream.record import MAX_TIME
from millstream.serdes.columns import Codec, codec_of, codec_to_write
from millstream.task.column_codec import encoded

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
INT64 = st.integers(-(2**63), 2**63 - 1)
SCHEMA: dict[str, Any] = {
    "shop": str,
    "amount": pl.Int16,
    "price": float | None,
    "tags": list[str],
    "place": {"x": int, "name": str | None},
    "parts": pl.List(pl.Struct({"b": pl.Float64, "a": pl.Boolean})),
}
RECORDS = st.fixed_dictionaries(
    {
        "shop": TEXT,
        "amount": st.none() | st.integers(-(2**15), 2**15 - 1),
        "price": st.none() | NUMBERS,
        "tags": st.lists(TEXT, max_size=2),
        "place": st.fixed_dictionaries({"x": INT64, "name": st.none() | TEXT}),
        "parts": st.none()
        | st.lists(
            st.none() | st.fixed_dictionaries({"b": st.none() | NUMBERS, "a": st.none() | st.booleans()}),
            max_size=2,
        ),
    }
)
CASES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "bytes": (serdes.bytes, st.binary(max_size=4)),
    "string": (serdes.string, TEXT),
    "int16": (serdes.int16, st.integers(-(2**15), 2**15 - 1)),
    "int32": (serdes.int32, st.integers(-(2**31), 2**31 - 1)),
    "int64": (serdes.int64, INT64),
    "float32": (serdes.float32, st.floats(width=32, allow_nan=False)),
    "double": (serdes.double, st.floats(allow_nan=False)),
    "boolean": (serdes.boolean, st.booleans()),
    "json": (serdes.json(SCHEMA), RECORDS),
}


SESSIONS = st.tuples(TEXT, st.integers(0, MAX_TIME), st.integers(0, MAX_TIME)).map(
    lambda one: Windowed(one[0], Window(min(one[1:]), max(one[1:])))
)
WINDOWED: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "time windows": (
        serdes.time_windowed(serdes.string, 10),
        st.builds(lambda name, start: Windowed(name, Window(start, start + 10)), TEXT, st.integers(0, 2**62)),
    ),
    "numbers in time windows": (
        serdes.time_windowed(serdes.int32, 2**62),
        st.builds(
            lambda number, start: Windowed(number, Window(start, min(start + 2**62, MAX_TIME))),
            st.integers(-5, 5),
            st.integers(0, MAX_TIME - 1),
        ),
    ),
    "sessions": (serdes.session_windowed(serdes.string), SESSIONS),
}


@pytest.mark.parametrize("name", WINDOWED)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_columns_of_windowed_keys_are_what_the_serde_says(name: str, data: st.DataObject) -> None:
    serde, values = WINDOWED[name]
    drawn = data.draw(st.lists(st.none() | values, max_size=6))
    written = serde.serialize_many(drawn)
    read = codec(serde).decode(pl.Series(written, dtype=pl.Binary))
    assert read.dtype == codec(serde).dtype
    shown_as = codec(serde).shown_as
    assert shown_as is not None
    assert list(Column.of_series(read, shown_as)) == drawn
    assert codec(serde).encode(read).to_list() == written
    moved = Column(drawn).moved_to_arrow(codec(serde).dtype)
    assert (list(moved), list(moved.take(Column([0][: len(drawn)])))) == (drawn, drawn[:1])
    found = encoded(serde, moved)
    assert found is not None
    assert list(found) == written


def test_an_automatic_serde_inside_of_a_window_learns_the_type_of_its_keys() -> None:
    serde = serdes.time_windowed(serdes.auto, 10).bind("windows")
    keys = Column([Windowed(7, Window(0, 10))])
    assert codec_of(serde) is None
    found = encoded(serde, keys.moved_to_arrow())
    assert found is not None
    assert list(found) == [serde.serialize(keys[0])]
    assert codec(serde).dtype == pl.Struct({"key": pl.Int64, "start": pl.Int64, "end": pl.Int64})


@pytest.mark.parametrize(
    ("serde", "column"),
    [
        (serdes.time_windowed(serdes.string, 10), Column([Windowed("a", Window(0, 11))]).moved_to_arrow()),
        (serdes.time_windowed(serdes.string, 10), Column([Windowed(5, Window(0, 10))]).moved_to_arrow()),
        (
            serdes.time_windowed(serdes.string, 10),
            Column.of_series(pl.Series([{"key": "a", "start": 0, "end": 10}])),
        ),
    ],
)
def test_what_a_serde_of_windows_would_refuse_is_left_to_it(serde: Any, column: Column) -> None:
    assert encoded(serde, column) is None
    with pytest.raises((TypeError, ValueError)):
        serde.serialize(column[0])


def test_other_serdes_see_a_windowed_key_as_such_not_as_a_record_of_columns() -> None:
    assert encoded(serdes.json, Column([Windowed("a", Window(0, 10))]).moved_to_arrow()) is None


@pytest.mark.parametrize("data", [b"", b"1234567"])
def test_a_window_that_is_too_short_is_left_to_the_serde(data: bytes) -> None:
    assert gives_up(codec(WINDOWED["time windows"][0]).decode, pl.Series([data]))


def gives_up(function: Callable[[Any], Any], argument: Any) -> bool:
    try:
        function(argument)
    except Exception:  # noqa: BLE001 - a codec may raise anything
        return True
    return False


def codec(serde: Any) -> Codec:
    found = codec_of(serde)
    assert found is not None
    return found


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_columns_are_what_the_serde_says(name: str, data: st.DataObject) -> None:
    serde, values = CASES[name]
    column = data.draw(st.lists(st.none() | values, max_size=6))
    written = serde.serialize_many(column)
    bytes_column = pl.Series(written, dtype=pl.Binary)
    read = codec(serde).decode(bytes_column)
    assert read.dtype == codec(serde).dtype
    assert read.to_list() == column
    assert codec(serde).encode(read).to_list() == written


@pytest.mark.parametrize("start", [1, 3])
def test_a_piece_of_a_longer_series_is_written_alone(start: int) -> None:
    whole = pl.Series([1, 2, None, 4, 5])
    piece = whole[start:]
    expected = [None if number is None else serdes.int64.serialize(number) for number in piece]
    assert codec(serdes.int64).encode(piece).to_list() == expected


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (serdes.string, b"\xff"),
        (serdes.int64, b"1234567"),
        (serdes.int16, b""),
        (serdes.double, b"123456789"),
        (serdes.boolean, b"\x02"),
        (serdes.boolean, b""),
    ],
)
def test_bytes_that_the_serde_refuses_are_refused(serde: Any, data: bytes) -> None:
    assert gives_up(serde.deserialize, data)
    assert gives_up(codec(serde).decode, pl.Series([None, data], dtype=pl.Binary))


GOOD = {"a": 1, "s": "x", "f": 1.5, "b": True}
LENIENT = serdes.json({"a": int, "s": str, "f": float, "b": bool})


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":"1","s":"x","f":1.5,"b":true}',
        b'{"a":1.5,"s":"x","f":1.5,"b":true}',
        b'{"a":true,"s":"x","f":1.5,"b":true}',
        b'{"a":1,"s":5,"f":1.5,"b":true}',
        b'{"a":1,"s":"x","f":1.5,"b":1}',
        b'{"a":1,"s":"x","f":1.5}',
        b'{"a":null,"s":"x","f":1.5,"b":true}',
        b'{"a":1,"s":"\\ud800","f":1.5,"b":true}',
        b"[]",
        b"null",
        b"",
        b" ",
        b"\n",
        b"{",
        b'{"a":01,"s":"x","f":1.5,"b":true}',
        b'{"a":1,"s":"x","f":1.,"b":true}',
        b'{"a":1,"s":"x","f":1e999,"b":true}',
        b'{"a":1,"s":"x","f":NaN,"b":true}',
        b'{"a":1,"s":"x\ny","f":1.5,"b":true}',
        b'{"a":1,"s":"x","f":1.5,"b":true}{"a":1,"s":"x","f":1.5,"b":true}',
    ],
)
def test_json_that_polars_would_bend_into_shape_is_refused(data: bytes) -> None:
    column = pl.Series([LENIENT.serialize(GOOD), data], dtype=pl.Binary)
    assert gives_up(LENIENT.deserialize, data)
    assert gives_up(codec(LENIENT).decode, column)


FLAT = serdes.json({"a b": pl.Int64, 'q"': str, "f": float | None, "b": pl.Boolean, "small": pl.Int8})
FLAT_RECORDS = st.fixed_dictionaries(
    {
        "a b": st.none() | INT64,
        'q"': TEXT,
        "f": st.none() | NUMBERS,
        "b": st.none() | st.booleans(),
        "small": st.none() | st.integers(-128, 127),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | FLAT_RECORDS, max_size=6), st.booleans())
def test_flat_records_are_read_exactly(values: list[Any], spaced: bool) -> None:
    written = FLAT.serialize_many(values)
    if spaced:
        written = [None if value is None else json.dumps(value).encode() for value in values]
    assert codec(FLAT).decode(pl.Series(written, dtype=pl.Binary)).to_list() == values


def test_flat_records_out_of_bounds_are_refused_wherever_they_stand() -> None:
    good, bad = (FLAT.serialize(one) for one in ({**FLAT_ONE, "small": 127}, FLAT_ONE))
    bad = bad.replace(b'"small":1', b'"small":128')
    assert gives_up(codec(FLAT).decode, pl.Series([good, bad]))
    assert gives_up(codec(FLAT).decode, pl.Series([bad, good]))


FLAT_ONE: dict[str, Any] = {"a b": 1, 'q"': "x", "f": 1.0, "b": True, "small": 1}
SPELLINGS: dict[str, Callable[[Any], str]] = {
    "python": json.dumps,
    "indented": lambda value: json.dumps(value, indent=2),
    "reversed": lambda value: json.dumps(dict(reversed(value.items())), separators=(",", ":")),
    "more fields": lambda value: json.dumps({"new": [1], **value}, separators=(",", ":")),
    "exponents": lambda value: json.dumps({**value, "f": 2.0}).replace("2.0", "2e0"),
    "twice": lambda value: json.dumps(value).replace('"a": 1', '"a": 7, "a": 1'),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_json_is_read_however_it_is_spelled(spelling: str) -> None:
    texts = [SPELLINGS[spelling]({**GOOD, "s": text}).encode() for text in ("x", 'a": b', 'c, "d', "é")]
    expected = [LENIENT.deserialize(text) for text in texts]
    assert codec(LENIENT).decode(pl.Series(texts)).to_list() == expected


@pytest.mark.parametrize(
    ("serde", "values"),
    [
        (serdes.string, pl.Series([1])),
        (serdes.int64, pl.Series(["1"])),
        (serdes.int16, pl.Series([70_000])),
        (serdes.float32, pl.Series([1e300])),
        (serdes.double, pl.Series([1])),
        (LENIENT, pl.Series([{**GOOD, "a": None}])),
        (LENIENT, pl.Series([{"a": 1}])),
        (serdes.json({"n": pl.Int8}), pl.Series([{"n": 128}])),
        (serdes.json({"f": float}), pl.Series([{"f": float("nan")}])),
    ],
)
def test_values_that_the_serde_has_to_look_at_are_left_to_it(serde: Any, values: pl.Series) -> None:
    assert gives_up(codec(serde).encode, values)


def test_records_are_written_with_sorted_fields_and_lists_without_brackets_of_their_own() -> None:
    records = pl.Series([{"b": [1, None], "a": {"y": 1.0, "x": "é"}}])
    assert codec(serdes.json).encode(records).to_list() == ['{"a":{"x":"é","y":1.0},"b":[1,null]}'.encode()]
    lists = pl.Series([[1e300, 2.0], None, []])
    assert codec(serdes.json).encode(lists).to_list() == [b"[1e300,2.0]", None, b"[]"]


def test_an_automatic_serde_takes_the_type_of_a_column() -> None:
    bound = serdes.auto.bind("topic")
    assert codec_of(bound) is None
    found = codec_to_write(bound, pl.Int64())
    assert found is not None
    assert found.dtype == pl.Int64()
    bound.serialize("text")
    assert codec(bound).dtype == pl.String()


def test_a_serde_of_the_users_own_has_no_codec() -> None:
    class Mine(type(serdes.string)):  # type: ignore[misc]
        """Does something else."""

    assert codec_of(Mine()) is None
    assert codec_of(serdes.uuid) is None
