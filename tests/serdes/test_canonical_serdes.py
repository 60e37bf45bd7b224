"""What the readable bytes of a serde are: those that it reads, and would write again just so."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import serdes
from millstream.serdes.canonical_serdes import readable_by

ODD = [
    b"",
    b"\x00",
    b"\x01",
    b"\x02",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbfx",
    b"\xff",
]
DATA = st.lists(
    st.none() | st.binary(max_size=9) | st.sampled_from(ODD) | st.text(max_size=4).map(str.encode)
)


@pytest.mark.parametrize(
    "serde", [serdes.bytes, serdes.string, serdes.int16, serdes.int32, serdes.int64, serdes.boolean], ids=str
)
@given(column=DATA)
def test_bytes_that_are_called_readable_come_back_and_all_others_fail(
    serde: Any, column: list[bytes | None]
) -> None:
    readable = readable_by(serde)
    assert readable is not None
    found = readable(pa.array(column, pa.binary())).to_pylist()
    assert found == [None if data is None else _comes_back(serde, data) for data in column]


def _comes_back(serde: Any, data: bytes) -> bool:
    try:
        value = serde.deserialize(data)
    except ValueError:
        return False
    assert serde.serialize(value) == data
    return True


def test_no_serde_means_bytes() -> None:
    readable = readable_by(None)
    assert readable is not None
    assert readable(pa.array([b"\xff", None], pa.binary())).to_pylist() == [True, None]


def test_of_a_slice_too() -> None:
    readable = readable_by(serdes.string)
    assert readable is not None
    column = pa.array([b"\xff", b"sea", None, b"\xff"], pa.binary())
    assert readable(column.slice(1, 2)).to_pylist() == [True, None]
    assert readable(column.slice(2, 2)).to_pylist() == [None, False]
