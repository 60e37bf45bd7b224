"""A user's own serde: any object with the two methods, alone, in wrappers and in columns."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import serdes
from millstream.serdes import (
    BaseSerde,
    ColumnError,
    Serde,
    bind,
    deserialize_column,
    serde_name,
    serialize_column,
)


class Celsius:
    def serialize(self, value: float) -> bytes:
        return f"{value:.1f}".encode()

    def deserialize(self, data: bytes) -> float:
        return float(data)


class Named(Celsius):
    name = "celsius"


class Careless(BaseSerde[str]):
    def serialize(self, value: str, /) -> bytes:
        return value  # type: ignore[return-value]  # the mistake that is tested

    def deserialize(self, data: bytes, /) -> str:
        return data.decode()


def test_it_needs_no_base_class() -> None:
    serde: Serde[float] = Celsius()
    assert serdes.of(serde) is serde
    assert bind(serde, "topic") is serde
    assert serialize_column(serde, [21.5, None]) == [b"21.5", None]
    assert deserialize_column(serde, [b"21.5", None]) == [21.5, None]


def test_its_name_is_its_own_or_that_of_its_class() -> None:
    assert [serde_name(Celsius()), serde_name(Named()), serde_name(Careless())] == [
        "Celsius",
        "celsius",
        "Careless",
    ]


def test_it_can_be_wrapped() -> None:
    serde = serdes.nullable(Celsius())
    assert serde.deserialize(serde.serialize(3.5)) == 3.5


def test_a_failure_in_a_column_names_the_entry() -> None:
    with pytest.raises(ColumnError) as caught:
        deserialize_column(Celsius(), [b"1.0", None, b"warm"])
    assert (caught.value.index, str(caught.value.cause)) == (2, "could not convert string to float: b'warm'")


@pytest.mark.parametrize("values", [["a"], [None, "a"]])
def test_it_must_return_bytes(values: list[str | None]) -> None:
    with pytest.raises(ColumnError) as caught:
        serialize_column(Careless(), values)
    assert caught.value.index == len(values) - 1
    assert str(caught.value.cause) == "serialize() of Careless returned str, but bytes are needed"


def test_a_method_that_is_missing_is_named() -> None:
    with pytest.raises(NotImplementedError, match=r"BaseSerde does not define serialize\(\)"):
        BaseSerde[str]().serialize("a")
    with pytest.raises(NotImplementedError, match=r"BaseSerde does not define deserialize\(\)"):
        BaseSerde[str]().deserialize(b"a")


class WriteOnly:
    def serialize(self, value: str) -> bytes:
        return value.encode()

    def __repr__(self) -> str:
        return "WriteOnly()"


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (
            WriteOnly(),
            (
                "WriteOnly() is not a serde: it has no deserialize(). Remedy: give one of millstream.serdes, "
                "or your own object with serialize(value) -> bytes and deserialize(bytes) -> value."
            ),
        ),
        ("string", "'string' is not a serde, but the name of one. Remedy: give serdes.string itself."),
        (
            "text",
            (
                "'text' is not a serde: it has no serialize() and no deserialize(). Remedy: give one of "
                "millstream.serdes, or your own object with serialize(value) -> bytes and deserialize(bytes) "
                "-> value."
            ),
        ),
        (
            int,
            (
                "int is not a serde: it has no serialize() and no deserialize(). Likely cause: a type was "
                "given where a serde is expected. Remedy: give one of millstream.serdes (for int: "
                "serdes.int64) or your own object with both methods."
            ),
        ),
        (
            Celsius,
            "Celsius is a serde class, but an instance is needed. Remedy: give Celsius() instead of Celsius.",
        ),
    ],
)
def test_what_is_no_serde_is_refused_with_the_remedy(candidate: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        serdes.of(candidate)
    assert str(caught.value) == message
    with pytest.raises(TypeError):
        serdes.nullable(candidate)
