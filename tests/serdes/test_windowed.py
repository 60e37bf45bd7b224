from __future__ import annotations

from typing import Any, assert_type

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millstream import serdes
from millstream.record import Window, Windowed

MAX = 2**63 - 1
TIMES = st.integers(0, MAX)


@given(st.text(), TIMES, st.integers(1, MAX))
def test_time_windowed_keys_round_trip(key: str, start: int, size: int) -> None:
    serde = serdes.time_windowed(serdes.string, size)
    value = Windowed(key, Window(start, min(start + size, MAX)))
    assert serde.deserialize(serde.serialize(value)) == value


@given(st.text(), TIMES, TIMES)
def test_session_keys_round_trip(key: str, start: int, end: int) -> None:
    assume(start <= end)
    serde = serdes.session_windowed(serdes.string)
    value = Windowed(key, Window(start, end))
    assert serde.deserialize(serde.serialize(value)) == value


def test_bytes_are_those_of_kafka() -> None:
    window = Windowed("k", Window(20, 30))
    assert serdes.time_windowed(serdes.string, 10).serialize(window).hex() == "6b" + "0000000000000014"
    assert (
        serdes.session_windowed(serdes.string).serialize(window).hex()
        == "6b" + "000000000000001e" + "0000000000000014"
    )


@given(st.text(), TIMES, TIMES)
def test_windows_of_one_key_sort_by_their_start(key: str, left: int, right: int) -> None:
    serde = serdes.time_windowed(serdes.string, MAX)
    first, second = (serde.serialize(Windowed(key, Window(start, MAX))) for start in (left, right))
    assert (first < second) == (left < right)


def test_a_window_of_another_size_is_refused_because_it_could_not_be_read_back() -> None:
    with pytest.raises(ValueError, match=r"the window 0\.\.5 does not have the size of 10 ms"):
        serdes.time_windowed(serdes.string, 10).serialize(Windowed("k", Window(0, 5)))


@pytest.mark.parametrize(
    "serde", [serdes.time_windowed(serdes.string, 10), serdes.session_windowed(serdes.string)]
)
def test_a_plain_key_is_refused(serde: Any) -> None:
    with pytest.raises(TypeError, match="expected Windowed, got str"):
        serde.serialize("k")
    with pytest.raises(TypeError, match="the key inside the window is None"):
        serde.serialize(Windowed(None, Window(0, 10)))


@pytest.mark.parametrize(
    ("serde", "data", "message"),
    [
        (serdes.time_windowed(serdes.string, 10), b"short", "expected at least the window's 8 bytes, got 5"),
        (
            serdes.session_windowed(serdes.string),
            bytes(15),
            "expected at least the window's 16 bytes, got 15",
        ),
        (serdes.time_windowed(serdes.string, 10), b"\xff" * 8, "a window starts at -1, before time 0"),
        (serdes.session_windowed(serdes.string), bytes(15) + b"\1", "a window ends (0) before it starts (1)"),
    ],
)
def test_bytes_without_a_window_are_refused(serde: Any, data: bytes, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        serde.deserialize(data)
    assert str(caught.value) == message


def test_a_window_needs_a_size() -> None:
    with pytest.raises(ValueError, match="window_size_ms must be positive, got 0"):
        serdes.time_windowed(serdes.string, 0)


def test_an_inner_auto_serde_learns_once_bound() -> None:
    serde = serdes.time_windowed(serdes.auto, 10).bind("counts")
    value = Windowed(7, Window(0, 10))
    assert serde.deserialize(serde.serialize(value)) == value
    assert repr(serde) == "serdes.time_windowed(serdes.auto for 'counts' (int), window_size_ms=10)"


def test_the_types_are_known_to_the_type_checker() -> None:
    serde = serdes.session_windowed(serdes.string)
    assert_type(serde.deserialize(serde.serialize(Windowed("k", Window(0, 1)))), Windowed[str])
