"""A table's update on the wire of a repartition: Kafka's layout."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import DeserializationError
from millstream.task.change_codec import decode_change, encode_change


@pytest.mark.parametrize(
    ("new", "old", "data"),
    [
        (b"new", None, b"new\x01"),
        (None, b"old", b"old\x00"),
        (b"new", b"old", b"\x03newold\x02"),
        (b"", b"", b"\x00\x02"),
        (b"", None, b"\x01"),
    ],
)
def test_the_layout_is_kafkas(new: bytes | None, old: bytes | None, data: bytes) -> None:
    assert encode_change(new, old) == data
    assert decode_change(data) == (new, old)


def test_long_values_have_long_lengths() -> None:
    data = encode_change(b"n" * 300, b"o")
    assert data[:2] == b"\xac\x02"
    assert decode_change(data) == (b"n" * 300, b"o")


values = st.one_of(st.none(), st.binary(max_size=300))


@given(values, values)
def test_what_is_written_is_read(new: bytes | None, old: bytes | None) -> None:
    # No update has neither value; it would be read as an empty old one.
    if new is not None or old is not None:
        assert decode_change(encode_change(new, old)) == (new, old)


def test_an_unknown_kind_of_update_is_refused() -> None:
    with pytest.raises(DeserializationError) as caught:
        decode_change(b"value\x07")
    assert str(caught.value) == "a table's update ends in the byte 7, which is no known kind of update"


def test_no_bytes_are_refused() -> None:
    with pytest.raises(DeserializationError):
        decode_change(b"")


def test_a_length_without_end_is_refused() -> None:
    with pytest.raises(DeserializationError) as caught:
        decode_change(b"\xff" * 6 + b"\x02")
    assert str(caught.value) == "a table's update begins with a length that does not end"
