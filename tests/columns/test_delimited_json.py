"""Flat JSON records, cut at the names of their fields: read as the serde reads them, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream import serdes
from millstream.serdes.columns import codec_of, delimited_json

ORDER = serdes.json({"a": int, "s": str, "f": float, "b": bool})
TYPES: dict[str, pl.DataType] = {"a": pl.Int64(), "s": pl.String(), "f": pl.Float64(), "b": pl.Boolean()}
GOOD = {"a": 1, "s": "x", "f": 1.5, "b": True}
RECORDS = st.fixed_dictionaries(
    {
        "a": st.integers(-(2**63), 2**63 - 1) | st.integers(-99, 99),
        "s": st.text(max_size=5)
        | st.sampled_from(['","f":1', '"', "\\", "}", '{"a":', "é", "\u2028", "\x1f"]),
        "f": st.floats(allow_nan=False, allow_infinity=False),
        "b": st.booleans(),
    }
)
PLAIN_TEXT = st.text(st.characters(min_codepoint=32, exclude_characters='"\\', exclude_categories=["Cs"]))


@pytest.fixture(autouse=True)
def few_rows_are_many() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited_json, "_MANY_ROWS", 1)
        yield


def read(texts: list[bytes], *, spaced: bool = False) -> list[Any] | None:
    column = pl.Series(texts, dtype=pl.Binary).cast(pl.String)
    colon, comma = (": ", ", ") if spaced else (":", ",")
    found = delimited_json.read_delimited(column, TYPES, colon, comma)
    return None if found is None else pl.DataFrame(found).to_dicts()


@settings(max_examples=80, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=6), st.booleans())
@example([GOOD, {**GOOD, "s": '","f":1'}], False)
def test_records_are_read_as_the_serde_reads_them(values: list[Any], spaced: bool) -> None:
    written = [json.dumps(one, ensure_ascii=False).encode() if spaced else _compact(one) for one in values]
    codec = codec_of(ORDER)
    assert codec is not None
    assert codec.decode(pl.Series(written, dtype=pl.Binary)).to_list() == values
    assert read(written, spaced=spaced) in (values, None)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(-(10**17), 10**17), PLAIN_TEXT, st.booleans()), min_size=1, max_size=6))
def test_plain_records_are_cut(rows: list[tuple[int, str, bool]]) -> None:
    values = [{"a": number, "s": text, "f": number / 8, "b": truth} for number, text, truth in rows]
    assert read([_compact(one) for one in values]) == values


def test_only_a_part_of_a_column_is_read_where_it_is_only_a_part() -> None:
    texts = [_compact({**GOOD, "a": number}) for number in range(9)]
    part = pl.Series(texts, dtype=pl.Binary).cast(pl.String)[3:5]
    found = delimited_json.read_delimited(part, TYPES, ":", ",")
    assert found is not None
    assert found["a"].to_list() == [3, 4]


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":01,"s":"x","f":1.5,"b":true}',
        b'{"a":-0,"s":"x","f":1.5,"b":true}',
        b'{"a":+1,"s":"x","f":1.5,"b":true}',
        b'{"a":1.0,"s":"x","f":1.5,"b":true}',
        b'{"a":,"s":"x","f":1.5,"b":true}',
        b'{"a":"1","s":"x","f":1.5,"b":true}',
        b'{"a":9223372036854775808,"s":"x","f":1.5,"b":true}',
        b'{"a":1,"s":"x","f":+1.5,"b":true}',
        b'{"a":1,"s":"x","f":01.5,"b":true}',
        b'{"a":1,"s":"x","f":.5,"b":true}',
        b'{"a":1,"s":"x","f":1.,"b":true}',
        b'{"a":1,"s":"x","f":1e999,"b":true}',
        b'{"a":1,"s":"x","f":inf,"b":true}',
        b'{"a":1,"s":"x","f":NaN,"b":true}',
        b'{"a":1,"s":"x","f":1.5,"b":1}',
        b'{"a":1,"s":"x","f":1.5,"b":TRUE}',
        b'{"a":1,"s":"x\ny","f":1.5,"b":true}',
        b'{"a":1,"s":"\\u0041","f":1.5,"b":true}',
        b'{"a":1,"s":"x","f":1.5}',
        b'{"a":1,"f":1.5,"s":"x","b":true}',
        b'{"a":1,"s":"x","f":1.5,"b":true}{"a":1,"s":"x","f":1.5,"b":true}',
        b'{"a":1,"s":"x","f":1.5,"b":true} ',
        b'{"a":1,"s":"x","s":"y","f":1.5,"b":true}',
        b'{"a":1,"s":"x"y","f":1.5,"b":true}',
        b'{"a":1,"s":"x","f":null,"b":true}',
        b"null",
        b"",
    ],
)
def test_records_of_which_one_is_spelled_otherwise_are_not_read(data: bytes) -> None:
    assert read([_compact(GOOD), _compact({**GOOD, "s": "y"})]) is not None
    assert read([_compact(GOOD), data, _compact(GOOD)]) is None


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
