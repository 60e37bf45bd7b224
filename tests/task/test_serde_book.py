"""Which serde each topic and store uses."""

from __future__ import annotations

import pytest

from millstream import serdes
from millstream.errors import MixedTypesError
from millstream.task.serde_book import SerdeBook


def test_an_explicit_serde_is_used_as_it_is() -> None:
    assert SerdeBook().bound("topic", "value", serdes.int64) is serdes.int64


def test_no_serde_means_an_automatic_one_that_writer_and_reader_share() -> None:
    book = SerdeBook()
    data = book.bound("topic", "value", None).serialize(5)
    assert book.bound("topic", "value", serdes.auto).deserialize(data) == 5


def test_topics_and_parts_learn_separately() -> None:
    book = SerdeBook()
    book.bound("one", "value", None).serialize(5)
    book.bound("one", "key", None).serialize("text")
    book.bound("two", "value", None).serialize("text")
    assert book.inferred_types() == {("one", "value"): "int", ("one", "key"): "str", ("two", "value"): "str"}


def test_what_was_learned_goes_on_in_another_book() -> None:
    book = SerdeBook()
    data = book.bound("topic", "value", None).serialize(5)
    later = SerdeBook()
    later.restore(book.inferred_types())
    assert later.bound("topic", "value", None).deserialize(data) == 5
    with pytest.raises(MixedTypesError):
        later.bound("topic", "value", None).serialize("text")


def test_what_is_restored_reaches_serdes_that_were_bound_before() -> None:
    book = SerdeBook()
    bound = book.bound("topic", "value", None)
    book.restore({("topic", "value"): "str"})
    assert bound.deserialize(b"text") == "text"


def test_what_nobody_asked_for_again_is_still_known() -> None:
    book = SerdeBook()
    book.restore({("topic", "value"): "str"})
    assert book.inferred_types() == {("topic", "value"): "str"}
