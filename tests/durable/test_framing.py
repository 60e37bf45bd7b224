"""Frames: any cut and any flipped bit is noticed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.durable import DamagedFileError, FormatVersionError, FrameKind, TruncatedFrameError

KIND = FrameKind(b"TEST", version=1, max_bytes=64)


class Thing(msgspec.Struct):
    name: str
    numbers: dict[str, int]


@given(st.binary(max_size=64), st.binary(max_size=8))
def test_a_frame_gives_back_what_was_wrapped(payload: bytes, behind: bytes) -> None:
    frame = KIND.wrap(payload)
    assert KIND.unwrap(frame, "here") == payload
    assert KIND.unwrap_at(b"xy" + frame + behind, 2, "here") == (payload, 2 + len(frame))


def test_equal_records_are_equal_bytes() -> None:
    one, two = Thing("a", {"x": 1, "y": 2}), Thing("a", {"y": 2, "x": 1})
    assert KIND.encode(one) == KIND.encode(two)
    assert KIND.decode(KIND.encode(one), Thing, "here") == one


def test_every_cut_is_a_truncated_frame() -> None:
    frame = KIND.wrap(b"some payload")
    for length in range(len(frame)):
        with pytest.raises(TruncatedFrameError, match="here ends after"):
            KIND.unwrap(frame[:length], "here")


def test_every_flipped_bit_is_noticed() -> None:
    frame = KIND.wrap(b"some payload")
    for bit in range(8 * len(frame)):
        broken = bytearray(frame)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedFileError, match="here"):
            KIND.unwrap(bytes(broken), "here")


def test_a_length_over_the_bound_is_refused_before_anything_is_allocated() -> None:
    frame = FrameKind(b"TEST", version=1, max_bytes=1000).wrap(bytes(65))
    with pytest.raises(DamagedFileError, match="claims a payload of 65 bytes; the bound is 64"):
        KIND.unwrap(frame, "here")
    with pytest.raises(ValueError, match="the bound is 64"):
        KIND.wrap(bytes(65))


def test_bytes_behind_the_frame_are_refused() -> None:
    with pytest.raises(DamagedFileError, match="2 bytes after its end"):
        KIND.unwrap(KIND.wrap(b"payload") + b"xy", "here")


def test_an_intact_frame_of_another_version_says_so() -> None:
    frame = FrameKind(b"TEST", version=2, max_bytes=64).wrap(b"payload")
    with pytest.raises(
        FormatVersionError, match="here has format version 2, but this Millstream reads version 1"
    ):
        KIND.unwrap(frame, "here")


def test_an_intact_frame_with_other_content_is_damage() -> None:
    with pytest.raises(DamagedFileError, match="content is not as expected"):
        KIND.decode(KIND.wrap(b'{"name": 7}'), Thing, "here")
