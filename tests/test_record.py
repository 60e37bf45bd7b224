from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, assert_type

import pytest

from millstream.errors import InvalidTimestampError
from millstream.record import FixedKeyRecord, Record, RecordMetadata, ValueAndTimestamp, Window, Windowed

VALUES: list[Any] = [
    Record("k", 1, 5, (("h", b"x"), ("n", None))),
    FixedKeyRecord("k", 1, 5),
    RecordMetadata("orders", 3, 41),
    Window(0, 10),
    Windowed("k", Window(0, 10)),
    ValueAndTimestamp(1, 5),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_equal_hashable_copied_and_sent(value: Any) -> None:
    again = dataclasses.replace(value)
    sent = pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes
    assert value == again == copy.copy(value) == copy.deepcopy(value) == sent
    assert len({value, again, sent}) == 1


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_cannot_be_changed(value: Any) -> None:
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, "other")
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(value, name)
    assert not hasattr(value, "__dict__")


def test_generic_classes_can_be_called_with_their_types() -> None:
    assert Record[str, int]("k", 1, 5) == Record("k", 1, 5)
    assert FixedKeyRecord[str, int]("k", 1, 5) == FixedKeyRecord("k", 1, 5)
    assert Windowed[str]("k", Window(0, 1)) == Windowed("k", Window(0, 1))
    assert ValueAndTimestamp[int](1, 5) == ValueAndTimestamp(1, 5)


def test_the_two_kinds_of_record_differ() -> None:
    records: list[object] = [Record("k", 1, 5), FixedKeyRecord("k", 1, 5)]
    assert records[0] != records[1]


@pytest.mark.parametrize("cls", [Record, FixedKeyRecord])
def test_a_negative_timestamp_is_refused(cls: Any) -> None:
    with pytest.raises(InvalidTimestampError) as caught:
        cls("k", 1, -1)
    assert str(caught.value) == (
        "A record's timestamp is -1, but timestamps are milliseconds since 1970, never negative. "
        "Likely cause: a timestamp extractor that returned -1 for 'unknown', or seconds mixed up with a "
        "difference of times. Remedy: return a valid time, or drop the record before it is made."
    )


def test_a_record_can_be_taken_apart() -> None:
    match Record("k", 1, 5):
        case Record(key, value, timestamp):
            assert (key, value, timestamp) == ("k", 1, 5)


def test_windows_sort_by_time() -> None:
    assert sorted([Window(5, 6), Window(0, 9), Window(0, 3)]) == [Window(0, 3), Window(0, 9), Window(5, 6)]


def test_the_types_are_known_to_the_type_checker() -> None:
    record = Record("k", 1, 5)
    assert_type(record, Record[str, int])
    assert_type(record.with_value(1.5), Record[str, float])
    assert_type(record.with_key(b"k"), Record[bytes, int])
    assert_type(FixedKeyRecord("k", 1, 5).with_value("v"), FixedKeyRecord[str, str])
    general: Record[object, object] = record
    assert general is record
